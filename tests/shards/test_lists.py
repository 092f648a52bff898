"""A list is offsets and the columns of what it holds; it comes back value for value, nulls and all."""

from __future__ import annotations

import datetime
import itertools
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.shards.columns import BLOCK
from penstock.shards.record import Encoder, decode_batches
from penstock.shards.schema import Field, declared_type, parse_type, schema_from_arrow
from tests.shards.making import bits, write_dataset

SHORT = datetime.timedelta(days=300)
VALUES = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uint8": st.integers(0, 255),
    "float16": st.floats(width=16),
    "float32": st.floats(width=32),
    "float64": st.floats(),
    "bool": st.booleans(),
    "timestamp[us]": st.datetimes(),
    "timestamp[us, UTC]": st.datetimes(timezones=st.just(datetime.UTC)),
    "timestamp[s, America/New_York]": st.integers(-(2**40), 2**40),
    "date32": st.dates(),
    "date64": st.dates(),
    "time32[ms]": st.integers(0, 86_399_999),
    "time64[ns]": st.integers(0, 86_399 * 10**9),
    "duration[us]": st.timedeltas(-SHORT, SHORT),
    "string": st.text(),
    "binary": st.binary(max_size=9),
    "large_string": st.text(max_size=9),
    "large_binary": st.binary(max_size=9),
    "dictionary<string>": st.text(max_size=2),
    "dictionary<binary>": st.binary(max_size=1),
    "dictionary<large_string>": st.sampled_from(["", "a", "naïve", "\U0001f600"]),
    "dictionary<large_binary>": st.binary(max_size=9),
    "decimal128(9, 2)": st.decimals(-(10**6), 10**6, places=2),
    "fixed_size_binary[3]": st.binary(min_size=3, max_size=3),
}
WORDS = [f"{outer}<{inner}>" for outer in ("list", "large_list") for inner in VALUES]
LISTS = st.sampled_from(WORDS).flatmap(
    lambda word: st.tuples(
        st.just(word),
        st.lists(st.none() | st.lists(st.none() | VALUES[word.partition("<")[2][:-1]], max_size=6), max_size=8),
    )
)


def one_column(values: list, word: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([make_lists(values, word)], names=["a"])


def make_lists(values: list, word: str) -> pa.Array:
    kind = declared_type(word)
    if not pa.types.is_dictionary(kind.value_type):
        return pa.array(values, kind)
    plain = pa.array(values, pa.large_list(kind.value_type.value_type))
    inner = plain.values.dictionary_encode().cast(kind.value_type)
    offsets = plain.offsets if pa.types.is_large_list(kind) else plain.offsets.cast(pa.int32())
    array_class = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    return array_class.from_arrays(offsets, inner, type=kind, mask=plain.is_null())


def numpy_bits(array: np.ndarray) -> list[int]:
    """As `bits` has them: floats and times as the numbers of their bits."""
    return array.view({"f": f"u{array.itemsize}", "m": "i8", "M": "i8"}.get(array.dtype.kind, array.dtype)).tolist()


def columns_of(path) -> dict[str, list]:
    return {name: column.array.tolist() for name, column in sorted(penstock.open(path).columns(0).items())}


@given(lists=LISTS, cuts=st.lists(st.integers(0, 8), max_size=3))
def test_lists_of_every_type_come_back_as_they_were(tmp_path_factory, lists, cuts):
    path, (word, values) = tmp_path_factory.mktemp("lists"), lists
    batch = one_column(values, word)
    edges = [0, *sorted(min(cut, len(values)) for cut in cuts), len(values)]
    pieces = [batch.slice(low, high - low) for low, high in itertools.pairwise(edges)]
    write_dataset(path, {"train": [pieces]})
    dataset = penstock.open(path)
    table = dataset[:]
    table.validate(full=True)
    assert dataset.schema == (Field("a", word),)
    assert table.schema == batch.schema
    assert bits(table["a"].combine_chunks()) == bits(batch["a"])
    assert penstock.verify(path).ok
    for start in range(len(values)):
        assert bits(dataset[start : start + 2]["a"].combine_chunks()) == bits(batch["a"].slice(start, 2))


@given(lists=LISTS)
def test_a_list_of_one_record_holds_what_its_slice_holds(tmp_path_factory, lists):
    path, (word, values) = tmp_path_factory.mktemp("lists"), lists
    write_dataset(path, {"train": [[one_column(values, word)]]})
    dataset = penstock.open(path)
    for row, own in enumerate(values):
        found = dataset[row]["a"]
        if own is None:
            assert found is None
            continue
        assert found.shape == (len(own),)
        if parse_type(word).inner.is_number:
            assert isinstance(found, np.ma.MaskedArray) == (None in own)
            assert np.ma.getmaskarray(found).tolist() == [value is None for value in own]
            assert numpy_bits(np.ma.compressed(found)) == bits(dataset[row : row + 1]["a"].chunk(0).values.drop_null())
        else:
            assert found.dtype == object
            assert found.tolist() == own


def test_a_list_of_one_record_speaks_numpy(tmp_path):
    columns = {
        "masked": pa.array([[1.5, None, math.nan]], pa.list_(pa.float32())),
        "flags": pa.array([[True, None]]),
        "times": pa.array([[datetime.datetime(2020, 1, 2), None]], pa.list_(pa.timestamp("us", "UTC"))),
        "took": pa.array([[7]], pa.list_(pa.duration("ms"))),
        "text": [["é", None, ""]],
        "bytes": pa.array([[b"\xff", None]], pa.list_(pa.large_binary())),
        "kinds": make_lists([["k", None, "l", "k"]], "list<dictionary<string>>"),
        "prices": pa.array([[Decimal("1.50"), None]], pa.list_(pa.decimal128(9, 2))),
        "fixed": pa.array([[b"abc", None]], pa.list_(pa.binary(3))),
        "nothing": pa.array([[]], pa.list_(pa.string())),
    }
    write_dataset(tmp_path, {"train": [[pa.RecordBatch.from_pydict(columns)]]})
    record = penstock.open(tmp_path)[0]
    assert (record["masked"].dtype, record["masked"].mask.tolist()) == (np.float32, [False, True, False])
    assert (record["flags"].dtype, record["flags"].tolist()) == (bool, [True, None])
    assert record["times"][0] == np.datetime64("2020-01-02T00:00:00.000000")
    assert record["times"].mask.tolist() == [False, True]
    assert (type(record["took"]), record["took"].tolist()) == (np.ndarray, [datetime.timedelta(milliseconds=7)])
    assert record["text"].tolist() == ["é", None, ""]
    assert record["bytes"].tolist() == [b"\xff", None]
    assert record["kinds"].tolist() == ["k", None, "l", "k"]
    assert record["prices"].tolist() == [Decimal("1.50"), None]
    assert record["fixed"].tolist() == [b"abc", None]
    assert (record["nothing"].dtype, record["nothing"].shape) == (object, (0,))


def test_the_columns_of_lists_lie_under_their_name(tmp_path):
    columns = {
        "n": pa.array([[1, None], None, [2]], pa.list_(pa.int16())),
        "t": [["ab", ""], ["c"], []],
        "d": make_lists([["x", "y"], ["x", None], ["z"]], "list<dictionary<string>>"),
        "f": pa.array([[b"ab"], [b"cd", None], []], pa.list_(pa.binary(2))),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    write_dataset(tmp_path, {"train": [[batch.slice(0, 1), batch.slice(1)]]})
    assert columns_of(tmp_path) == {
        "d/offsets": [0, 2, 4, 5],
        "d/values/codes": [0, 1, 0, 0, 2],
        "d/values/dictionary/bytes": list(b"xyz"),
        "d/values/dictionary/offsets": [0, 1, 2, 3],
        "d/values/valid": [1, 1, 1, 0, 1],
        "f/offsets": [0, 1, 3, 3],
        "f/values": [list(b"ab"), list(b"cd"), [0, 0]],
        "f/values/valid": [1, 1, 0],
        "n/offsets": [0, 2, 2, 3],
        "n/valid": [1, 0, 1],
        "n/values": [1, 0, 2],
        "n/values/valid": [1, 0, 1],
        "t/offsets": [0, 2, 3, 3],
        "t/values/bytes": list(b"abc"),
        "t/values/offsets": [0, 2, 2, 3],
    }


@pytest.mark.parametrize("word", WORDS)
def test_an_encoder_names_every_column_before_it_has_a_row(tmp_path, word):
    write_dataset(tmp_path, {"train": [[one_column([], word)]]})
    columns = penstock.open(tmp_path).columns(0)
    started = dict(Encoder(Field("a", word)).start())
    assert {name: piece.dtype for name, piece in started.items()} == {
        name: column.array.dtype for name, column in columns.items()
    }
    assert penstock.verify(tmp_path).ok


@pytest.mark.parametrize("inner", [pa.int64(), pa.string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_values_hidden_under_a_null_list_do_not_reach_the_disk(tmp_path, inner):
    values = pa.array(list("xyz")).dictionary_encode().cast(inner) if "int64" not in str(inner) else pa.array([1, 2, 3])
    hidden = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), values, mask=pa.array([False, True, False]))
    empty = pa.array([hidden[0].as_py(), None, hidden[2].as_py()], pa.list_(values.type))
    for name, array in (("hidden", hidden), ("empty", empty), ("sliced", pa.concat_arrays([hidden, hidden]).slice(3))):
        write_dataset(tmp_path / name, {"train": [[pa.RecordBatch.from_arrays([array], names=["a"])]]})
    assert columns_of(tmp_path / "hidden") == columns_of(tmp_path / "empty") == columns_of(tmp_path / "sliced")


def test_the_first_null_of_a_late_batch_fills_in_the_values_before_it(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.shards.record._FILLED", 4)
    batches = [one_column([[1, 2], [], [3] * 9], "list<int64>"), one_column([[4, None]], "list<int64>")]
    write_dataset(tmp_path, {"train": [[*batches, batches[0]]]})
    assert columns_of(tmp_path)["a/values/valid"] == [1] * 12 + [0] + [1] * 11


def text_bytes(array: pa.Array) -> int:
    """What the offsets of the text count; for dictionary text, those of the dictionary."""
    array = array.dictionary if pa.types.is_dictionary(array.type) else array
    return sum(map(len, array.to_pylist()))


def test_text_inside_lists_that_32_bit_offsets_cannot_count_comes_in_several_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.shards.dictionary.WINDOW_VALUES", 4)
    words = [["x" * (i % 7)] * (i % 3) for i in range(50)]
    kinds = make_lists([[f"{i:03d}", "shared"] for i in range(50)], "list<dictionary<string>>")
    columns = {"text": pa.array(words, pa.large_list(pa.string())), "kind": kinds}
    for name, array in columns.items():
        batch = pa.RecordBatch.from_pydict({name: array})
        write_dataset(tmp_path / name, {"train": [[batch]]})
        dataset = penstock.open(tmp_path / name)
        batches = list(decode_batches(dataset.schema, dataset.columns(0), 3, 47, most=40))
        assert pa.Table.from_batches(batches).to_pylist() == batch.slice(3, 44).to_pylist()
        assert len(batches) > 1
        assert all(text_bytes(each[name].values) <= 40 for each in batches)
        assert len(list(decode_batches(dataset.schema, dataset.columns(0), 3, 47))) == 1


def test_one_record_touches_only_its_own_blocks(tmp_path):
    """30 events out of 300,000: the blocks of their codes, and those of the text they name."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 50_000, 300_000).astype("i4")
    values = pa.DictionaryArray.from_arrays(codes, pa.array([f"a long name of value {i:09d}" for i in range(50_000)]))
    offsets = pa.array(np.arange(0, 300_001, 30, dtype="i4"))
    batch = pa.RecordBatch.from_arrays([pa.ListArray.from_arrays(offsets, values)], names=["a"])
    write_dataset(tmp_path, {"train": [[batch]]})
    dataset = penstock.open(tmp_path)
    record = dataset[5_000]["a"]
    assert record.tolist() == batch["a"][5_000].as_py()
    columns = dataset.columns(0)
    touched = {name: set(np.flatnonzero(column.checked)) for name, column in columns.items()}
    own = columns["a/values/codes"].array[150_000:150_030].astype("i8")
    edges = columns["a/values/dictionary/offsets"].array
    assert touched == {
        "a/offsets": {5_000 * 8 // BLOCK},
        "a/values/codes": {150_000 * 4 // BLOCK},
        "a/values/dictionary/offsets": {*(own * 8 // BLOCK), *((own + 1) * 8 // BLOCK)},
        "a/values/dictionary/bytes": {*(edges[own] // BLOCK), *((edges[own + 1] - 1) // BLOCK)},
    }
    assert len(touched["a/values/dictionary/bytes"]) < len(columns["a/values/dictionary/bytes"].checked)


@pytest.mark.parametrize("word", WORDS)
def test_a_word_for_a_list_is_parsed_from_the_inside(word):
    outer, _, inner = word.partition("<")
    assert (parse_type(word).name, parse_type(word).inner) == (outer, parse_type(inner[:-1]))
    assert Field("a", word).inner == Field("a/values", inner[:-1])
    assert schema_from_arrow(pa.schema([("a", declared_type(word))]), "here") == (Field("a", word),)


@pytest.mark.parametrize(
    "word",
    ["list<list<int64>>", "list<dictionary<int64>>", "list<struct>", "list<fixed_size_list<string>[2]>", "list<>"],
)
def test_a_word_for_a_list_that_columns_cannot_hold_is_refused(word):
    with pytest.raises(ValueError, match="is not a type such as"):
        declared_type(word)


@given(
    frames=st.lists(st.none() | st.lists(st.none() | st.lists(st.floats(width=32), min_size=3, max_size=3)), max_size=6)
)
def test_lists_of_rows_come_back_as_they_were(tmp_path_factory, frames):
    path, kind = tmp_path_factory.mktemp("frames"), pa.list_(pa.list_(pa.float32(), 3))
    batch = pa.RecordBatch.from_arrays([pa.array(frames, kind)], names=["a"])
    write_dataset(path, {"train": [[batch.slice(0, 2), batch.slice(2)]]})
    dataset = penstock.open(path)
    dataset[:].validate(full=True)
    assert dataset.schema == (Field("a", "list<fixed_size_list<float32>[3]>"),)
    assert str(dataset[:]["a"].to_pylist()) == str(batch["a"].to_pylist())
    assert penstock.verify(path).ok
    for row, own in enumerate(frames):
        found = dataset[row]["a"]
        if own is None:
            assert found is None
            continue
        assert (found.shape, found.dtype) == ((len(own), 3), np.float32)
        assert isinstance(found, np.ma.MaskedArray) == (None in own)
        rows = [None if np.ma.getmaskarray(each).all() else np.ma.getdata(each) for each in found]
        assert str([each if each is None else each.tolist() for each in rows]) == str(
            [each if each is None else np.array(each, "f4").tolist() for each in own]
        )
