"""Arrays of any length, bytes and nulls: the quick way is what the exact one is, and what does not fit is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.prepare.samples import ragged
from penstock.prepare.samples.fitting import Misfit
from penstock.prepare.samples.held import Held
from penstock.prepare.samples.samples import Converter
from penstock.prepare.samples.schema import declared_schema

NUMBERS = ["bool", "int8", "uint64", "float16", "float32", "float64"]
VALUES = st.integers(-300, 300) | st.floats(width=16) | st.booleans() | st.sampled_from([2**63, 1e300, "x", None])
LISTS = st.lists(VALUES, max_size=4)
DTYPES = st.sampled_from(["?", "i1", "i8", "u2", "f2", "f4", "f8", ">i4", "U1"])
ARRAYS = st.builds(lambda size, dtype: np.ones(size, dtype), st.integers(0, 4), DTYPES)
OTHERS = st.sampled_from([5, "text", None, np.array(3), np.zeros((2, 2)), np.ma.masked_array([1, 2], [0, 1]), [[1]]])


@given(values=st.lists(LISTS | ARRAYS | OTHERS, max_size=5), number=st.sampled_from(NUMBERS), rounds=st.booleans())
def test_all_at_once_is_what_each_sample_is_by_itself(values: list[Any], number: str, rounds: bool) -> None:
    flat = ragged.together(values, (), np.dtype(number), rounds)
    if flat is None:
        return
    for piece, value in zip(flat.pieces(), values, strict=True):
        alone = ragged.exact(value, (), np.dtype(number), rounds)
        assert (piece.dtype, piece.tobytes()) == (alone.dtype, alone.tobytes())


def convert(schema: dict[str, Any], samples: list[Any], missing: dict[str, Any] | None = None) -> Any:
    held = Held(Converter(declared_schema(schema, missing or {})), len(samples), 1 << 20)
    for sample in samples:
        held.take(sample)
    typed = held.typed()
    return typed.batch, typed.numbers, list(typed.problems)


@given(lengths=st.lists(st.integers(0, 5), max_size=6), as_lists=st.booleans())
def test_rows_of_every_length_come_out_as_they_were(lengths: list[int], as_lists: bool) -> None:
    arrays = [np.arange(length * 3, dtype="f4").reshape(length, 3) for length in lengths]
    samples = [{"frames": array.tolist() if as_lists else array} for array in arrays]
    batch, _, problems = convert({"frames": "float32[*, 3]"}, samples)
    batch.validate(full=True)
    assert not problems
    assert batch["frames"].to_pylist() == [array.tolist() for array in arrays]


def test_samples_of_several_kinds_are_taken_in_turn() -> None:
    values = [[1, 2], np.array([3], "i8"), (), np.array([4.0, 5.0]), [np.int8(6)], [True]]
    batch, _, problems = convert({"a": "int16[*]"}, [{"a": value} for value in values])
    assert not problems
    assert batch["a"].to_pylist() == [[1, 2], [3], [], [4, 5], [6], [1]]


@pytest.mark.parametrize(
    ("word", "value", "told"),
    [
        ("int8[*]", [1, 300], "value does not fit its type: int 300 at [1], int8[*] is declared"),
        ("int8[*]", 5, "wrong shape: a single int 5, int8[*] is declared"),
        ("int8[*]", [[1]], "wrong shape: a list inside has 1 values, int8[*] is declared"),
        ("int8[*]", "abc", "wrong type: str 'abc', int8[*] is declared"),
        ("int8[*]", None, "wrong type: NoneType, int8[*] is declared"),
        ("int8[*]", np.ma.masked_array([1, 2], [0, 1]), "wrong type: masked array, int8[*] is declared"),
        ("int8[*, 2]", np.zeros((3, 4)), "wrong shape: shape [3, 4], int8[*, 2] is declared"),
        ("int8[*, 2]", [[1, 2], [1]], "wrong shape: a list inside has 1 values, int8[*, 2] is declared"),
        ("binary", "text", "wrong type: str 'text', binary is declared"),
        ("binary", np.bytes_(b"x"), "wrong type: bytes_ b'x', binary is declared"),
        ("string", b"x", "wrong type: bytes, string is declared"),
        ("int8", b"x", "wrong type: bytes, int8 is declared"),
    ],
)
def test_a_sample_that_does_not_fit_is_told_and_the_others_stay(word: str, value: Any, told: str) -> None:
    good = {"binary": b"\0", "string": "s", "int8": 1}.get(word, [[1, 2]] if "," in word else [1, 2])
    batch, numbers, problems = convert({"a": word}, [{"a": good}, {"a": value}, {"a": good}])
    assert [f"{each.sample} {each.reason}: {each.detail}" for each in problems] == [f"1 {told}"]
    assert (numbers.tolist(), batch["a"].to_pylist()) == ([0, 2], [good, good])


def test_bytes_that_are_changed_later_stay_what_they_were() -> None:
    held = Held(Converter(declared_schema({"a": "binary"}, {})), 2, 1 << 20)
    buffer = bytearray(b"one")
    for text in (b"one", b"two"):
        buffer[:] = text
        held.take({"a": buffer})
    assert held.typed().batch["a"].to_pylist() == [b"one", b"two"]


OPTIONAL = {"n": "int8", "v": "float32[2]", "r": "int8[*]", "s": "string", "b": "binary", "t": "bool"}
PRESENT = {"n": 1, "v": [0.5, 1.5], "r": [1, 2, 3], "s": "x", "b": b"y", "t": True}


@given(holes=st.lists(st.tuples(st.sets(st.sampled_from(list(OPTIONAL))), st.booleans()), max_size=6))
def test_none_and_missing_keys_become_nulls_where_null_stands_for_them(holes: list[tuple[set[str], bool]]) -> None:
    samples = [
        {key: None if key in keys else value for key, value in PRESENT.items() if is_none or key not in keys}
        for keys, is_none in holes
    ]
    batch, _, problems = convert(OPTIONAL, samples, dict.fromkeys(OPTIONAL))
    batch.validate(full=True)
    assert not problems
    assert batch.to_pylist() == [
        {key: None if key in keys else value for key, value in PRESENT.items()} for keys, _ in holes
    ]


def test_nulls_and_misfits_in_one_column_keep_their_places() -> None:
    values = [[1], None, [300], [], None, [2, 3]]
    batch, numbers, problems = convert({"a": "int8[*]"}, [{"a": each} for each in values], {"a": None})
    assert numbers.tolist() == [0, 1, 3, 4, 5]
    assert batch["a"].to_pylist() == [[1], None, [], None, [2, 3]]
    assert [problem.sample for problem in problems] == [2]


def test_a_list_may_stand_for_a_missing_key() -> None:
    batch, _, _ = convert({"a": "int8[*]", "b": "int8"}, [{"b": 1}, {"a": [1, 2], "b": 1}, {"b": 2}], {"a": [7, 8, 9]})
    assert batch["a"].to_pylist() == [[7, 8, 9], [1, 2], [7, 8, 9]]


def test_a_length_that_offsets_cannot_count_is_refused() -> None:
    with pytest.raises(Misfit, match="one sample may have 2,147,483,647"):
        ragged.exact(np.broadcast_to(np.int8(1), 2**31), (), np.dtype("i1"))
