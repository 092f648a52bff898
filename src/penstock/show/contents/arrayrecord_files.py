"""ArrayRecord files: files without a manifest, read through once -> the facts that `group` leaves of a dataset."""

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import RenderableType

from penstock.base.sizes import counted, format_count, format_size
from penstock.prepare.stages.fitting.group_summary import LARGEST
from penstock.shards.dataset import ArrayRecordDataset, is_bare, open_dataset
from penstock.shards.foreign.arrayrecord_file import SUFFIX
from penstock.show.contents.summary import key_tables
from penstock.show.contents.values import first_records, jsonable, record_tables
from penstock.show.tables import filled, make_list, make_table

_AT_ONCE = 16  # records decoded together: one may be as large as the max_record it was made with


def file_facts(path: str, split: str | None, records: int) -> dict[str, Any]:
    """Facts about the files of that name or pattern; of a folder, about a split or all files."""
    if split is None and not is_bare(path):
        path = os.path.join(glob.escape(path), f"*{SUFFIX}")
    dataset = open_dataset(path, split)
    assert isinstance(dataset, ArrayRecordDataset)
    sizes = [os.path.getsize(each) for each in dataset.paths]
    files = zip(dataset.paths, dataset.counts, sizes, strict=True)
    schema = dataset[:1].schema if len(dataset) else pa.schema([])
    return {
        "finished": True,
        "paths": [{"file": file, "records": count, "bytes": size} for file, count, size in files],
        "bytes": sum(sizes),
        "schema": [{"name": field.name, "type": str(field.type)} for field in schema],
        "group": _summary(dataset, [field.name for field in schema if pa.types.is_list(field.type)]),
        "records": {"split": path, "first": first_records(dataset, records)},
    }


@dataclass(frozen=True)
class _Facts:
    """Id and events of each record, 12 bytes; and the first and the last time of all that have events."""

    ids: np.ndarray[Any, Any]
    events: np.ndarray[Any, Any]
    least: str | None
    greatest: str | None


def _read(dataset: ArrayRecordDataset) -> _Facts:
    ids, events = [np.zeros(0, "i8")], [np.zeros(0, "i4")]
    first, last = [np.zeros(0, "M8[us]")], [np.zeros(0, "M8[us]")]
    for batch in dataset.batches(_AT_ONCE):
        ids.append(batch.column("src_id").to_numpy())
        events.append(batch.column("n_measurements").to_numpy())
        filled = batch.filter(pc.greater(batch.column("n_measurements"), 0))
        if filled.num_rows:
            first.append(filled.column("first_timestamp").to_numpy().min(keepdims=True))
            last.append(filled.column("last_timestamp").to_numpy().max(keepdims=True))
    least, greatest = np.concatenate(first), np.concatenate(last)
    ends = [str(least.min()), str(greatest.max())] if len(least) else [None, None]
    return _Facts(np.concatenate(ids), np.concatenate(events), *ends)


def _summary(dataset: ArrayRecordDataset, columns: list[str]) -> dict[str, Any]:
    """Summary like the artifact of `group`. A key is identified by its src_id; its records may be in several files."""
    facts = _read(dataset)
    ids, place = np.unique(facts.ids, return_inverse=True)
    events = np.bincount(place, facts.events, len(ids)).astype("i8")
    levels = np.bincount(np.frexp(events[events > 0].astype("f8"))[1] - 1)  # of 2^n events and more
    without = int((events == 0).sum())  # other programs write such keys
    largest = np.argsort(-events, kind="stable")[:LARGEST]
    return {
        "by": columns[1:2],
        "order": columns[:1],
        "keys": len(ids),
        "records": len(facts.ids),
        "events": int(events.sum()),
        "least": facts.least,
        "greatest": facts.greatest,
        "largest": [
            {"key": _key_of(int(ids[key]), facts, dataset, columns[1:2]), "events": int(events[key])}
            for key in largest
            if events[key]
        ],
        "keys_by_events": ({"0": without} if without else {})
        | {str(2**level): int(count) for level, count in enumerate(levels) if count},
    }


def _key_of(src_id: int, facts: _Facts, dataset: ArrayRecordDataset, column: list[str]) -> Any:
    """The key's text, from a record of it: every event has it, in the column after the time."""
    record = dataset[int(np.flatnonzero((facts.ids == src_id) & (facts.events > 0))[0])]
    return jsonable(record[column[0]][0]) if column else src_id


def file_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    files, records = counted(len(facts["paths"]), "file"), counted(facts["group"]["records"], "record")
    yield make_list([("arrayrecord", f"{files}, {format_size(facts['bytes'])}, {records}")])
    rows = [(each["file"], format_count(each["records"]), format_size(each["bytes"])) for each in facts["paths"]]
    yield ""
    yield from filled(make_table("file", ">records", ">bytes"), rows, "file")
    yield ""
    yield from key_tables(facts["group"])
    yield ""
    fields = [(field["name"], field["type"]) for field in facts["schema"]]
    yield from filled(make_table("column", "type"), fields, "column")
    yield from record_tables(facts)
