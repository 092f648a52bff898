"""A batch is its samples: what is made of it is what is made of the same samples one by one, however it is cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.prepare.samples.batch import Batch, samples_of
from penstock.prepare.samples.held import Held
from penstock.prepare.samples.samples import Converter, Problem, Typed
from penstock.prepare.samples.schema import SampleSchema, declared_schema

SCHEMA = declared_schema(
    {
        "features": "float32[2]",
        "labels": {"action": "int16", "amount": "float32"},
        "won": "bool",
        "path": "int8[*]",
        "game": "string",
        "raw": "binary",
    },
    {"labels_amount": -1, "path": None, "raw": None},
)
INFERRED = tuple(replace(field, rounds=False, origin="a.txt, sample 0") for field in SCHEMA)


def made(yielded: list[Any], rows: int = 1 << 20, most_bytes: int = 1 << 30, schema: SampleSchema = SCHEMA) -> Typed:
    """What all of it becomes, taken some rows at a time."""
    converter = Converter(schema)
    pieces, held, count = [], Held(converter, rows, most_bytes), 0
    for each in yielded:
        rest = each
        while True:
            rest = held.take(rest)
            if held.is_full or rest is not None:
                assert len(held) <= rows
                pieces.append(held.typed().shifted(count))
                count += len(held)
                held = Held(converter, rows, most_bytes)
            if rest is None:
                break
    return converter.joined([*pieces, held.typed().shifted(count)])


def assert_alike(one: Typed, other: Typed) -> None:
    one.batch.validate(full=True)
    assert one.problems == other.problems
    assert one.numbers.tolist() == other.numbers.tolist()
    assert one.batch.schema == other.batch.schema
    assert repr(one.batch.to_pylist()) == repr(other.batch.to_pylist())  # by their text: NaN is NaN, -0.0 is not 0.0


def columns(count: int, **changed: Any) -> dict[str, Any]:
    rows = np.arange(count)
    whole = {
        "features": np.stack([rows, rows + 0.5], 1).astype("f4"),
        "labels": {"action": rows.astype("i8"), "amount": (rows / 4).tolist()},
        "won": rows % 2 == 0,
        "path": [list(range(row % 3)) for row in range(count)],
        "game": "g1",
        "raw": [b"x" * (row % 4) for row in range(count)],
    }
    return {**whole, **changed}


def the_problem(**changed: Any) -> Problem:
    [problem] = made([Batch(columns(4, **changed))]).problems
    return problem


ODD = st.sampled_from(
    [0, 1, -1, 2, True, 0.5, 3.0, -0.0, float("nan"), 2**24 + 1, 40000, None, "x", bytearray(b"x"), np.int8(4), [1]]
)
DTYPES = st.sampled_from(["?", "i1", "i8", "u2", "f2", "f4", "f8", ">f4", "g", "U1", "S1", "M8[s]", "c8", "O"])


def arrays(count: int, shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """Arrays of any type, of which some elements fit."""
    values = st.lists(st.sampled_from([0, 1, 2, 100]), min_size=count, max_size=count)
    return st.builds(
        lambda each, dtype: np.broadcast_to(np.reshape(each, (count, *(1 for _ in shape))), (count, *shape)).astype(
            dtype
        ),
        values,
        DTYPES,
    )


def column(count: int, shape: tuple[int, ...] = ()) -> st.SearchStrategy[Any]:
    hidden = np.broadcast_to(np.arange(count).reshape(count, *(1 for _ in shape)) % 2, (count, *shape))
    masked = arrays(count, shape).map(lambda each: np.ma.masked_array(each, hidden))
    return st.one_of(
        ODD.filter(lambda each: not isinstance(each, list)),
        st.lists(ODD, min_size=count, max_size=count),
        st.lists(ODD, min_size=count, max_size=count).map(tuple),
        arrays(count, shape),
        arrays(count, (*shape, 3)),
        masked,
    )


@st.composite
def batches(draw: Any) -> Any:
    count = draw(st.integers(0, 7))
    keys = {"features": column(count, (2,)), "won": column(count), "path": column(count, (3,)), "game": column(count)}
    keys |= {"raw": column(count), "labels": st.fixed_dictionaries({}, optional={"action": column(count)})}
    changed = draw(st.fixed_dictionaries({}, optional=keys))
    if "labels" in changed and draw(st.booleans()):
        changed["labels"] = {**columns(count)["labels"], **changed["labels"]}
    if draw(st.sampled_from([False, False, False, True])):
        changed["extra"] = 1
    return Batch(columns(count, **changed))


@settings(max_examples=400, deadline=None)
@given(st.lists(batches(), max_size=3), st.integers(1, 9), st.sampled_from([20, 1 << 20]), st.booleans())
def test_a_batch_is_what_its_samples_are_one_by_one(given_: Any, rows: int, most_bytes: int, is_inferred: bool) -> None:
    schema = INFERRED if is_inferred else SCHEMA
    singly = list(samples_of(iter(given_)))
    assert_alike(made(given_, rows, most_bytes, schema), made(singly, schema=schema))
    mixed = [*given_[:1], *singly[: len(singly) // 2], *given_[1:]]
    assert_alike(made(mixed, rows, most_bytes, schema), made(list(samples_of(iter(mixed))), schema=schema))


def test_only_the_samples_that_do_not_fit_are_set_aside() -> None:
    action = np.array([1, 2, 70000, 4], "i8")
    typed = made([Batch(columns(4, labels={"action": action}))])
    assert typed.numbers.tolist() == [0, 1, 3]
    assert typed.problems == (
        Problem(2, "labels.action", "value does not fit its type", "int64 70000, int16 is declared"),
    )


def test_an_inferred_type_never_changes_a_value_of_a_batch() -> None:
    features = np.array([[0.5, 0.5], [0.1, 0.5]])  # float64
    typed = made([Batch(columns(2, features=features))], schema=INFERRED)
    assert [(each.sample, each.key, each.reason) for each in typed.problems] == [
        (1, "features", "value does not fit its type")
    ]


def test_columns_of_different_lengths_are_refused_with_both_numbers() -> None:
    problem = the_problem(won=[True, False, True])
    assert (problem.key, problem.reason) == ("won", "columns differ in length")
    assert problem.detail == "3 values, but 'features' has 4"
    assert the_problem(labels={"action": np.zeros(1234)}).detail == "1,234 values, but 'features' has 4"


def test_a_batch_without_any_array_is_refused() -> None:
    [problem] = made([Batch({"won": True, "game": "g1"})]).problems
    assert (problem.key, problem.reason) == ("", "not a batch")


def test_samples_after_a_batch_that_nobody_can_count_go_on_behind_it() -> None:
    typed = made([Batch(columns(2)), Batch(columns(2, won=[True])), Batch(columns(2))])
    assert (typed.numbers.tolist(), [each.sample for each in typed.problems]) == ([0, 1, 3, 4], [2])


def test_what_is_no_dict_makes_no_batch() -> None:
    with pytest.raises(TypeError, match="not of a list"):
        Batch([{"won": True}])  # type: ignore[arg-type]


def test_arrays_that_are_filled_again_for_the_next_batch_are_taken_as_they_were() -> None:
    again = columns(3)
    held = Held(Converter(SCHEMA), 6, 1 << 20)
    for number in range(2):
        again["features"][:] = number
        again["labels"]["action"][:] = number
        again["won"][:] = bool(number)
        again["raw"][0] = bytes([number])
        held.take(Batch(again))
    batch = held.typed().batch
    assert batch["features"].to_pylist() == [[0.0, 0.0]] * 3 + [[1.0, 1.0]] * 3
    assert batch["labels_action"].to_pylist() == [0] * 3 + [1] * 3
    assert batch["won"].to_pylist() == [False] * 3 + [True] * 3
    assert batch["raw"].to_pylist()[::3] == [b"\0", b"\1"]


def test_a_large_batch_is_cut_by_rows_and_by_bytes() -> None:
    converter = Converter(declared_schema({"a": "float64[100]", "b": "int8[*]"}, {}))
    big = Batch({"a": np.zeros((1000, 100)), "b": [np.zeros(7, "i1")] * 1000})
    assert _sizes(converter, big, rows=300) == [300, 300, 300, 100]
    assert _sizes(converter, big, rows=1000, most_bytes=8000) == [10] * 100  # 800 bytes of `a`
    ragged = Converter(declared_schema({"b": "int8[*]"}, {}))
    assert _sizes(ragged, Batch({"b": big.columns["b"]}), rows=1000, most_bytes=3499) == [500, 500]


def _sizes(converter: Converter, yielded: Any, rows: int, most_bytes: int = 1 << 30) -> list[int]:
    sizes, rest = [], yielded
    while rest is not None:
        held = Held(converter, rows, most_bytes)
        rest = held.take(rest)
        assert held.is_full or rest is None
        sizes.append(held.typed().batch.num_rows)
    return sizes
