"""Text gets its codes a window at a time: the same ones whatever batches and dictionaries it came in."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.shards import dictionary
from penstock.shards.dictionary import Windows, indexed
from penstock.shards.record import Encoder
from penstock.shards.schema import Field
from tests.shards.making import write_dataset

INDEX_TYPES = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
WORDS = st.sampled_from(["", "a", "b", "cc", "ddd", "é", "\U0001f600", "x" * 11])
TEXTS = st.lists(st.none() | WORDS | st.text(max_size=3), max_size=40)
LIMITS = st.tuples(st.integers(1, 12), st.integers(1, 24), st.sampled_from([1, 2, 256]), st.sampled_from([1, 3, 2**14]))


@pytest.fixture(autouse=True)
def limits_are_put_back(monkeypatch):
    for name in ("WINDOW_VALUES", "WINDOW_BYTES", "_MOST_PIECES", "_STEP"):
        monkeypatch.setattr(dictionary, name, getattr(dictionary, name))


def set_limits(limits) -> None:
    dictionary.WINDOW_VALUES, dictionary.WINDOW_BYTES, dictionary._MOST_PIECES, dictionary._STEP = limits


def encode(arrays: list[pa.Array], word: str = "dictionary<string>") -> dict[str, list]:
    """The columns an encoder makes of these arrays."""
    encoder, columns = Encoder(Field("a", word)), {}
    for pieces in (encoder.start(), *map(encoder.encode, arrays), encoder.finish()):
        for name, piece in pieces:
            columns.setdefault(name, []).append(piece)
    assert all(len({(piece.dtype, piece.ndim) for piece in pieces}) == 1 for pieces in columns.values())
    return {name: np.concatenate(pieces).tolist() for name, pieces in columns.items()}


def by_the_book(values: list[str | None], window_values: int, window_bytes: int) -> tuple[list[int], list[str]]:
    """Codes and dictionary as the format describes them, a value at a time."""
    codes, words, window, count, size = [], [], {}, 0, 0
    for value in values:
        if value is not None and value not in window:
            window[value] = len(words)
            words.append(value)
        codes.append(0 if value is None else window[value])
        count, size = count + 1, size + len((value or "").encode())
        if count >= window_values or size >= window_bytes:
            window, count, size = {}, 0, 0
    return codes, words


def cut(array: pa.Array, places: list[int]) -> list[pa.Array]:
    edges = [0, *sorted(min(place, len(array)) for place in places), len(array)]
    return [array.slice(low, high - low) for low, high in itertools.pairwise(edges)]


def as_dictionary(values: list, index: pa.DataType, seed: int) -> pa.Array:
    """The same values by way of a dictionary in random order with unused, repeated and null entries."""
    rng = np.random.default_rng(seed)
    entries = [*dict.fromkeys(values), "unused", *dict.fromkeys(values), None]
    entries = [entries[i] for i in rng.permutation(len(entries))]
    places = {value: [i for i, entry in enumerate(entries) if entry == value] for value in {*values, None}}
    chosen = [int(rng.choice(places[value])) for value in values]
    bare = [None if value is None and rng.random() < 0.5 else at for value, at in zip(values, chosen, strict=True)]
    return pa.DictionaryArray.from_arrays(pa.array(bare, index), pa.array(entries, pa.string()))


@given(values=TEXTS, limits=LIMITS, places=st.lists(st.integers(0, 40), max_size=5))
def test_codes_and_dictionary_are_those_of_the_book(values, limits, places):
    set_limits(limits)
    columns = encode(cut(pa.array(values, pa.string()), places))
    codes, words = by_the_book(values, *limits[:2])
    assert columns["a/codes"] == codes
    assert bytes(columns["a/dictionary/bytes"]) == "".join(words).encode()
    assert np.diff(columns["a/dictionary/offsets"]).tolist() == [len(word.encode()) for word in words]
    assert columns.get("a/valid", [1] * len(values)) == [value is not None for value in values]
    assert ("a/valid" in columns) == (None in values)


@given(
    values=TEXTS,
    limits=LIMITS,
    places=st.lists(st.integers(0, 40), max_size=5),
    index=st.sampled_from(INDEX_TYPES),
    seed=st.integers(0, 99),
)
def test_columns_do_not_depend_on_batches_or_on_the_dictionary_they_came_with(values, limits, places, index, seed):
    set_limits(limits)
    whole = encode([pa.array(values, pa.string())])
    coded = as_dictionary(values, index, seed)
    assert coded.to_pylist() == values
    assert encode([coded]) == whole
    assert encode(cut(coded, places)) == whole
    assert encode([as_dictionary(each.to_pylist(), index, seed) for each in cut(coded, places)]) == whole
    mixed = [each.dictionary_decode() if i % 2 else each for i, each in enumerate(cut(coded, places))]
    assert encode(mixed) == whole


@given(values=st.lists(TEXTS, max_size=8), limits=LIMITS, places=st.lists(st.integers(0, 8), max_size=3))
def test_a_window_runs_on_over_the_lists_of_a_column(values, limits, places):
    set_limits(limits)
    lists = pa.array(values, pa.list_(pa.string()))
    columns = encode(cut(lists, places), "list<dictionary<string>>")
    assert columns["a/values/codes"] == by_the_book(list(itertools.chain(*values)), *limits[:2])[0]
    coded = pa.ListArray.from_arrays(lists.offsets, lists.values.dictionary_encode())
    assert encode(cut(coded, places), "list<dictionary<string>>") == columns


def test_the_value_that_reaches_the_bytes_of_a_window_is_its_last(monkeypatch):
    monkeypatch.setattr(dictionary, "WINDOW_BYTES", 4)
    columns = encode([pa.array(["ab", None, "ab", "ab", "abc", "", "d", "ab"])])
    assert columns["a/codes"] == [0, 0, 0, 1, 2, 3, 4, 5]
    assert bytes(columns["a/dictionary/bytes"]) == b"abababcdab"


def test_nulls_count_as_values_of_a_window(monkeypatch):
    monkeypatch.setattr(dictionary, "WINDOW_VALUES", 3)
    columns = encode([pa.array(["a", None, "a", "a", "a"]), pa.array(["a", "a"])])
    assert columns["a/codes"] == [0, 0, 0, 1, 1, 1, 2]


def test_a_shard_of_several_windows_reads_back(tmp_path, monkeypatch):
    monkeypatch.setattr(dictionary, "WINDOW_VALUES", 7)
    values = [None if i % 5 == 4 else f"v{i % 4}" for i in range(50)]
    batch = pa.RecordBatch.from_arrays([pa.array(values).dictionary_encode()], names=["a"])
    write_dataset(tmp_path, {"train": [[batch.slice(0, 9), batch.slice(9)]]})
    dataset = penstock.open(tmp_path)
    assert dataset[:]["a"].to_pylist() == [record["a"] for record in dataset] == values
    assert dataset[21:24]["a"].to_pylist() == values[21:24]
    assert len(dataset[21:24]["a"].chunk(0).dictionary) <= 4
    assert penstock.verify(tmp_path).ok


def test_a_shard_without_dictionary_values_has_its_dictionary_columns(tmp_path):
    batch = pa.RecordBatch.from_arrays([pa.array([None, None], pa.string()).dictionary_encode()], names=["a"])
    write_dataset(tmp_path, {"train": [[batch]]})
    dataset = penstock.open(tmp_path)
    assert dataset[:]["a"].to_pylist() == [None, None]
    assert set(dataset.columns(0)) == {"a/codes", "a/valid", "a/dictionary/bytes", "a/dictionary/offsets"}
    assert penstock.verify(tmp_path).ok


def test_the_limits_hold_for_real_windows():
    rng = np.random.default_rng(0)
    words = [f"{i:x}" for i in range(3000)]
    values = [words[i] for i in rng.integers(0, 3000, 2 * dictionary.WINDOW_VALUES + 5)]
    codes, distinct = by_the_book(values, dictionary.WINDOW_VALUES, dictionary.WINDOW_BYTES)
    windows, found = Windows(), []
    for piece in cut(pa.array(values), [1, 5000, 100_000, 300_001]):
        found += windows.add(*indexed(piece, pa.string()))
        assert sum(len(indices) for indices, _ in windows._pieces) < dictionary.WINDOW_VALUES
    found += windows.finish()
    assert np.concatenate([each for each, _ in found]).tolist() == codes
    assert pa.concat_arrays([each for _, each in found]).to_pylist() == distinct
    assert len(found) == 3


def test_an_open_window_does_not_keep_the_batch_it_came_from():
    windows = Windows()
    large = pa.DictionaryArray.from_arrays(pa.array([7], pa.int32()), pa.array(["x" * 1000] * 1000))
    assert list(windows.add(*indexed(large, pa.string()))) == []
    assert sum(values.get_total_buffer_size() for _, values in windows._pieces) < 10_000
