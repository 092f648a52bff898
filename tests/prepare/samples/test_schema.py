"""The columns of samples: as people declare them, as samples tell them, and where samples disagree."""

from __future__ import annotations

import datetime
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.base.errors import ConfigError, InputError
from penstock.prepare.samples.inferring import agreed_schema, infer_schema
from penstock.prepare.samples.schema import REQUIRED, arrow_schema, declared_schema
from tests.prepare.samples.words import short_words

DECLARED = {
    "features": "float32[893]",
    "labels": {"action_type": "int16", "amount": "float64"},
    "masks": {"action_type": "int8[4]"},
    "board": "int8[8, 8]",
    "won": "bool",
    "game_id": "string",
}


def test_nested_keys_become_flat_columns_in_the_order_they_were_written() -> None:
    schema = declared_schema(DECLARED, {})
    assert short_words(schema) == {
        "features": "float32[893]",
        "labels_action_type": "int16",
        "labels_amount": "float64",
        "masks_action_type": "int8[4]",
        "board": "int8[8, 8]",
        "won": "bool",
        "game_id": "string",
    }
    assert schema[1].path == ("labels", "action_type")
    assert (schema[0].type, schema[0].origin, schema[0].missing) == (
        "fixed_size_list<float32>[893]",
        "declared",
        REQUIRED,
    )
    assert arrow_schema(schema).field("board").type == pa.list_(pa.list_(pa.int8(), 8), 8)


def test_a_schema_crosses_to_a_worker_unchanged() -> None:
    schema = declared_schema(DECLARED, {"labels_amount": -1})
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema
    assert again[0].missing is REQUIRED


@pytest.mark.parametrize(
    ("written", "part"),
    [
        ({}, "no columns"),
        ({"a": "flaot32"}, "float32"),
        ({"a": "float32[0]"}, "0 values"),
        ({"a": 5}, "5 is not a type"),
        ({"a": {}}, "{} is not a type"),
        ({"a": "timestamp[us]"}, "not a type of samples"),
        ({"a": "list<string>"}, "not a type of samples"),
        ({"a": "large_binary"}, "not a type of samples"),
        ({"a": "fixed_size_binary[4]"}, "not a type of samples"),
        ({"a": "string[4]"}, "only numbers"),
        ({"a/b": "int8"}, "'a/b' cannot name a column"),
        ({"..": "int8"}, "'..' cannot name a column"),
        ({"a\n": "int8"}, "cannot name a column"),
        ({"x" * 300: "int8"}, "up to 200 bytes"),
        ({"": "int8"}, "keys are texts that are not empty"),
        ({1: "int8"}, "'1' is not a name"),
        ({"labels": {"a": "int8"}, "labels_a": "int8"}, "'labels.a' and 'labels_a' both become column 'labels_a'"),
    ],
)
def test_what_cannot_be_declared_is_a_config_error(written: Any, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declared_schema(written, {})
    assert part in str(caught.value)


def test_a_stated_value_stands_for_a_missing_key() -> None:
    missing = {"labels_action_type": -1, "features": 0.5, "masks_action_type": [1, 0, 0, 1], "game_id": ""}
    schema = {field.name: field for field in declared_schema(DECLARED, missing)}
    assert schema["labels_action_type"].missing == -1
    assert schema["labels_action_type"].filling() == -1
    assert np.array_equal(schema["features"].filling(), np.full(893, 0.5, np.float32))
    assert np.array_equal(schema["masks_action_type"].filling(), np.array([1, 0, 0, 1], np.int8))
    assert schema["game_id"].filling() == ""
    assert schema["won"].missing is REQUIRED


@pytest.mark.parametrize(
    ("missing", "part"),
    [
        ({"labels_action_type": 40000}, "int 40000 does not fit: int16 is declared"),
        ({"labels_action_type": 0.5}, "float 0.5 does not fit"),
        ({"masks_action_type": [1, 0]}, "2 values does not fit: int8[4] is declared"),
        ({"game_id": 0}, "int 0 does not fit"),
        ({"labels_amont": 0}, "Did you mean 'labels_amount'?"),
    ],
)
def test_a_value_for_a_missing_key_must_fit_its_column(missing: Any, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declared_schema(DECLARED, missing)
    assert part in str(caught.value)


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (3, "int64"),
        (True, "bool"),
        (0.5, "float64"),
        ("king", "string"),
        (np.str_("king"), "string"),
        (np.array("king"), "string"),
        (np.int16(3), "int16"),
        (np.float64(3), "float64"),
        (np.float32(3), "float32"),
        (np.float16(3), "float16"),
        (np.uint64(2**63), "uint64"),
        (np.bool_(True), "bool"),
        (np.array(3, np.uint8), "uint8"),
        (np.zeros(893), "float64[893]"),
        (np.zeros((8, 8), np.int8), "int8[8, 8]"),
        (np.zeros(2, ">i2"), "int16[2]"),
        ([1, 2], "int64[2]"),
        ((1, 0.5), "float64[2]"),
        ([np.float32(1), 1], "float32[2]"),
        ([np.float32(1), np.float16(1), 0.5], "float64[3]"),
        ([True, False], "bool[2]"),
        ([True, 1], "int64[2]"),
        ([np.int8(1), np.int8(2)], "int8[2]"),
        ([np.int8(1), 2], "int64[2]"),
        ([[1, 2], (3, 4.0)], "float64[2, 2]"),
        ([np.zeros(3, np.int8), np.zeros(3, np.int8)], "int8[2, 3]"),
        (b"x", "binary"),
        (bytearray(b"x"), "binary"),
        (np.zeros(0, np.int16), "int16[*]"),
        (np.zeros((0, 64), np.float32), "float32[*, 64]"),
    ],
)
def test_a_value_tells_its_type(value: Any, word: str) -> None:
    assert short_words(infer_schema({"a": value}, "games/a.txt, sample 0", None)) == {"a": word}


def test_floats_have_the_type_that_was_asked_for() -> None:
    sample = {"a": 0.5, "b": {"c": np.zeros(2, np.float32), "d": 1}, "e": np.zeros(2, np.longdouble)}
    assert short_words(infer_schema(sample, "x, sample 0", "float16")) == {
        "a": "float16",
        "b_c": "float16[2]",
        "b_d": "int64",
        "e": "float16[2]",
    }
    assert short_words(infer_schema(sample, "x, sample 0", "float64"))["b_c"] == "float64[2]"


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ([], "empty list"),
        (np.zeros((3, 0)), "0 values"),
        (None, "NoneType"),
        (np.bytes_(b"x"), "bytes_"),
        (np.array([b"x"]), "array of |S1"),
        (np.longdouble(1), "longdouble"),
        (np.zeros(2, np.longdouble), f"array of {np.dtype(np.longdouble)}"),
        (np.zeros(2, [("a", "i4"), ("b", "f4")]), "array of [('a', '<i4'), ('b', '<f4')]"),
        (1j, "complex"),
        (np.zeros(2, complex), "array of complex128"),
        (np.array([None]), "array of object"),
        (np.array(["a", "b"]), "array of <U1"),
        (["a", "b"], "str 'a'"),
        (datetime.datetime(2020, 1, 1), "datetime"),
        (np.datetime64(1, "s"), "datetime64"),
        (np.zeros(2, "m8[s]"), "timedelta64"),
        (np.ma.masked_array([1, 2], mask=[0, 1]), "masked array"),
        (np.ma.masked, "masked array"),
        ([1.0, np.ma.masked], "masked array"),
        ([[1, 2], [3]], "shapes [1] and [2]"),
        ([1, [2]], "shapes [] and [1]"),
        (2**63, "int 9223372036854775808 is no int64"),
    ],
)
def test_what_tells_no_type_is_refused_by_file_sample_and_key(value: Any, part: str) -> None:
    with pytest.raises(InputError) as caught:
        infer_schema({"labels": {"a": value}}, "games/a.txt, sample 7", None)
    assert "'labels.a'" in caught.value.what
    assert part in caught.value.what
    assert caught.value.where == "games/a.txt, sample 7"


def test_an_empty_dict_says_nothing_and_other_samples_tell_what_may_be_in_it() -> None:
    first = infer_schema({"x": 1, "labels": {}}, "a, sample 0", "float32")
    second = infer_schema({"x": 1, "labels": {"move": 2}}, "b, sample 0", "float32")
    agreed = agreed_schema([first, second], {"labels_move": -1})
    assert short_words(agreed) == {"x": "int64", "labels_move": "int64"}
    with pytest.raises(InputError, match="no columns"):
        infer_schema({"labels": {}}, "a, sample 0", "float32")


@pytest.mark.parametrize("sample", [[1, 2], None, 5, {}, {"a/b": 1}, {3: 1}, {"a": {"b": 1}, "a_b": 2}])
def test_what_is_no_sample_is_refused_with_its_place(sample: Any) -> None:
    with pytest.raises(InputError) as caught:
        infer_schema(sample, "games/a.txt, sample 0", "float32")
    assert caught.value.where == "games/a.txt, sample 0"


def _found(*samples: dict[str, Any]) -> list[Any]:
    return [infer_schema(sample, f"games/{name}.txt, sample 0", None) for name, sample in zip("abc", samples)]  # noqa: B905


def test_samples_that_agree_have_one_schema_whatever_the_order_of_their_keys() -> None:
    found = _found({"a": 1, "b": {"c": [1.0]}}, {"b": {"c": [2.0]}, "a": 2})
    schema = agreed_schema(found, {})
    assert short_words(schema) == {"a": "int64", "b_c": "float64[1]"}
    assert schema[1].origin == "games/a.txt, sample 0"


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (1, 0.5, ("int64", "float64")),
        ([[1, 2]], [[1, 2, 3]], ("int64[1, 2]", "int64[1, 3]")),
        ("a", 1, ("string", "int64")),
    ],
)
def test_a_conflict_names_both_places_and_what_to_declare(first: Any, second: Any, words: tuple[str, str]) -> None:
    with pytest.raises(InputError) as caught:
        agreed_schema(_found({"x": {"y": first}}, {"x": {"y": second}}), {})
    assert caught.value.what == (
        f"key 'x.y' is {words[0]} in games/a.txt, sample 0, but {words[1]} in games/b.txt, sample 0"
    )
    assert "declare all keys: schema: {x: {y: " in str(caught.value.next_step)


def test_a_key_that_some_samples_lack_is_a_conflict_unless_a_value_stands_for_it() -> None:
    for samples in [({"a": 1, "b": 1}, {"a": 1}), ({"a": 1}, {"a": 1, "b": 1})]:
        with pytest.raises(InputError) as caught:
            agreed_schema(_found(*samples), {})
        assert "key 'b' is in games/" in caught.value.what
        assert "but not in games/" in caught.value.what
        schema = agreed_schema(_found(*samples), {"b": -1})
        assert [(field.name, field.missing) for field in schema] == [("a", REQUIRED), ("b", -1)]


def test_two_paths_to_one_column_in_two_samples_are_a_conflict() -> None:
    with pytest.raises(InputError, match=r"'a.b' is int64 in games/a.txt, sample 0, but 'a_b' is int64 in games/b.txt"):
        agreed_schema(_found({"a": {"b": 1}}, {"a_b": 1}), {"a_b": 0})


def test_a_key_that_is_a_value_here_and_a_dict_there_is_a_conflict() -> None:
    with pytest.raises(InputError, match="'a' is a value and a dict"):
        agreed_schema(_found({"a": {"b": 1}}, {"a": 1}), {"a": 0, "a_b": 0})


def test_a_key_that_was_always_none_needs_a_declared_type() -> None:
    seen = [infer_schema({"x": 1, "score": None}, "a, sample 0", None, {"score": None})]
    with pytest.raises(ConfigError, match="none of the samples that were looked at has a value for 'score'") as caught:
        agreed_schema(seen, {"score": None})
    assert "declare all keys with their types" in str(caught.value.next_step)
    with pytest.raises(InputError, match="no value of the sample tells its type") as nothing:
        infer_schema({"labels": {"a": None}}, "a, sample 0", None, {"labels_a": None})
    assert "schema: {labels: {a: float64}" in str(nothing.value.next_step)


def test_a_value_for_a_key_that_no_sample_has_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no column 'labels_b'"):
        agreed_schema(_found({"labels": {"a": 1}}), {"labels_b": 0})


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ([[1, 2], [1, 2, 3]], "int64[*]"),
        ([[1, 2], [1, 2], [1]], "int64[*]"),
        ([np.zeros(0, np.int8), np.zeros(3, np.int8)], "int8[*]"),
        ([np.zeros((2, 64)), np.zeros((5, 64)), np.zeros((2, 64))], "float64[*, 64]"),
    ],
)
def test_samples_that_differ_in_length_alone_have_any_length(values: list[Any], word: str) -> None:
    schema = agreed_schema(_found(*({"x": value} for value in values)), {})
    assert short_words(schema) == {"x": word}


def test_a_length_that_was_inferred_names_both_samples() -> None:
    (field,) = agreed_schema(_found({"x": [1]}, {"x": [1, 2]}), {})
    assert field.told == "int64[*] was inferred from games/a.txt, sample 0 and games/b.txt, sample 0"


def test_a_none_tells_no_type_unless_null_may_stand_there() -> None:
    samples = {"a": 1, "labels": {"b": None}}, {"a": 1, "labels": {"b": np.int8(3)}}
    with pytest.raises(InputError, match="NoneType") as caught:
        _found(*samples)
    assert caught.value.next_step == "if it may be None, say so: `missing: {labels_b: null}`"
    found = [infer_schema(sample, "a, sample 0", None, {"labels_b": None}) for sample in samples]
    schema = agreed_schema(found, {"labels_b": None})
    assert short_words(schema) == {"a": "int64", "labels_b": "int8"}
    assert [field.is_optional for field in schema] == [False, True]


@pytest.mark.parametrize(
    ("word", "missing", "part"),
    [
        ("int8[*]", 0, "a value of int8[*], such as []"),
        ("int8[*]", ["x"], "such as []"),
        ("binary", "", "nothing else"),
    ],
)
def test_a_filling_that_is_no_array_or_bytes_is_refused(word: str, missing: Any, part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        declared_schema({"a": word}, {"a": missing})
    assert part in str(caught.value.next_step)
