"""Part: what one task puts down for the placing comes back piece by piece, and a byte that changed is named."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import IntegrityError
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.rows.container import bytes_of
from penstock.prepare.rows.part import PartWriter, open_part
from penstock.shards.columns import FileFacts
from penstock.shards.schema import schema_from_arrow

SPLITS = ("train", "test")
ARROW = pa.schema({"x": pa.list_(pa.int16(), 2), "text": pa.string()})
SCHEMA = schema_from_arrow(ARROW, "a test")


def batch_of(numbers: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"x": [n, -n], "text": "a" * (n % 4)} for n in numbers], schema=ARROW)


def put_down(folder: Store, batches: list[tuple[int, list[int]]]) -> tuple[FileFacts, dict[str, int]]:
    with ExitStack() as stack:
        writer = PartWriter(folder, "part", SCHEMA, SPLITS, stack)
        for split, numbers in batches:
            writer.write(SPLITS[split], batch_of(numbers))
        facts = writer.finish({split: f"groups of {split}" for split in SPLITS})
    return facts, writer.records


@given(st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(0, 1000), max_size=9)), max_size=6))
def test_the_pieces_of_each_split_come_back_in_order(tmp_path_factory, batches):
    folder = open_store(str(tmp_path_factory.mktemp("part")))
    facts, records = put_down(folder, batches)
    part = open_part(folder, facts)
    for number, split in enumerate(SPLITS):
        numbers = [n for which, some in batches if which == number for n in some]
        data = {name: b"".join(view for _, view in part.column(split, name).read()) for name in ("x", "text/bytes")}
        assert np.frombuffer(data["x"], "<i2").reshape(-1, 2).tolist() == [[n, -n] for n in numbers]
        assert data["text/bytes"] == b"a" * sum(n % 4 for n in numbers)
        ends = np.cumsum([n % 4 for n in numbers]).tolist()
        offsets = part.column(split, "text/offsets")
        assert [end for _, view in offsets.read() for end in np.frombuffer(view, "<i8").tolist()] == ends
        assert offsets.size == (8 * len(ends), ends[-1] if ends else 0)
        assert part.column(split, "x").size == (4 * len(numbers), 0)
        assert records[split] == len(numbers)
        assert part.groups(split) == f"groups of {split}"


def test_every_piece_lies_where_it_says(tmp_path):
    folder = open_store(str(tmp_path))
    facts, _ = put_down(folder, [(0, [1, 2, 3]), (1, [4]), (0, [5])])
    data, part = folder.read(facts.file), open_part(folder, facts)
    for split in SPLITS:
        for start, view in part.column(split, "x").read():
            assert data[start : start + len(view)] == view


def test_a_changed_byte_is_named_whether_it_is_of_a_piece_or_of_the_index(tmp_path):
    folder = open_store(str(tmp_path))
    facts, _ = put_down(folder, [(0, [1, 2, 3]), (1, [4])])
    whole, path = folder.read(facts.file), Path(folder.local_path(facts.file))
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(IntegrityError) as caught:
            read_all(folder, facts)
        assert facts.file in caught.value.where
        assert "its task is done again" in caught.value.next_step
    for wrong in (whole[:-1], whole + b"\0"):
        path.write_bytes(wrong)
        with pytest.raises(IntegrityError, match=f"{len(whole):,} bytes were written, there are {len(wrong):,}"):
            open_part(folder, facts)


def read_all(folder: Store, facts: FileFacts) -> None:
    part = open_part(folder, facts)
    for split in SPLITS:
        for name in ("x", "text/bytes", "text/offsets"):
            list(part.column(split, name).read())


def test_a_task_that_raises_leaves_no_part(tmp_path):
    folder = open_store(str(tmp_path))
    with pytest.raises(ZeroDivisionError), ExitStack() as stack:
        PartWriter(folder, "part", SCHEMA, SPLITS, stack).write("train", batch_of([1 // 0]))
    assert folder.list() == []


def test_bytes_of_any_array_are_its_items_in_order():
    array = np.arange(12, dtype="<i4").reshape(3, 4)
    assert bytes(bytes_of(array.T)) == array.T.tobytes()
    assert bytes(bytes_of(array[:0])) == b""
