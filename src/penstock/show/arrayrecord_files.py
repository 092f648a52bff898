"""ArrayRecord files: files without a manifest, read through once -> the facts that `group` leaves of a dataset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import RenderableType

from penstock.base.errors import ConfigError
from penstock.base.sizes import format_count, format_size
from penstock.shards.arrayrecord import FORMAT
from penstock.shards.dataset import ArrayRecordDataset, open_dataset
from penstock.show.keys import key_tables
from penstock.show.tables import counted, filled, make_list, make_table
from penstock.show.values import jsonable

_SUFFIX = f".{FORMAT}"
_AT_ONCE = 16  # records decoded together: one may be as large as the max_record it was made with
_LARGEST = 10


def are_files(path: str) -> bool:
    return path.endswith(_SUFFIX) and not os.path.isdir(path)


def file_facts(path: str, split: str | None, records: int) -> dict[str, Any]:
    if split is not None:
        raise ConfigError(
            f"a split is one of a dataset's, and {path} is a file by itself",
            where=f"--split {split}",
            next_step="leave --split out, or give the folder with its manifest.json",
        )
    dataset = open_dataset(path)
    assert isinstance(dataset, ArrayRecordDataset)
    files = [_read(each) for each in dataset.paths]
    schema = next((each.schema for each in files if len(each.ids)), pa.schema([]))
    samples = [jsonable(dataset[number]) for number in range(min(records, len(dataset)))]
    return {
        "finished": True,
        "paths": [{"file": each.path, "records": len(each.ids), "bytes": os.path.getsize(each.path)} for each in files],
        "bytes": sum(os.path.getsize(each.path) for each in files),
        "schema": [{"name": field.name, "type": str(field.type)} for field in schema],
        "group": _summary(files, [field.name for field in schema if pa.types.is_list(field.type)]),
        "records": {"split": path, "first": samples},
    }


@dataclass(frozen=True)
class _File:
    """What is remembered of each record: 12 bytes. And of all of them, the first and the last time."""

    path: str
    schema: pa.Schema
    ids: np.ndarray[Any, Any]
    events: np.ndarray[Any, Any]
    least: Any
    greatest: Any


def _read(path: str) -> _File:
    dataset = open_dataset(path)
    schema = dataset[:1].schema
    ids, events = [np.zeros(0, "i8")], [np.zeros(0, "i4")]
    least, greatest = [], []
    for start in range(0, len(dataset), _AT_ONCE):
        table = dataset[start : start + _AT_ONCE]
        ids.append(table["src_id"].to_numpy())
        events.append(table["n_measurements"].to_numpy())
        least.append(pc.min(table["first_timestamp"]).as_py())
        greatest.append(pc.max(table["last_timestamp"]).as_py())
    found = [[each for each in times if each is not None] for times in (least, greatest)]
    ends = min(found[0], default=None), max(found[1], default=None)
    return _File(path, schema, np.concatenate(ids), np.concatenate(events), *ends)


def _summary(files: list[_File], columns: list[str]) -> dict[str, Any]:
    """As the artifact of `group` has it. A key is known by its src_id; its records may lie in several files."""
    ids, place = np.unique(np.concatenate([each.ids for each in files]), return_inverse=True)
    events = np.bincount(place, np.concatenate([each.events for each in files]), len(ids)).astype("i8")
    levels = np.bincount(np.frexp(events.astype("f8"))[1] - 1)  # of 2^n events and more
    largest = np.argsort(-events, kind="stable")[:_LARGEST]
    ends = [[each.least for each in files if each.least], [each.greatest for each in files if each.greatest]]
    return {
        "by": columns[1:2],
        "order": columns[:1],
        "keys": len(ids),
        "records": sum(len(each.ids) for each in files),
        "events": int(events.sum()),
        "least": min(ends[0]).isoformat() if ends[0] else None,
        "greatest": max(ends[1]).isoformat() if ends[1] else None,
        "largest": [
            {"key": _key_of(int(ids[key]), files, columns[1:2]), "events": int(events[key])} for key in largest
        ],
        "keys_by_events": {str(2**level): int(count) for level, count in enumerate(levels) if count},
    }


def _key_of(src_id: int, files: list[_File], column: list[str]) -> Any:
    """The key's text, from a record of it: every event has it, in the column after the time."""
    file = next(each for each in files if src_id in each.ids)
    record = open_dataset(file.path)[int(np.flatnonzero(file.ids == src_id)[0])]
    return jsonable(record[column[0]][0]) if column else src_id


def file_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    yield make_list(_lines(facts))
    rows = [(each["file"], format_count(each["records"]), format_size(each["bytes"])) for each in facts["paths"]]
    yield ""
    yield from filled(make_table("file", ">records", ">bytes"), rows, "file")
    yield ""
    yield from key_tables(facts["group"])
    yield ""
    fields = [(field["name"], field["type"]) for field in facts["schema"]]
    yield from filled(make_table("column", "type"), fields, "column")


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    files = counted(len(facts["paths"]), "file")
    yield "arrayrecord", f"{files}, {format_size(facts['bytes'])}, {counted(facts['group']['records'], 'record')}"
