"""Arrow files, and what save_to_disk leaves: every row arrives once, whatever the batches; damage is told."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import InputError
from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.rows.layouts import plain_schema
from penstock.prepare.sources import Reading, UnreadablePart, read_segment
from penstock.prepare.sources.slices import cut_slices
from tests.prepare.sources.reader import read, survey


def table_of(count: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + count)
    kinds = pa.array([f"k{i % 3}" for i in numbers]).dictionary_encode()
    return pa.table({"n": pa.array(numbers, pa.int32()), "text": [f"document {i} é" for i in numbers], "kind": kinds})


def write(path: Path, table: pa.Table, batch_rows: int = 100, footer: bool = False, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = pa.ipc.new_file if footer else pa.ipc.new_stream
    with new(str(path), table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return path


def reading_of(path: Path) -> Reading:
    schema = plain_schema(survey(path).schema)
    return Reading(schema, tuple(schema.names), True, 1000, 1 << 20, ("arrow",), (SourceConfig(path=(str(path),)),))


@pytest.mark.parametrize("footer", [False, True])
@pytest.mark.parametrize("columns", [["n", "text"], ["n", "text", "kind"]])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_rows_and_positions_do_not_depend_on_slices_or_batches(tmp_path, footer, columns, compression):
    table = table_of(1050).select(columns)
    path = write(tmp_path / "a.arrow", table, footer=footer, compression=compression)
    pieces = survey(path).pieces
    assert [piece.rows for piece in pieces] == [100] * 10 + [50]
    assert len(cut_slices(pieces, 3 * pieces[0].bytes)) > 3
    for rows_at_once in (7, 1000):
        answer = read(path, rows_at_once=rows_at_once)  # a segment at a time
        assert answer.rows == table.to_pylist()
        assert answer.ordinals == list(range(1050))
    assert read(path, columns=["text"]).rows == table.select(["text"]).to_pylist()


def test_text_in_it_that_is_no_text_stands_aside(tmp_path):
    bad = pa.array([b"ok", b"\xff", b"caf\xc3\xa9"]).view(pa.string())
    path = write(tmp_path / "a.arrow", pa.table({"text": bad}))
    answer = read(path, rows_at_once=2)
    assert [row["text"] for row in answer.rows] == ["ok", "café"]
    assert (answer.ordinals, answer.aside[0]["position"]) == ([0, 2], 1)
    assert [row["text"] for row in read(path, bad_utf8="repair").rows] == ["ok", "\ufffd", "café"]


def test_a_file_that_ends_too_early_is_refused_by_name(tmp_path):
    path = write(tmp_path / "a.arrow", table_of(1000))
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    with pytest.raises(InputError, match="not a readable Arrow file") as caught:
        survey(path)
    assert "a.arrow, record batch 6" in caught.value.where
    (tmp_path / "b.arrow").write_bytes(b"")
    with pytest.raises(InputError, match="not a readable Arrow file"):
        survey(tmp_path / "b.arrow")


def test_a_batch_whose_values_lie_outside_of_it_is_unreadable_and_no_crash(tmp_path):
    path = write(tmp_path / "a.arrow", table_of(300).select(["text"]))
    data = bytearray(path.read_bytes())
    offsets = memoryview(data.__class__(b"".join(i.to_bytes(4, "little") for i in (0, 13, 26))))
    place = data.index(bytes(offsets))  # of the first batch's text
    data[place + 4 : place + 8] = (1 << 30).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UnreadablePart) as caught:
        read(path)
    assert (caught.value.rows, caught.value.ordinal, caught.value.title) == (100, 0, "unreadable record batch")


# What `datasets` leaves, as its version 5.2.0 writes it; tests/adapters holds these against the library itself.


def save(place: Path, table: pa.Table, shards: int = 1, split: str | None = None, **state) -> None:
    size = -(-len(table) // shards)
    names = [f"data-{number:05d}-of-{shards:05d}.arrow" for number in range(shards)]
    for number, name in enumerate(names):
        write(place / name, table.slice(number * size, size))
    facts = {"_data_files": [{"filename": name} for name in names], "_split": split, "_format_columns": None, **state}
    (place / "state.json").write_text(json.dumps(facts))
    (place / "dataset_info.json").write_text("{}")


def run(folder: Path, **source) -> list[int]:
    job = {"input": source, "output": str(folder / "out"), "stages": [{"select": ["n"]}], "workers": 0, "memory": "1GB"}
    penstock.run(job)
    dataset = penstock.open(folder / "out")
    return [dataset[i]["n"] for i in range(len(dataset))]


def test_a_saved_dataset_is_the_rows_of_its_files(tmp_path):
    save(tmp_path / "saved", table_of(1000), shards=3)
    write(tmp_path / "saved" / "cache-0123.arrow", table_of(5))  # what map leaves beside is no part of it
    assert run(tmp_path, path=str(tmp_path / "saved")) == list(range(1000))


def test_a_split_of_a_saved_dataset_is_chosen_by_name(tmp_path):
    saved = tmp_path / "saved"
    save(saved / "train", table_of(20), split="train")
    save(saved / "test", table_of(5, first=100), split="test")
    (saved / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert run(tmp_path, path=str(saved), split="test") == list(range(100, 105))
    with pytest.raises(InputError, match=r"no split 'tran'. Did you mean 'train'") as caught:
        run(tmp_path, path=str(saved), split="tran")
    assert "train, test" in caught.value.next_step
    assert run(tmp_path / "some", path=str(saved), split="train[10%:20%]") == [2, 3]
    with pytest.raises(InputError, match=r"no split 'tran'"):
        run(tmp_path, path=str(saved), split="tran[:10%]")
    with pytest.raises(InputError, match="2 splits: train, test"):
        run(tmp_path, path=str(saved))
    with pytest.raises(InputError, match="no split 'train'"):
        run(tmp_path, path=str(saved / "test"), split="train")


@pytest.mark.parametrize(
    ("saved", "split"),
    [
        (None, None),
        (None, "train"),
        ("dev", None),
        ("dev", "dev"),
        ("train[:10%]", "train"),
        ("train[:10%]", "train[:10%]"),
        ("a+b", "a+b"),
    ],
)
def test_a_dataset_that_was_saved_alone_is_read_whole_under_its_own_name_or_none(tmp_path, saved, split):
    """`train` is what a dataset without a name is called, and what some of `train` was saved from."""
    save(tmp_path / "saved", table_of(20), split=saved)
    assert run(tmp_path, path=str(tmp_path / "saved"), split=split) == list(range(20))


@pytest.mark.parametrize(
    ("saved", "split", "told"),
    [
        (None, "dev", r"no split 'dev'. One dataset was saved here, without the name of a split"),
        ("dev", "train", r"no split 'train'. One dataset was saved here, of split 'dev'"),
        ("train[:10%]+test[:10%]", "train", r"of split 'train\[:10%\]\+test"),
        ("dev", "train[:10%]", r"no split 'train'. One dataset was saved here, of split 'dev'"),
    ],
)
def test_another_split_than_the_one_that_was_saved_is_refused(tmp_path, saved, split, told):
    save(tmp_path / "saved", table_of(20), split=saved)
    with pytest.raises(InputError, match=told) as caught:
        run(tmp_path, path=str(tmp_path / "saved"), split=split)
    assert "leave `split:` out" in caught.value.next_step


@pytest.mark.parametrize("saved", [None, "train"])
def test_some_rows_of_a_dataset_that_was_saved_alone_are_read_by_their_range(tmp_path, saved):
    save(tmp_path / "saved", table_of(1000), split=saved, shards=3)
    assert run(tmp_path, path=str(tmp_path / "saved"), split="train[330:340]") == list(range(330, 340))


def test_a_saved_dataset_that_cannot_be_read_as_it_lies_says_why(tmp_path):
    save(tmp_path / "old", table_of(5), _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(InputError, match="list of indices"):
        run(tmp_path, path=str(tmp_path / "old"))
    save(tmp_path / "empty", table_of(5), _data_files=[])
    with pytest.raises(InputError, match="has no rows"):
        run(tmp_path, path=str(tmp_path / "empty"))
    (tmp_path / "old" / "state.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        run(tmp_path, path=str(tmp_path / "old"))


LONG = "x" * 1_000_000


def dictionary(rows: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int8()), pa.array([LONG]))


def runs(rows: int) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([LONG]))


@pytest.mark.parametrize("make", [dictionary, runs])
@pytest.mark.parametrize("footer", [False, True])
def test_a_long_value_that_the_file_holds_once_makes_small_batches(tmp_path, make, footer):
    """Decoded at once, it would be 2 GB: to look at it is no reason either."""
    path = write(tmp_path / "a.arrow", pa.table({"value": make(2_000)}), batch_rows=2_000, footer=footer)
    (segment,) = survey(path).pieces
    before = pa.default_memory_pool().max_memory()
    rows = 0
    for each in read_segment(segment, reading_of(path), frozenset()):
        assert len(each) <= 16
        rows += len(each)
    assert rows == 2_000
    assert pa.default_memory_pool().max_memory() - before < 100_000_000


@pytest.mark.parametrize("code", [3, -1])
def test_a_code_that_stands_for_nothing_makes_the_batch_unreadable(tmp_path, code):
    codes = pa.array([0, code], pa.int8())
    values = pa.DictionaryArray.from_arrays(codes, pa.array(["a"]), safe=False)
    path = write(tmp_path / "a.arrow", pa.table({"value": values}))
    (segment,) = survey(path).pieces
    with pytest.raises(UnreadablePart, match="bounds"):
        list(read_segment(segment, reading_of(path), frozenset()))


@pytest.mark.parametrize("footer", [False, True])
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_what_compressed_batches_decode_to_is_not_known(tmp_path, footer, compression):
    """A job with such a file is no small one: later batches may be of any size, and nobody watches the driver."""
    path = write(tmp_path / "a.arrow", table_of(1000), footer=footer, compression=compression)
    assert bool(survey(path).decoded_bytes) == bool(compression)
