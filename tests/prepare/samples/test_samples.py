"""Samples become typed batches: every value as it was, and every sample that does not fit named with its reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.prepare.samples.held import Held
from penstock.prepare.samples.inferring import infer_schema
from penstock.prepare.samples.samples import Converter, Problem
from penstock.prepare.samples.schema import arrow_schema, declared_schema
from penstock.shards.arrays import fixed_values
from penstock.shards.schema import parse_type

SCHEMA = declared_schema(
    {
        "features": "float32[3]",
        "labels": {"action": "int16", "amount": "float32"},
        "masks": {"action": "int8[2]"},
        "board": "int8[2, 2]",
        "won": "bool",
        "game_id": "string",
    },
    {"labels_amount": -1, "masks_action": 1},
)


def sample(**changed: Any) -> dict[str, Any]:
    whole = {
        "features": np.array([0.5, 1.5, 2.5], np.float32),
        "labels": {"action": 3, "amount": 0.25},
        "masks": {"action": [1, 0]},
        "board": [[1, 2], [3, 4]],
        "won": True,
        "game_id": "g1",
    }
    return {**whole, **changed}


def converted(samples: list[Any], first: int = 0, schema: Any = SCHEMA) -> tuple[pa.RecordBatch, Any, list[Problem]]:
    held = Held(Converter(schema), len(samples) or 1, 1 << 30)
    for each in samples:
        held.take(each)
    typed = held.typed().shifted(first)
    return typed.batch, typed.numbers, list(typed.problems)


def the_problem(**changed: Any) -> Problem:
    batch, numbers, problems = converted([sample(), sample(**changed), sample()], first=10)
    assert numbers.tolist() == [10, 12]
    assert batch == converted([sample(), sample()])[0]
    assert [problem.sample for problem in problems] == [11]
    return problems[0]


def test_samples_become_a_batch_of_the_schema_s_types() -> None:
    batch, numbers, problems = converted([sample(), sample(won=0)], first=5)
    assert batch.schema == arrow_schema(SCHEMA)
    batch.validate(full=True)
    assert batch.to_pylist() == [
        {
            "features": [0.5, 1.5, 2.5],
            "labels_action": 3,
            "labels_amount": 0.25,
            "masks_action": [1, 0],
            "board": [[1, 2], [3, 4]],
            "won": won,
            "game_id": "g1",
        }
        for won in (True, False)
    ]
    assert (numbers.tolist(), numbers.dtype, problems) == ([5, 6], np.dtype("int64"), [])


def test_no_samples_are_an_empty_batch() -> None:
    batch, numbers, problems = converted([])
    assert (batch.num_rows, batch.schema, len(numbers), problems) == (0, arrow_schema(SCHEMA), 0, [])


def test_a_batch_of_misfits_is_an_empty_batch_with_its_problems() -> None:
    batch, numbers, problems = converted([None, sample(won=2)], first=3)
    assert (batch.num_rows, numbers.tolist()) == (0, [])
    assert [(problem.sample, problem.key) for problem in problems] == [(3, ""), (4, "won")]


def test_the_columns_keep_the_order_of_the_schema_whatever_the_order_of_the_keys() -> None:
    schema = declared_schema({"a": {"x": "int8"}, "b": "int8", "c": {"d": {"y": "int8"}}}, {})
    batch, _, problems = converted([{"c": {"d": {"y": 3}}, "b": 2, "a": {"x": 1}}], schema=schema)
    assert (batch.to_pylist(), problems) == ([{"a_x": 1, "b": 2, "c_d_y": 3}], [])


def test_a_label_of_minus_one_and_an_all_zero_mask_are_preserved() -> None:
    batch, _, problems = converted([sample(labels={"action": -1, "amount": -1.0}, masks={"action": [0, 0]})])
    assert problems == []
    assert batch["labels_action"].to_pylist() == [-1]
    assert batch["masks_action"].to_pylist() == [[0, 0]]


def test_nan_infinity_and_minus_zero_are_preserved_bit_for_bit() -> None:
    odd = np.array([0x7FC00123, 0xFF800000, 0x80000000], np.uint32).view(np.float32)
    for features in (odd, odd.astype(">f4"), np.stack([odd, odd], 1)[:, 0]):
        batch, _, problems = converted([sample(features=features), sample()])
        assert problems == []
        assert fixed_values(batch["features"], parse_type(SCHEMA[0].type))[0].tobytes() == odd.tobytes()


def test_arrays_of_any_layout_are_the_same_values() -> None:
    plain = np.array([[1, 2], [3, 4]], np.int8)
    frozen = plain.copy()
    frozen.flags.writeable = False
    layouts = [plain, frozen, np.asfortranarray(plain), plain.astype(">i4"), plain.astype("f2"), plain.T.copy().T]
    batch, _, problems = converted([sample(board=board) for board in layouts] + [sample(won=np.array(1))])
    assert problems == []
    assert batch["board"].to_pylist() == [[[1, 2], [3, 4]]] * 7


def test_an_array_that_is_filled_again_for_the_next_sample_is_taken_as_it_was() -> None:
    def samples() -> Any:
        row, labels = np.zeros(3, np.float32), {"action": 0}
        mask, board = [1, 0], [[0, 0], [0, 0]]
        for number in range(3):
            row[:], labels["action"], mask[1], board[1][1] = number, number, number % 2, number
            yield sample(features=row, labels=labels, masks={"action": mask}, board=board)

    held = Held(Converter(SCHEMA), 3, 1 << 20)
    for each in samples():
        held.take(each)
    batch, problems = held.typed().batch, held.typed().problems
    assert problems == ()
    assert batch["features"].to_pylist() == [[0.0] * 3, [1.0] * 3, [2.0] * 3]
    assert batch["labels_action"].to_pylist() == [0, 1, 2]
    assert batch["masks_action"].to_pylist() == [[1, 0], [1, 1], [1, 0]]
    assert batch["board"].to_pylist() == [[[0, 0], [0, number]] for number in range(3)]


def test_a_stated_value_stands_for_a_key_that_is_not_there() -> None:
    without_masks = sample(labels={"action": 3})
    del without_masks["masks"]
    batch, _, problems = converted([sample(), without_masks, sample(masks={})])
    assert problems == []
    assert batch["labels_amount"].to_pylist() == [0.25, -1.0, 0.25]
    assert batch["masks_action"].to_pylist() == [[1, 0], [1, 1], [1, 1]]


def test_a_value_that_does_not_fit_is_named_beside_filled_ones() -> None:
    without = sample(labels={"action": 3})
    batch, numbers, problems = converted([without, sample(labels={"action": 3, "amount": 2**24 + 1}), without])
    assert batch["labels_amount"].to_pylist() == [-1.0, -1.0]
    assert numbers.tolist() == [0, 2]
    assert problems == [Problem(1, "labels.amount", "value does not fit its type", "int 16777217, float32 is declared")]


@pytest.mark.parametrize(
    ("changed", "key", "reason", "detail"),
    [
        ({"labels": {"action": 40000}}, "labels.action", "value does not fit its type", "int 40000, int16"),
        ({"labels": {"action": float("nan")}}, "labels.action", "value does not fit its type", "float nan, int16"),
        ({"labels": {"action": None}}, "labels.action", "wrong type", "NoneType, int16"),
        ({"labels": {"action": [3]}}, "labels.action", "wrong shape", "1 values, int16"),
        ({"labels": {"action": {}}}, "labels.action", "wrong type", "dict, int16"),
        ({"features": [1, 2]}, "features", "wrong shape", "2 values, float32[3]"),
        ({"features": [1, 2, 1e39]}, "features", "value does not fit its type", "float 1e+39 at [2], float32[3]"),
        ({"features": np.array([1, None, 2])}, "features", "wrong type", "array of object, float32[3]"),
        ({"board": [[1, 2], [3, 400]]}, "board", "value does not fit its type", "int 400 at [1, 1], int8[2, 2]"),
        ({"won": 2}, "won", "value does not fit its type", "int 2, bool"),
        ({"game_id": 7}, "game_id", "wrong type", "int 7, string"),
        ({"game_id": b"g"}, "game_id", "wrong type", "bytes, string"),
        ({"game_id": "\ud83d"}, "game_id", "value does not fit its type", "str '\\ud83d' cannot be written as UTF-8"),
    ],
)
def test_what_does_not_fit_is_named_with_key_reason_and_numbers(
    changed: dict[str, Any], key: str, reason: str, detail: str
) -> None:
    problem = the_problem(**changed)
    assert (problem.key, problem.reason) == (key, reason)
    assert problem.detail.startswith(detail)
    assert problem.detail.endswith("is declared")


def test_an_unexpected_key_is_named_with_those_that_are_expected() -> None:
    assert the_problem(labels={"action": 3, "amont": 1}) == Problem(
        11, "labels.amont", "unexpected key", "the schema has action, amount"
    )
    assert the_problem(extra=None).key == "extra"
    assert the_problem(**{"3": 1}).key == "3"


def test_a_missing_key_is_named_with_its_type() -> None:
    assert the_problem(labels={"amount": 1}) == Problem(11, "labels.action", "missing key", "int16 is declared")


def test_a_value_where_a_dict_is_expected_is_a_wrong_type() -> None:
    problem = the_problem(labels=[1, 2])
    assert (problem.key, problem.reason) == ("labels", "wrong type")
    assert problem.detail == "list, a dict with action, amount is expected"


def test_what_is_no_dict_is_no_sample() -> None:
    for other in ([1, 2], None, np.zeros(3), "features"):
        _, _, problems = converted([other])
        assert (problems[0].key, problems[0].reason) == ("", "not a sample")


def test_only_the_first_problem_of_a_sample_is_told() -> None:
    problem = the_problem(features=[1], won=5, game_id=None)
    assert problem.key == "features"


def test_a_problem_says_where_the_type_was_inferred() -> None:
    schema = infer_schema({"features": np.zeros(893)}, "games/a.txt, sample 0", "float32")
    _, _, problems = converted([{"features": np.zeros(900)}], schema=schema)
    assert problems[0].detail == "900 values, float32[893] was inferred from games/a.txt, sample 0"


def test_other_kinds_of_dicts_are_samples_too() -> None:
    from collections import OrderedDict, defaultdict

    counted: dict[str, Any] = defaultdict(int, action=3, amount=0.25)
    batch, _, problems = converted([OrderedDict(sample(labels=counted)), sample()])
    assert problems == []
    assert batch[:1] == batch[1:]
    assert dict(counted) == {"action": 3, "amount": 0.25}


numbers = st.sampled_from([0, 1, -1, 2, True, 0.5, 3.0, -0.0, float("nan"), 2**24 + 1, 2**40, None, "x", np.int8(4)])
rows = st.one_of(
    st.lists(numbers, min_size=2, max_size=4),
    st.lists(numbers.filter(lambda each: each is not None and each != "x"), min_size=3, max_size=3).map(np.array),
    numbers,
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "features": rows,
        "labels": st.fixed_dictionaries({}, optional={"action": numbers, "amount": numbers, "else": numbers}) | numbers,
        "won": numbers,
        "game_id": numbers,
    },
)


@settings(max_examples=200, deadline=None)
@given(st.lists(changes, max_size=6), st.integers(1, 6))
def test_how_samples_are_cut_into_batches_decides_nothing(changed: list[Any], size: int) -> None:
    samples = [sample(**each) for each in changed]
    batch, numbers_, problems = converted(samples)
    parts = [converted(samples[start : start + size], start) for start in range(0, len(samples), size)]
    assert [int(number) for _, part, _ in parts for number in part] == numbers_.tolist()
    assert [problem for _, _, part in parts for problem in part] == problems
    assert len(numbers_) + len(problems) == len(samples)
    rows_ = [row for part, _, _ in parts for row in part.to_pylist()]
    assert repr(rows_) == repr(batch.to_pylist())  # by their text, so that NaN is NaN and -0.0 is not 0.0
