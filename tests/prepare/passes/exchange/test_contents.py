"""A whole job with an exchange writes what twenty lines of plain Python would, and accounts for every row."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import penstock
from penstock.prepare.rows.order import hash_keys
from tests.prepare.rows import making
from tests.promises import workshop

EXAMPLES = 300 if workshop.THOROUGH else 20
# Each example is a whole job: looking for the smallest that fails takes minutes, and is left to a thorough run.
PHASES = [phase for phase in Phase if workshop.THOROUGH or phase not in (Phase.shrink, Phase.explain)]
KINDS = ["int64", "uint64", "float64", "string", "binary", "zoned", "timestamp", "bool", "date32", "dictionary"]


def reference(table: pa.Table, by: list[str], order: list[str], null_keys: str) -> tuple[list[Any], int]:
    """(records in the order of hash and key, rows set aside): a dict of lists, each sorted by a stable sort."""
    columns = {name: making.raw(table[name].combine_chunks()) for name in table.column_names}
    hashes = hash_keys([table[name].combine_chunks() for name in by]).tolist()
    groups: dict[Any, list[int]] = {}
    aside = 0
    for row in range(table.num_rows):
        if null_keys == "set_aside" and any(columns[name][row] is None for name in by):
            aside += 1
            continue
        groups.setdefault((hashes[row], *(making.place(columns[name][row]) for name in by)), []).append(row)
    records = []
    for _, rows in sorted(groups.items()):
        rows.sort(key=lambda row: [making.place(columns[name][row]) for name in order])
        keys = [columns[name][rows[0]] for name in by]
        records.append(
            (*keys, *([columns[name][row] for row in rows] for name in table.column_names if name not in by))
        )
    return records, aside


@st.composite
def cases(draw: Any) -> dict[str, Any]:
    """A few rows over several files: one key or many, all distinct, nulls, ties, columns of odd types."""
    rows = draw(st.sampled_from([0, 1, 2, 9, 40, 90]))
    kinds = {
        **{f"k{n}": draw(st.sampled_from(KINDS)) for n in range(draw(st.integers(1, 2)))},
        **{f"o{n}": draw(st.sampled_from(KINDS)) for n in range(draw(st.integers(0, 2)))},
        **{
            f"v{n}": draw(st.sampled_from([*KINDS, "float32", "time32", "large_string"]))
            for n in range(draw(st.integers(0, 2)))
        },
    }
    shape = draw(st.sampled_from(["drawn", "one key", "all distinct"]))
    columns = {name: _column(draw, kind, rows) for name, kind in kinds.items()}
    if shape == "one key" and rows:
        columns["k0"] = pa.concat_arrays([columns["k0"].slice(0, 1)] * rows)
    if shape == "all distinct":
        columns["k0"] = pa.array(range(rows), pa.int64())
    return {
        "table": pa.table({**columns, "position": pa.array(range(rows), pa.int32())}),
        "by": [name for name in kinds if name[0] == "k"],
        "order": [name for name in kinds if name[0] == "o"],
        "null_keys": draw(st.sampled_from(["set_aside", "group"])),
        "files": draw(st.integers(1, 3)),
        "batch_bytes": draw(st.sampled_from([1 << 20, 2000, 200])),
    }


def _column(draw: Any, kind: str, rows: int) -> pa.Array:
    if kind == "dictionary":
        return draw(making.columns(rows, "string")).dictionary_encode()
    return draw(making.columns(rows, kind))


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.mark.proof
@settings(max_examples=EXAMPLES, phases=PHASES)
@given(case=cases())
def test_records_and_account_are_those_of_a_naive_reference(case):
    with _folder() as folder:
        _assert_like_reference(folder, **case)


def _assert_like_reference(
    folder: Path, table: pa.Table, by: list[str], order: list[str], null_keys: str, files: int, batch_bytes: int
) -> None:
    (folder / "data").mkdir()
    step = -(-table.num_rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * step, step), folder / "data" / f"{number}.parquet", row_group_size=20)
    stages = [{"group": {"by": by, "order": order, "null_keys": null_keys}}, {"split": {"test": 0.3}}]
    job = {"input": str(folder / "data"), "output": str(folder / "out"), "stages": stages}
    plan = penstock.plan({**job, "slice_size": "1kB", "workers": 0})
    manifest = penstock.run(workshop.with_batches(plan, batch_bytes))

    expected, aside = reference(table, by, order, null_keys)
    found = []
    for split in ("train", "test"):
        data = penstock.open(folder / "out", split)[:]
        names = [*by, *(name for name in table.column_names if name not in by)]
        assert data.column_names == names
        found += _rows(data)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert penstock.verify(folder / "out").ok

    steps = {step.step: step for step in manifest.account}
    assert steps["read"].taken == table.num_rows
    assert steps["group"].set_aside == ({"null key": aside} if aside else {})
    assert steps["group"].given == sum(len(record[-1]) for record in expected) == table.num_rows - aside
    assert steps["group"].made == {"records": len(expected)}
    assert steps["write"].given == len(expected) == manifest.records("train") + manifest.records("test")
    summary = json.loads((folder / "out" / "artifacts" / "group.json").read_text())
    assert (summary["keys"], summary["records"]) == (len(expected), len(expected))
    if order:
        assert summary["events"] == table.num_rows - aside


def _rows(data: pa.Table) -> list[tuple[Any, ...]]:
    columns = []
    for column in data.columns:
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        is_list = pa.types.is_list(array.type)
        columns.append([making.raw(each.values) for each in array] if is_list else making.raw(array))
    return list(zip(*columns, strict=True))


@pytest.mark.proof
@pytest.mark.parametrize("batch_bytes", [1 << 20, 500])
def test_records_of_a_split_stand_in_the_order_of_hash_and_key(tmp_path, batch_bytes):
    """What comes first in a shard, and in which shard, is part of what `same bytes` means."""
    table = pa.table({"k": [f"key {n % 37}" for n in range(300)], "t": [n * 7 % 11 for n in range(300)]})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "a.parquet", row_group_size=50)
    job = {
        "input": str(tmp_path / "data"),
        "output": str(tmp_path / "out"),
        "stages": [{"group": {"by": "k", "order": "t"}}],
    }
    penstock.run(workshop.with_batches(penstock.plan({**job, "slice_size": "1kB", "workers": 0}), batch_bytes))
    expected, _ = reference(table, ["k"], ["t"], "set_aside")
    assert _rows(penstock.open(tmp_path / "out")[:]) == expected
