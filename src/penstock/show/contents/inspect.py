"""Inspect: an output folder or .arrayrecord files -> what they hold, finished or not. Next: inspect_tables.py."""

import os
from collections.abc import Mapping
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.stores import open_store
from penstock.loader.batches import Inputs
from penstock.shards.dataset import is_bare, older_files, open_dataset
from penstock.shards.manifest import read_manifest
from penstock.show.contents.dataset_facts import dataset_facts
from penstock.show.contents.summary import GROUP, bin_facts, packed_facts, read_summary
from penstock.show.contents.unfinished import unfinished_facts
from penstock.show.contents.values import decoded_rows, first_records


def refuse_without_tokens(view: Mapping[str, Any]) -> None:
    given = [f"--{name.replace('_', '-')}" for name, value in view.items() if value is not None]
    if given:
        raise ConfigError(
            f"{', '.join(given)}: these options choose a batch, but no batch was asked for",
            where="the command line",
            next_step="add --tokens or --origins",
        )


def refuse_several(asked: Mapping[str, bool]) -> None:
    given = [option for option, is_given in asked.items() if is_given]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)}: one look at a time", where="the command line", next_step=given[0])


def inspect_facts(
    path: str | os.PathLike[str],
    split: str | None = None,
    records: int = 3,
    duplicates: int | None = None,
    inputs: Inputs | None = None,
) -> dict[str, Any]:
    """Contents of a dataset or of .arrayrecord files: splits, columns, account, keys, a few records decoded.

    Args:
        path: Folder that `penstock.run` wrote, finished or not, or .arrayrecord files.
        split: Split whose records are shown. Default: the first that has records.
        records: Number of records to show. Default: 3.
        duplicates: Number of near-duplicates to show beside the documents that stayed, and nothing else. Default: none.
        inputs: With `duplicates`, folder of each input of the job; then lines are counted. Default: where the job read
            its input.

    Returns:
        The facts that `penstock inspect --json` prints. An unfinished dataset says how far it is.
    """
    path = os.fspath(path)
    if duplicates is not None:
        from penstock.loader.order.inputs import inputs_by_dataset
        from penstock.show.contents.duplicates import duplicate_facts

        return duplicate_facts(path, duplicates, inputs_by_dataset(inputs, [path])[path])
    if is_bare(path) or older_files(path):
        from penstock.show.contents.arrayrecord_files import file_facts

        return file_facts(path, split, records)
    store = open_store(path)
    if unfinished := unfinished_facts(store):
        return unfinished
    manifest = read_manifest(store)
    facts = dataset_facts(store, manifest)
    shown = split or next(filter(manifest.records, manifest.splits), next(iter(manifest.splits)))
    # Batch files (npz) are opened by numpy.
    samples = first_records(open_dataset(path, shown), records) if manifest.config["format"] != "npz" else []
    text = packed_facts(store, manifest, facts["run"])
    return {
        "finished": True,
        **facts,
        "job": manifest.job,
        "config": manifest.config,
        "group": read_summary(store, manifest, GROUP),
        "bins": bin_facts(store, manifest),
        "text": text,
        "records": {"split": shown, "first": samples, **(decoded_rows(store, manifest, samples) if text else {})},
    }
