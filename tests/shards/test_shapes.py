"""A fixed list of fixed lists is one array a record: its shape is in the type word, and people write it short."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import InputError
from penstock.shards.schema import (
    NUMBERS,
    Type,
    declared_type,
    parse_type,
    short_type,
    type_from_arrow,
    type_from_short,
)
from tests.shards.making import bits, make_array, write_dataset

CONTAINERS = ["safetensors", "npy"]
BOARD = pa.list_(pa.list_(pa.int8(), 8), 8)
PLAIN_NUMBERS = sorted(set(NUMBERS) - {"time32", "time64", "timestamp", "duration"})
WORDS = [*PLAIN_NUMBERS, "timestamp[us]", "timestamp[ns, America/New_York]", "time32[ms]", "duration[s]"]
OTHER_WORDS = [
    "string",
    "large_binary",
    "decimal128(9, 2)",
    "fixed_size_binary[3]",
    "large_list<float32>",
    "list<string>",
]
SHAPES = st.lists(st.integers(1, 2**31 - 1), max_size=4).filter(lambda shape: math.prod(shape) < 2**31)


def nested(number: pa.DataType, shape: list[int]) -> pa.DataType:
    for size in reversed(shape):
        number = pa.list_(number, size)
    return number


def from_numpy(values: np.ndarray, nulls: list[bool] | None = None) -> pa.Array:
    """Arrow's fixed lists of an array's rows."""
    array = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    if nulls:
        return pa.FixedSizeListArray.from_arrays(array.values, type=array.type, mask=pa.array(nulls))
    return array


def one_column(array: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([array], names=["a"])


# Words.


@given(number=st.sampled_from(WORDS), shape=SHAPES)
def test_the_short_spelling_and_the_word_stand_for_each_other(number, shape):
    short = f"{number}[{', '.join(map(str, shape))}]" if shape else number
    word = type_from_short(short)
    assert short_type(word) == short
    assert type_from_short(word) == word
    assert word == type_from_arrow(nested(declared_type(number), shape))
    assert (parse_type(word).shape, parse_type(word).number) == (tuple(shape), parse_type(number))


@given(number=st.sampled_from(WORDS), shape=SHAPES)
def test_a_star_in_front_of_the_shape_stands_for_any_length(number, shape):
    short = f"{number}[{', '.join(['*', *map(str, shape)])}]"
    word = type_from_short(short)
    assert short_type(word) == short
    assert word == type_from_arrow(pa.list_(nested(declared_type(number), shape)))


@pytest.mark.parametrize("word", OTHER_WORDS)
def test_a_word_without_a_shape_is_its_own_short_spelling(word):
    assert type_from_short(word) == word == short_type(word)


def test_the_short_spelling_may_have_blanks_or_none():
    assert type_from_short("int8[8,8]") == type_from_short(" int8 [ 8 , 8 ] ") == type_from_arrow(BOARD)
    assert type_from_short("timestamp[us,UTC]") == "timestamp[us, UTC]"
    assert type_from_short("timestamp[us, tz=UTC]") == "timestamp[us, UTC]"  # as Arrow prints it


@pytest.mark.parametrize(
    ("short", "reason"),
    [
        ("float32[0]", "'float32\\[0\\]' has 0 values"),
        ("int8[8, 0]", "has 0 values"),
        ("int8[65536, 65536]", "has 4,294,967,296 values; a shape has 1 to 2,147,483,647"),
        ("int8[99999999999]", "has 99,999,999,999 values"),
        ("floot32", "is not a type such as int16, float32\\[893\\] or int8\\[8, 8\\]. Did you mean 'float32'"),
        ("floot32[3]", "is not a shape of a number such as float32\\[893\\]. Did you mean 'float32'"),
        ("timestamp", "Did you mean 'timestamp\\[us\\]'"),
        ("string[3]", "is a shape of string, and only numbers have one"),
        ("list<int8>[3]", "is a shape of list<int8>, and only numbers have one"),
        ("float32[-1]", "is not a type"),
        ("float32[]", "is not a type"),
        ("float32[4, *]", "is not a type"),
        ("float32[*, *]", "is not a type"),
        ("float32[*, 0]", "has 0 values"),
        ("string[*]", "is a shape of string, and only numbers have one"),
        ("float32[893", "is not a type"),
        ("int8[3][4]", "is not a shape"),
        ("", "is not a type"),
    ],
)
def test_nonsense_is_refused_with_what_would_be_right(short, reason):
    with pytest.raises(ValueError, match=reason):
        type_from_short(short)


def test_decimals_and_binaries_are_rows_of_bytes():
    for word, width in (("decimal128(9, 2)", 16), ("fixed_size_binary[3]", 3)):
        kind = parse_type(word)
        assert (kind.is_fixed, kind.shape, kind.number) == (True, (width,), Type("uint8"))
    assert not parse_type("string").is_fixed
    assert not parse_type("list<int8>").is_fixed


# Data.


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("dtype", ["i1", "f2", "f8", "?", "u8"])
def test_a_column_has_the_shape_and_the_bytes_of_the_array_it_came_from(tmp_path, container, dtype):
    values = np.random.default_rng(0).integers(0, 2, (50, 3, 4, 5)).astype(dtype)
    batch = one_column(from_numpy(values))
    write_dataset(tmp_path, {"train": [[batch.slice(0, 7), batch.slice(7)]]}, container)
    dataset = penstock.open(tmp_path)
    column = dataset.columns(0)["a"].array
    assert (column.shape, column.tobytes()) == (values.shape, values.tobytes())
    record = dataset[20]["a"]
    assert (record.dtype, record.shape, record.tobytes()) == (values.dtype, (3, 4, 5), values[20].tobytes())
    assert dataset[:]["a"].combine_chunks().equals(batch["a"])
    assert penstock.verify(tmp_path).ok


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("number", [pa.int8(), pa.float16(), pa.bool_(), pa.timestamp("us")], ids=str)
def test_filtered_sliced_and_taken_rows_come_back_with_their_nulls(tmp_path, container, number):
    whole = make_array(nested(number, [2, 3]), 90, np.random.default_rng(1), 0.3)
    parts = {
        "sliced": whole.slice(11, 40),
        "filtered": pc.filter(whole, pa.array(np.arange(90) % 3 == 1)),
        "taken": whole.take(pa.array([5, 5, 80, 2])).slice(1),
        "of_a_slice": pc.filter(whole.slice(13), pa.array(np.arange(77) % 2 == 0)).slice(4, 9),
    }
    for name, array in parts.items():
        write_dataset(tmp_path / name, {"train": [[one_column(array)]]}, container)
        dataset = penstock.open(tmp_path / name)
        found = dataset[:]["a"].combine_chunks()
        found.validate(full=True)
        assert bits(found) == bits(array)
        assert [row["a"] is None for row in dataset] == array.is_null().to_pylist()


def test_a_null_row_has_zeros_whatever_lay_under_it(tmp_path):
    for name, hidden in (("one", 7), ("other", 9)):
        values = np.ones((3, 2, 2), "i2")
        values[1] = hidden
        write_dataset(tmp_path / name, {"train": [[one_column(from_numpy(values, [False, True, False]))]]})
    one, other = (penstock.open(tmp_path / name).columns(0)["a"].array for name in ("one", "other"))
    assert one.tolist() == other.tolist() == [[[1, 1], [1, 1]], [[0, 0], [0, 0]], [[1, 1], [1, 1]]]


def test_nulls_of_rows_that_came_from_parquet_are_filled_too(tmp_path):
    """Parquet names what a list holds otherwise than Arrow does."""
    table = pa.table({"a": from_numpy(np.ones((4, 2, 2), "f4"), [False, True, False, True])})
    pq.write_table(table, tmp_path / "a.parquet")
    batches = pq.read_table(tmp_path / "a.parquet").to_batches()
    write_dataset(tmp_path / "out", {"train": [batches]})
    assert penstock.open(tmp_path / "out")[:]["a"].to_pylist() == table["a"].to_pylist()


@pytest.mark.parametrize("board", [[[1, None], [3, 4]], [[1, 2], None]])
def test_a_null_inside_a_row_is_refused_however_deep(tmp_path, board):
    array = pa.array([[[1, 2], [3, 4]], board], pa.list_(pa.list_(pa.int8(), 2), 2))
    with pytest.raises(InputError, match="1 nulls inside its lists"):
        write_dataset(tmp_path, {"train": [[one_column(array)]]})
    under_a_null = pa.FixedSizeListArray.from_arrays(array.values, type=array.type, mask=pa.array([False, True]))
    write_dataset(tmp_path, {"train": [[one_column(under_a_null)]]})
    assert penstock.open(tmp_path)[:]["a"].to_pylist() == [[[1, 2], [3, 4]], None]
