"""Exports: a finished dataset -> the folder for another library that `export:` asks for. Called by entry.py."""

import json
from typing import Any

from penstock.base.errors import ConfigError, OutputError
from penstock.base.stores import open_store, refuse_file
from penstock.base.stores.scratch import refuse_scratch
from penstock.base.stores.store import STATE, Store
from penstock.prepare.job.config import Config
from penstock.shards.foreign.arrayrecord import FORMAT as ARRAYRECORD
from penstock.shards.foreign.export import MARK, refuse_target
from penstock.shards.foreign.hf_dataset import export_hf, features_of
from penstock.shards.manifest import dataset_id
from penstock.shards.schema import Schema

EXPORTED = f"{STATE}/export.json"


def refuse_places(config: Config) -> None:
    """Refuse, before anything is read, an `output:`, `export:` or scratch folder that could not be written."""
    refuse_file(config.output_path)
    refuse_scratch()
    if not config.export:
        return
    try:
        refuse_target(config.output_path, config.export_path, overwrite=True)
    except OutputError as error:
        error.next_step = "another place for `export:`, or move this folder away yourself"
        raise


def refuse_columns(config: Config, schema: Schema) -> None:
    """Refuse columns that the dataset will not have, and a format that has none."""
    if not config.export:
        return
    if config.format == ARRAYRECORD:
        raise ConfigError(
            "export: records of .arrayrecord files have no columns of their own, but an export needs columns",
            next_step="leave out `format: arrayrecord`, or `export:`",
        )
    try:
        features_of(schema, config.output_path, config.export.columns)
    except ConfigError as error:
        error.what = f"export.columns: {error.what}"
        raise


def make_export(config: Config) -> None:
    """Write the export, unless it exists with the same dataset and options."""
    if not config.export:
        return
    store, place = open_store(config.output_path), config.export_path
    options: dict[str, Any] = {"shard_size": config.export.shard_size, "columns": config.export.columns}
    wanted = {"dataset": dataset_id(store), "to": config.export.to, "path": place, **options}
    told = json.dumps(wanted, indent=1).encode() + b"\n"
    if _is_there(store, told, place, wanted["dataset"]):
        return
    export_hf(store.root, place, overwrite=True, **options)
    store.commit_bytes(EXPORTED, told)


def _is_there(store: Store, told: bytes, place: str, dataset: str) -> bool:
    export = open_store(place)
    if not store.exists(EXPORTED) or store.read(EXPORTED) != told or not export.exists(MARK):
        return False
    try:
        facts = json.loads(export.read(MARK))
    except ValueError:
        return False
    return bool(facts.get("dataset") == dataset)
