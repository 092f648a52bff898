"""Placed: whatever parts there are, and whoever writes first, the file is what np.concatenate would make of them."""

from __future__ import annotations

import base64
import itertools
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import IntegrityError
from penstock.base.stores import open_store
from penstock.base.stores.store import STATE, Store
from penstock.prepare.rows.container import bytes_of
from penstock.prepare.rows.part import PartFile, PartWriter, open_part
from penstock.shards.columns import BLOCK, open_columns
from penstock.shards.manifest import ShardFacts
from penstock.shards.placed import (
    OFFSETS,
    PLACING,
    Edge,
    Edges,
    PlacedColumn,
    Placer,
    file_of,
    finish_column,
    finish_split,
    lay_out,
    lay_out_fixed,
    make_room,
    read_placed,
)
from penstock.shards.record import Encoder
from penstock.shards.schema import schema_from_arrow
from tests.shards.making import bits, make_array

NUMBERS = ["|b1", "|i1", "|u1", "<i2", "<u4", "<i8", "<f2", "<f4", "<f8"]
SHAPES = [(), (1,), (3,), (893,), (8, 8), (2, 3, 5)]
METADATA = {"format": "penstock", "format_version": "1", "records": "0", "schema": "[]"}


@pytest.fixture
def folder(tmp_path):
    return open_store(str(tmp_path))


def checked(folder: Store, column: PlacedColumn, shard: ShardFacts) -> np.ndarray[Any, Any]:
    """The array as numpy loads it; every block's checksum is the one of its bytes, and the manifest's facts hold."""
    array = np.load(folder.local_path(column.file))
    data = bytes(bytes_of(array))
    opened = open_columns(folder, shard.files)[column.column]
    assert list(opened.damaged(0, len(opened))) == []
    packed = json.loads(folder.read(shard.files[-1].file))["checksums"]
    if len(shard.files) == 2:  # one column, and the checksums
        hashes = np.frombuffer(base64.b64decode(packed), "<u8").tolist()
        assert hashes == [xxhash.xxh3_64_intdigest(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)]
    return array


def finish(folder: Store, columns: tuple[PlacedColumn, ...], edges: Edges) -> ShardFacts:
    finished = {column: finish_column(folder, column, edges.get(column.file, [])) for column in columns}
    return finish_split(folder, "train", 0, finished, METADATA)


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
    folder = open_store(str(tmp_path_factory.mktemp("placed")))
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
    edges: list[Edge] = []
    for number in [*numbers, numbers[0]]:  # a task may be done again
        placer = Placer(folder, column, column.starts[number])
        view = bytes_of(parts[number])
        step = max(width, piece_bytes // width * width)
        for start in range(0, len(view), step):
            placer.write(view[start : start + step])
        assert placer.items == column.starts[number + 1]
        edges += placer.finish()
    array = checked(folder, column, finish(folder, (column,), {column.file: edges}))
    expected = np.concatenate(parts)
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    assert array.tobytes() == expected.tobytes()


@given(
    counts=st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=5),
    words=st.sampled_from([pa.string(), pa.binary()]),
)
def test_texts_and_shapes_of_all_parts_come_out_as_they_were(tmp_path_factory, counts, words):
    folder = open_store(str(tmp_path_factory.mktemp("placed")))
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
    columns = lay_out("train", facts, [[file.column("train", name).size for name, _, _ in facts] for file in files])
    edges: Edges = {}
    for number, file in reversed(list(enumerate(files))):
        for column in columns:
            edges.setdefault(column.file, []).extend(place(folder, file, column, number))
    shard = finish(folder, columns, edges)
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


def write_part(folder: Store, number: int, schema: Any, batches: list[pa.RecordBatch]) -> PartFile:
    with ExitStack() as stack:
        writer = PartWriter(folder, f"part-{number}", schema, ("train", "test"), stack)
        for batch in batches:
            writer.write("train", batch)
        facts = writer.finish({})
    return open_part(folder, facts)


def place(folder: Store, file: PartFile, column: PlacedColumn, number: int) -> list[Edge]:
    """As placing.py does: offsets raised by what is before them, all else copied from file to file."""
    placer = Placer(folder, column, column.starts[number])
    with folder.open(file.name) as source:
        for start, view in file.column("train", column.column).read():
            if column.column.endswith(OFFSETS):
                placer.write(bytes_of(np.frombuffer(view, "<i8") + column.bases[number]))
            else:
                placer.copy(source, start, view)
    assert placer.items == column.starts[number + 1]
    return placer.finish()


def test_a_split_without_a_record_has_its_files_all_the_same(folder):
    schema = schema_from_arrow(pa.schema({"text": pa.string(), "x": pa.float32()}), "a test")
    empty = write_part(folder, 0, schema, [])
    facts = [("text/offsets", "i8", ()), ("text/bytes", "u1", ()), ("x", "f4", ())]
    sizes = [empty.column("test", name).size for name, _, _ in facts]
    columns = lay_out("test", facts, [sizes, sizes])
    shard = finish(folder, columns, {})
    arrays = [np.load(folder.local_path(column.file)) for column in columns]
    assert [each.tolist() for each in arrays] == [[0], [], []]
    assert [each.dtype.str for each in arrays] == ["<i8", "|u1", "<f4"]
    assert all(checked(folder, column, shard) is not None for column in columns)


def test_the_file_grows_out_of_sight_and_appears_whole(folder):
    (column,) = lay_out_fixed("train", [("features", "f4", (2,))], [1, 1])
    placer = Placer(folder, column, 1)
    placer.write(bytes_of(np.ones((1, 2), "f4")))
    edges = placer.finish()
    assert column.file == "X_train.npy"
    assert not folder.exists(column.file)
    assert folder.size(f"{PLACING}/X_train.npy") == column.placing.bytes
    finish(folder, (column,), {column.file: edges})
    assert np.load(folder.local_path("X_train.npy")).tolist() == [[0, 0], [1, 1]]
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


# What happens to the bytes between their placing and the end of the job.

A_BLOCK = BLOCK // 1024  # rows of 1,024 bytes


@pytest.fixture
def three_parts(folder) -> tuple[PlacedColumn, list[Edge]]:
    """Rows of three tasks: whole blocks of their own, and blocks that two of them share."""
    counts = [A_BLOCK + 5, 3, 2 * A_BLOCK]
    (column,) = lay_out_fixed("train", [("a", "u1", (1024,))], counts)
    edges: list[Edge] = []
    for number, count in enumerate(counts):
        placer = Placer(folder, column, column.starts[number])
        placer.write(bytes_of(np.full((count, 1024), number + 1, "u1")))
        edges += placer.finish()
    return column, edges


def test_each_part_notes_its_pieces_of_the_blocks_it_shares(three_parts):
    column, edges = three_parts
    of_data = [(start, size) for start, size, _ in edges if start < column.data_bytes]
    assert [(start // 1024, size // 1024) for start, size in of_data] == [
        (A_BLOCK, 5),
        (A_BLOCK + 5, 3),
        (A_BLOCK + 8, A_BLOCK - 8),
    ]
    assert sum(size for _, size in of_data) == BLOCK * len(column.shared_blocks)


@pytest.mark.parametrize("damage", [lambda kept: bytes(len(kept)), lambda kept: kept[:1] + b"?" + kept[2:]])
def test_checksums_that_are_not_the_ones_that_were_written_are_named(folder, three_parts, damage):
    """The file is made anew where it was lost, and holds zeros then."""
    column, edges = three_parts
    path = Path(folder.local_path(f"{PLACING}/{column.file}.hashes"))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(IntegrityError, match=r"checksums of a_train.npy differ from the bytes that were placed"):
        finish_column(folder, column, edges)


def test_the_zero_that_offsets_begin_with_is_held_against_what_it_must_be(folder):
    (column,) = lay_out("train", [("a/offsets", "i8", ())], [[(16, 9)]])
    placer = Placer(folder, column, column.starts[0])
    placer.write(bytes_of(np.array([4, 9])))
    edges = placer.finish()
    assert len(finish_column(folder, column, edges)) == 1
    flip(folder, column, 3)
    with pytest.raises(IntegrityError, match=r"bytes 0 to 8 of a_train.offsets.npy"):
        finish_column(folder, column, edges)


@pytest.mark.parametrize("row", [A_BLOCK, A_BLOCK + 6, 2 * A_BLOCK - 1])
def test_a_byte_that_changed_in_a_shared_block_is_named(folder, three_parts, row):
    column, edges = three_parts
    flip(folder, column, row * 1024 + 7)
    with pytest.raises(
        IntegrityError, match=r"bytes .* of a_train.npy differ from the bytes that were placed"
    ) as caught:
        finish_column(folder, column, edges)
    assert column.placing.file in caught.value.where


@pytest.mark.parametrize("row", [0, A_BLOCK - 1, 2 * A_BLOCK, 3 * A_BLOCK])
def test_a_byte_that_changed_in_any_other_block_is_named_when_it_is_copied(folder, three_parts, row):
    column, edges = three_parts
    flip(folder, column, row * 1024 + 7)
    hashes = finish_column(folder, column, edges)
    with pytest.raises(IntegrityError, match="differ from the bytes that were placed"):
        list(read_placed(folder, column, hashes))


def test_what_nobody_changed_is_read_as_it_was_placed(folder, three_parts):
    column, edges = three_parts
    data = np.concatenate(list(read_placed(folder, column, finish_column(folder, column, edges))))
    assert data.reshape(-1, 1024)[:, 0].tolist() == [1] * (A_BLOCK + 5) + [2] * 3 + [3] * 2 * A_BLOCK


def flip(folder: Store, column: PlacedColumn, position: int) -> None:
    path = Path(folder.local_path(column.placing.file))
    data = bytearray(path.read_bytes())
    data[len(column.head) + position] ^= 1
    path.write_bytes(data)


def test_every_file_has_its_full_size_before_a_row_is_placed_and_keeps_what_it_has(folder, three_parts):
    column, _ = three_parts
    (other,) = lay_out_fixed("test", [("a", "u1", (1024,))], [7])
    before = folder.read(column.placing.file)
    make_room(folder, {"train": (column,), "test": (other,)})
    assert folder.read(column.placing.file) == before
    assert folder.size(other.placing.file) == other.placing.bytes
