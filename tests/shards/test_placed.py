"""Placed: whatever parts there are, and whoever writes first, the file is what np.concatenate would make of them."""

from __future__ import annotations

import itertools
import json
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.files import STATE, Folder
from penstock.shards.columns import BLOCK, open_columns
from penstock.shards.manifest import ShardFacts
from penstock.shards.part import PartFile, PartWriter, bytes_of, open_part
from penstock.shards.placed import OFFSETS, PLACING, PlacedColumn, Placer, file_of, finish_split, lay_out, lay_out_fixed
from penstock.shards.record import Encoder
from penstock.shards.schema import schema_from_arrow
from tests.shards.making import bits, make_array

NUMBERS = ["|b1", "|i1", "|u1", "<i2", "<u4", "<i8", "<f2", "<f4", "<f8"]
SHAPES = [(), (1,), (3,), (893,), (8, 8), (2, 3, 5)]
METADATA = {"format": "penstock", "format_version": "1", "records": "0", "schema": "[]"}


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path))


def checked(folder: Folder, column: PlacedColumn, shard: ShardFacts) -> np.ndarray[Any, Any]:
    """The array as numpy loads it; every block's checksum is the one of its bytes, and the manifest's facts hold."""
    array = np.load(folder.path(column.file))
    data = bytes(bytes_of(array))
    opened = open_columns(folder, shard.files)[column.column]
    assert list(opened.damaged(0, len(opened))) == []
    hashes = json.loads(folder.read(shard.files[-1].file))["checksums"]
    if len(shard.files) == 2:  # one column, and the checksums
        assert hashes == [xxhash.xxh3_64_intdigest(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)]
    return array


def finish(folder: Folder, columns: tuple[PlacedColumn, ...]) -> ShardFacts:
    return finish_split(folder, "train", 0, columns, METADATA)


@given(
    counts=st.lists(st.integers(0, 3) | st.integers(0, 40_000), min_size=1, max_size=7),
    dtype=st.sampled_from(NUMBERS),
    shape=st.sampled_from(SHAPES),
    piece_bytes=st.sampled_from([1, BLOCK - 1, BLOCK, 3 * BLOCK]),
    order=st.randoms(use_true_random=False),
)
def test_parts_of_any_size_in_any_order_make_the_concatenated_array(
    tmp_path_factory, counts, dtype, shape, piece_bytes, order
):
    folder = Folder(str(tmp_path_factory.mktemp("placed")))
    rng = np.random.default_rng(len(counts))
    width = np.dtype(dtype).itemsize * int(np.prod(shape))
    parts = [
        rng.integers(0, 2 if dtype == "|b1" else 256, min(count, 300_000 // width) * width, "u1")
        .view(dtype)
        .reshape(-1, *shape)
        for count in counts
    ]
    (column,) = lay_out_fixed("train", [("a", dtype.lstrip("<|"), shape)], [len(part) for part in parts])
    numbers = list(range(len(parts)))
    order.shuffle(numbers)
    for number in [*numbers, numbers[0]]:  # a task may be done again
        placer = Placer(folder, column, column.starts[number])
        view = bytes_of(parts[number])
        step = max(width, piece_bytes // width * width)
        for start in range(0, len(view), step):
            placer.write(view[start : start + step])
        assert placer.items == column.starts[number + 1]
        placer.finish()
    array = checked(folder, column, finish(folder, (column,)))
    expected = np.concatenate(parts)
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    assert array.tobytes() == expected.tobytes()


@given(
    counts=st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=5),
    words=st.sampled_from([pa.string(), pa.binary()]),
)
def test_texts_and_shapes_of_all_parts_come_out_as_they_were(tmp_path_factory, counts, words):
    folder = Folder(str(tmp_path_factory.mktemp("placed")))
    rng = np.random.default_rng(len(counts))
    kinds = {"text": words, "board": pa.list_(pa.list_(pa.int8(), 8), 8), "flag": pa.bool_(), "value": pa.float32()}
    arrow = pa.schema(list(kinds.items()))
    batches = [
        [pa.record_batch([make_array(kind, count, rng, 0) for kind in kinds.values()], schema=arrow) for count in part]
        for part in counts
    ]
    schema = schema_from_arrow(arrow, "a test")
    files = [write_part(folder, number, schema, batches[number]) for number in range(len(counts))]
    facts = [
        (name, piece.dtype.str.lstrip("<|"), piece.shape[1:])
        for field in schema
        for name, piece in Encoder(field).start()
    ]
    columns = lay_out("train", facts, files)
    for number, file in reversed(list(enumerate(files))):
        for column in columns:
            place(folder, file, column, number)
    shard = finish(folder, columns)
    opened = open_columns(folder, shard.files)
    every = [batch for part in batches for batch in part]
    whole = pa.Table.from_batches(every, schema=arrow)
    for column in columns:
        checked(folder, column, shard)
    assert np.array_equal(opened["board"].array, values_of(whole, "board").reshape(-1, 8, 8))
    assert bits(pa.array(opened["value"].array)) == bits(whole["value"].combine_chunks())
    offsets, data = opened[f"text{OFFSETS}"].array, opened["text/bytes"].array.tobytes()
    texts = [data[start:stop] for start, stop in itertools.pairwise(offsets)]
    assert texts == [each.as_buffer().to_pybytes() for each in whole["text"]]


def values_of(table: pa.Table, name: str) -> np.ndarray[Any, Any]:
    return np.array([each for row in table[name].to_pylist() for line in row for each in line], "i1")


def write_part(folder: Folder, number: int, schema: Any, batches: list[pa.RecordBatch]) -> PartFile:
    with ExitStack() as stack:
        writer = PartWriter(folder, f"part-{number}", schema, ("train", "test"), stack)
        for batch in batches:
            writer.write("train", batch)
        facts = writer.finish({})
    return open_part(folder, facts)


def place(folder: Folder, file: PartFile, column: PlacedColumn, number: int) -> None:
    """As placing.py does: offsets raised by what is before them, all else copied from file to file."""
    placer = Placer(folder, column, column.starts[number])
    with folder.open(file.file) as source:
        for start, view in file.column("train", column.column).read():
            if column.column.endswith(OFFSETS):
                placer.write(bytes_of(np.frombuffer(view, "<i8") + column.bases[number]))
            else:
                placer.copy(source, start, view)
    assert placer.items == column.starts[number + 1]
    placer.finish()


def test_a_split_without_a_record_has_its_files_all_the_same(folder):
    schema = schema_from_arrow(pa.schema({"text": pa.string(), "x": pa.float32()}), "a test")
    empty = write_part(folder, 0, schema, [])
    columns = lay_out("test", [("text/offsets", "i8", ()), ("text/bytes", "u1", ()), ("x", "f4", ())], [empty, empty])
    shard = finish(folder, columns)
    arrays = [np.load(folder.path(column.file)) for column in columns]
    assert [each.tolist() for each in arrays] == [[0], [], []]
    assert [each.dtype.str for each in arrays] == ["<i8", "|u1", "<f4"]
    assert all(checked(folder, column, shard) is not None for column in columns)


def test_the_file_grows_out_of_sight_and_appears_whole(folder):
    (column,) = lay_out_fixed("train", [("features", "f4", (2,))], [1, 1])
    placer = Placer(folder, column, 1)
    placer.write(bytes_of(np.ones((1, 2), "f4")))
    placer.finish()
    assert column.file == "X_train.npy"
    assert not folder.exists(column.file)
    assert folder.size(f"{PLACING}/X_train.npy") == column.placing.bytes
    finish(folder, (column,))
    assert np.load(folder.path("X_train.npy")).tolist() == [[0, 0], [1, 1]]
    assert [name for name in folder.list() if not name.startswith(STATE)] == ["X_train.npy", "train.checksums.json"]


@pytest.mark.parametrize(
    ("column", "file"),
    [
        ("features", "X_train.npy"),
        ("strategic_features", "X_train.npy"),
        ("labels_action_type", "labels_action_type_train.npy"),
        ("game_id/offsets", "game_id_train.offsets.npy"),
        ("a b", "a b_train.npy"),
        ("a.b", "a%2Eb_train.npy"),
        ("ä/bytes", "%C3%A4_train.bytes.npy"),
    ],
)
def test_a_column_s_file_is_called_as_its_readers_expect(column, file):
    assert file_of(column, "train") == file


def test_only_blocks_that_two_parts_share_are_read_again():
    a_block = BLOCK // 1024
    (column,) = lay_out_fixed("train", [("a", "u1", (1024,))], [a_block, a_block // 2, a_block + a_block // 2, 1, 0])
    assert column.shared_blocks == [1]
    (column,) = lay_out_fixed("train", [("a", "u1", (1024,))], [a_block, 2 * a_block + 5, 5, 0, a_block])
    assert column.shared_blocks == [3]
    (column,) = lay_out_fixed("train", [("a", "u1", (1024,))], [a_block, 2 * a_block, 0, 7])
    assert column.shared_blocks == []
