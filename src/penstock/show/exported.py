"""Exported: a dataset and the name of a format -> files of it, and how many rows, tokens and bytes those have."""

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.paths import dataset_path, local_path, normal_path
from penstock.base.sizes import format_count, format_size
from penstock.shards.foreign.hdf5 import export_hdf5
from penstock.shards.foreign.hf_dataset import export_hf
from penstock.shards.foreign.maxtext import export_maxtext
from penstock.show.tables import make_table

FOLDERS: dict[str, Callable[..., Any]] = {"hf": export_hf, "maxtext": export_maxtext}
FORMATS: dict[str, Callable[..., Any]] = {"hdf5": export_hdf5, **FOLDERS}
_ENDINGS = {"hdf5": ".h5", "hf": "-hf", "maxtext": "-maxtext"}


def exported_place(path: str, to: str, output: str | None) -> str:
    """The place to write to: `output`, or beside the dataset, with the format's name behind the dataset's."""
    if to not in FORMATS:
        raise ConfigError(
            f"there is no export to {to!r}.{did_you_mean(to, list(FORMATS))}",
            where="export --to",
            next_step=f"one of: {', '.join(FORMATS)}",
        )
    beside = f"{normal_path(dataset_path(path, os.getcwd()))}{_ENDINGS[to]}"
    return os.path.abspath(local_path(output or beside, is_output=True))


def exported_facts(
    path: str, to: str, output: str, split: str | None, overwrite: bool, shard_size: str | None
) -> dict[str, Any]:
    options = {} if shard_size is None else {"shard_size": shard_size}
    if options and to not in FOLDERS:
        raise ConfigError(
            f"{to} is one file, whatever its size",
            where="--shard-size",
            next_step=f"leave it out; {' and '.join(FOLDERS)} have it",
        )
    exported = FORMATS[to](path, output, split, overwrite, **options)
    return {"path": path, "to": to, "output": output, **asdict(exported)}


def exported_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    tokens = facts["tokens"]
    table = make_table("split", ">rows", *([">tokens"] if tokens else []))
    for split, rows in facts["rows"].items():
        table.add_row(split, format_count(rows), *([format_count(tokens[split])] if tokens else []))
    yield table
    files = f"{facts['files']:,} files, " if facts["files"] > 1 else ""
    wrote = f"wrote {facts['output']}, {files}{format_size(facts['bytes'])}, of dataset {facts['dataset']}"
    yield Text(f"\n{wrote}", style="green")
