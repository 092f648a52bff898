"""Inspect: an output folder or .arrayrecord files -> what they hold, finished or not, with a few records decoded."""

import os
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from penstock.base.sizes import format_seconds, format_size
from penstock.base.stores import open_store
from penstock.shards.dataset import is_bare, older_files, open_dataset
from penstock.shards.manifest import read_manifest
from penstock.show.contents.arrayrecord_files import file_facts, file_tables
from penstock.show.contents.columns import column_tables
from penstock.show.contents.summary import (
    GROUP,
    bin_facts,
    bin_tables,
    key_tables,
    packed_facts,
    packed_tables,
    read_summary,
)
from penstock.show.contents.unfinished import unfinished_facts, unfinished_lines
from penstock.show.contents.values import decoded_rows, first_records, record_tables
from penstock.show.running.pass_table import memory_words
from penstock.show.running.result import account_tables, dataset_facts, group_lines
from penstock.show.tables import by_workers, filled, input_words, make_list, make_table, split_table


def inspect_facts(path: str | os.PathLike[str], split: str | None = None, records: int = 3) -> dict[str, Any]:
    """Contents of a dataset or of .arrayrecord files: splits, columns, account, keys, a few records decoded.

    Args:
        path: Folder that `penstock.run` wrote, finished or not, or .arrayrecord files.
        split: Split whose records are shown. Default: the first that has records.
        records: Number of records to show. Default: 3.

    Returns:
        The facts that `penstock inspect --json` prints. An unfinished dataset says how far it is.
    """
    path = os.fspath(path)
    if is_bare(path) or older_files(path):
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


def inspect_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    if not facts["finished"]:
        yield from unfinished_lines(facts)
    elif "paths" in facts:
        yield from file_tables(facts)
    else:
        yield from _dataset_tables(facts)


def _dataset_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    yield make_list(_lines(facts))
    yield ""
    yield split_table(facts["splits"])
    yield ""
    if facts["group"]:
        yield from key_tables(facts["group"])
        yield ""
    if facts["bins"]:
        yield from bin_tables(facts["bins"])
        yield ""
    if facts["text"]:
        yield from packed_tables(facts["text"])
        yield ""
    yield from column_tables(facts["schema"])
    yield ""
    yield from account_tables(facts)
    rows = [(file["file"], format_size(file["bytes"])) for file in facts["artifacts"] + facts["rejected"]]
    if rows:
        yield ""
        yield from filled(make_table("other files", ">bytes"), rows, "file")
    yield from record_tables(facts)


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    source, run = facts["input"], facts["run"]
    yield "dataset", facts["dataset"]
    yield "output", f"{facts['output']}, {format_size(facts['bytes'])}"
    yield "made from", input_words(source)
    if run:
        yield "made", f"{run['started']}, in {format_seconds(run['seconds'])}, {by_workers(run['workers'])}"
        yield "memory", memory_words(run)
    yield from group_lines(facts)
    yield "stages", ", ".join(next(iter(stage)) for stage in facts["config"]["stages"]) or "none"
