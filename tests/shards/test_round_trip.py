"""What goes into a shard comes out: every type, every bit, whatever batches it came in."""

from __future__ import annotations

import filecmp
import itertools
import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.base.errors import InputError
from penstock.shards.record import decode_batches
from penstock.shards.schema import schema_from_arrow, schema_to_arrow
from tests.shards.making import TYPES, bits, make_batch, write_dataset

CONTAINERS = ["safetensors", "npy"]


def cut(batch: pa.RecordBatch, places: list[int]) -> list[pa.RecordBatch]:
    """Pieces of the batch, each a view with an offset into the same buffers; some of them empty."""
    edges = [0, *sorted(place % (batch.num_rows + 1) for place in places), batch.num_rows]
    return [batch.slice(low, high - low) for low, high in itertools.pairwise(edges)]


def file_names(path) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(folder, name), path) for folder, _, names in os.walk(path) for name in names
    )


def some_types(container: str, part: int) -> list[pa.DataType]:
    """All of them; for npy, which makes and syncs a file a column, an eighth at a time."""
    return TYPES if container == "safetensors" else TYPES[part::8]


@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=16)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 40),
    skipped=st.integers(0, 9),
    nulls=st.sampled_from([0, 0.02, 0.3, 1]),
    places=st.lists(st.integers(0, 1000), max_size=6),
    part=st.integers(0, 7),
)
def test_every_type_comes_back_bit_for_bit(tmp_path_factory, container, seed, rows, skipped, nulls, places, part):
    path = tmp_path_factory.mktemp("round")
    batch = make_batch(rows + skipped, seed, nulls, some_types(container, part)).slice(skipped)
    write_dataset(path, {"train": [cut(batch, places)]}, container)
    dataset = penstock.open(path)
    table = dataset[:]
    table.validate(full=True)
    assert table.schema == batch.schema
    for name in batch.schema.names:
        assert bits(table[name].combine_chunks()) == bits(batch[name]), name
    assert penstock.verify(path).ok


@pytest.mark.parametrize("container", CONTAINERS)
@settings(max_examples=12)
@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 30),
    nulls=st.sampled_from([0, 0.1, 1]),
    places=st.lists(st.integers(0, 1000), max_size=6),
    part=st.integers(0, 7),
)
def test_the_bytes_do_not_depend_on_the_batches(tmp_path_factory, container, seed, rows, nulls, places, part):
    batch = make_batch(rows, seed, nulls, some_types(container, part))
    one, other = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other")
    write_dataset(one, {"train": [[batch]]}, container)
    write_dataset(other, {"train": [cut(batch, places)]}, container)
    assert file_names(one) == file_names(other)
    assert filecmp.cmpfiles(one, other, file_names(one), shallow=False)[1:] == ([], [])


@pytest.mark.parametrize("container", CONTAINERS)
def test_bytes_hidden_under_a_null_do_not_reach_the_disk(tmp_path, container):
    for name, hidden in (("one", 7), ("other", 9)):
        values = np.full(4, hidden, "i8")
        valid = pa.array([True, False, True, False]).buffers()[1]
        text = pa.Array.from_buffers(
            pa.string(),
            2,
            [
                pa.array([False, True]).buffers()[1],
                pa.array([0, 1, 2], pa.int32()).buffers()[1],
                pa.py_buffer(bytes([64 + hidden, 65])),
            ],
        )
        values[[0, 2]] = 1
        batch = pa.RecordBatch.from_arrays(
            [pa.Array.from_buffers(pa.int64(), 4, [valid, pa.py_buffer(values)]).slice(0, 2), text], names=["a", "b"]
        )
        write_dataset(tmp_path / name, {"train": [[batch]]}, container)
    names = file_names(tmp_path / "one")
    assert filecmp.cmpfiles(tmp_path / "one", tmp_path / "other", names, shallow=False)[1:] == ([], [])


def test_a_null_that_is_a_value_of_a_dictionary_is_a_null(tmp_path):
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1, 0], pa.int8()), pa.array(["x", None]))
    batch = pa.RecordBatch.from_arrays([array], names=["a"])
    write_dataset(tmp_path, {"train": [[batch.slice(0, 2), batch.slice(2)]]})
    dataset = penstock.open(tmp_path)
    assert dataset[:]["a"].to_pylist() == ["x", None, None, None, "x"]
    assert dataset[:]["a"].null_count == 3
    assert [row["a"] for row in dataset] == ["x", None, None, None, "x"]


def test_dictionaries_that_differ_from_batch_to_batch_become_one(tmp_path):
    batches = [
        pa.RecordBatch.from_arrays([pa.array(values).dictionary_encode()], names=["a"])
        for values in (["b", "a", "b"], ["c", "a"], ["a", None, "b"])
    ]
    write_dataset(tmp_path, {"train": [batches]})
    table = penstock.open(tmp_path)[:]
    assert table["a"].to_pylist() == ["b", "a", "b", "c", "a", "a", None, "b"]
    assert table["a"].chunk(0).dictionary.to_pylist() == ["b", "a", "c"]


def test_nulls_inside_fixed_lists_are_refused(tmp_path):
    batch = pa.RecordBatch.from_arrays([pa.array([[1, None]], pa.list_(pa.int64(), 2))], names=["a"])
    with pytest.raises(InputError, match="1 nulls inside its lists"):
        write_dataset(tmp_path, {"train": [[batch]]})


def test_text_that_32_bit_offsets_cannot_count_comes_in_several_batches(tmp_path):
    words = ["x" * (i % 7) for i in range(50)]
    batch = pa.RecordBatch.from_pydict({"a": words, "b": [[1] * (i % 5) for i in range(50)], "c": range(50)})
    write_dataset(tmp_path, {"train": [[batch]]})
    dataset = penstock.open(tmp_path)
    batches = list(decode_batches(dataset.schema, dataset.columns(0), 3, 47, most=20))
    assert pa.Table.from_batches(batches).to_pylist() == batch.slice(3, 44).to_pylist()
    assert max(sum(map(len, each["a"].to_pylist())) for each in batches) <= 20
    assert len(list(decode_batches(dataset.schema, dataset.columns(0), 3, 47))) == 1
    assert len(list(decode_batches(dataset.schema, dataset.columns(0), 0, 50, most=0))) == 50


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_has_one_word_and_the_word_one_type(kind):
    schema = pa.schema([("a", kind)])
    assert schema_to_arrow(schema_from_arrow(schema, "here")) == schema


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("x", pa.int64())]),
        pa.list_(pa.list_(pa.int64())),
        pa.list_(pa.struct([("x", pa.int64())])),
        pa.list_(pa.map_(pa.string(), pa.int64())),
        pa.list_(pa.dictionary(pa.int32(), pa.int64())),
        pa.list_(pa.null()),
        pa.list_(pa.string(), 2),
        pa.list_(pa.list_(pa.string(), 2), 2),
        pa.list_(pa.list_(pa.int64()), 2),
        pa.list_(pa.list_(pa.int64(), 0), 2),
        pa.map_(pa.string(), pa.int64()),
        pa.dictionary(pa.int32(), pa.int64()),
        pa.decimal256(50, 2),
        pa.list_(pa.int64(), 0),
        pa.binary(0),
        pa.month_day_nano_interval(),
        pa.string_view(),
    ],
    ids=str,
)
def test_a_type_without_columns_is_refused_by_the_name_of_its_field(kind):
    with pytest.raises(InputError) as caught:
        schema_from_arrow(pa.schema([("good", pa.int64()), ("odd one", kind)]), "data/*.parquet")
    assert "'odd one'" in caught.value.what
    assert caught.value.where == "data/*.parquet"


def test_a_column_without_a_type_says_how_to_declare_one():
    with pytest.raises(InputError, match="no values, so its type is unknown") as caught:
        schema_from_arrow(pa.schema([("a", pa.null())]), "here")
    assert "types: {a: string}" in caught.value.next_step


@pytest.mark.parametrize("name", ["", "a/b", "/checksums", "__metadata__"])
def test_a_name_that_columns_cannot_have_is_refused(name):
    with pytest.raises(InputError, match="cannot be stored"):
        schema_from_arrow(pa.schema([(name, pa.int64())]), "here")


def test_a_name_that_is_there_twice_is_refused():
    with pytest.raises(InputError, match="'a' occurs twice"):
        schema_from_arrow(pa.schema([("a", pa.int64()), ("b", pa.int64()), ("a", pa.string())]), "here")
