"""Inference from CSV and JSONL: every value arrives as the file spells it, or its record is set aside by name."""

from __future__ import annotations

import csv
import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import InputError
from tests.prepare.sources.reader import read, survey

CSV_COLUMNS = {
    "int64": [
        ["1", "-9223372036854775808", "9223372036854775807"],
        ["0", "9007199254740993", "-5"],
        [" 5", "6\t", "7"],
    ],
    "uint64": [
        ["11400714819323198485", "11400714819323198486", "11400714819323198487"],
        ["9223372036854775808", "18446744073709551615", "0"],
    ],
    "bool": [["true", "False", "TRUE"], ["false", "true", "True"]],
    "float64": [
        ["0.1", "-2.5e-3", "7"],
        ["9007199254740992", "0.5", "-9007199254740992"],
        ["nan", "NaN", "5"],
        ["inf", "-Infinity", "1"],
        ["1e22", "1.7976931348623157e308", "-0"],
        [".5", "5.", "1.e5"],
        ["12345678901234567168.0", "0.30000000000000004", "1.000000000000000056e-01"],
    ],
    "string": [
        ["00005", "00006", "12345"],
        ["-007", "1", "2"],
        ["-0", "1", "2"],
        ["+4912345", "+4912346", "+4912347"],
        ["+1.5", "2.5", "3.5"],
        ["007.5", "1.5", "2.5"],
        ["0x1f", "0x20", "1"],
        ["1_000", "2", "3"],
        ["-1", "9223372036854775808", "5"],
        ["18446744073709551616", "36893488147419103232", "1"],
        ["-9223372036854775809", "1", "2"],
        ["0.5", "9007199254740993", "1"],
        ["12345678901234567890.0", "1", "2"],
        ["9007199254740993.5", "1", "2"],
        ["nan", "11400714819323198485", "1"],
        ["1e400", "1", "2"],
        ["9" * 5000, "1", "2"],
        ["true", "1", "0"],
        ["true", "yes", "no"],
        ["2020-01-01", "2020-01-02", "2020-01-03"],
        ["2020-01-01T00:00:00Z", "2020-01-01 00:00:00", "2020-01-01T00:00:00.5+02:00"],
        ["12:30:00", "12:30", "00:00:00"],
        [" NA", "1", "2"],
        ["\u0661", "\u0662", "\u0663"],
        ["5 6", "1", "2"],
    ],
}
JSON_COLUMNS = {
    "int64": [["1", "-9223372036854775808", "9223372036854775807"], ["9007199254740993", "null", "0"]],
    "uint64": [["11400714819323198485", "11400714819323198486", "11400714819323198487"]],
    "bool": [["true", "false", "null"]],
    "float64": [
        ["0.1", "-2.5e-3", "7"],
        ["9007199254740992", "0.5", "-9007199254740992"],
        ["NaN", "Infinity", "1"],
        ["1E22", "1.7976931348623157e308", "-0.0"],
        ["12345678901234567168.0", "0.30000000000000004", "5"],
    ],
    "string": [
        ["9007199254740993", "0.5", "1"],
        ["-1", "11400714819323198485", "null"],
        ["18446744073709551616", "36893488147419103232", "1"],
        ["12345678901234567890.0", "1", "2"],
        ["9" * 5000, "1", "NaN"],
        ['"2020-01-01T00:00:00Z"', '"2020-01-01"', '"2020-01-01 00:00:00"'],
        ['"5"', '"007"', '"true"'],
    ],
    "list<uint64>": [["[11400714819323198485]", "[]", "[1, 11400714819323198486]"]],
    "list<float64>": [["[1, 0.5]", "[]", "[9007199254740992]"]],
    "list<string>": [
        ["[9007199254740993, 0.5]", "[]", "[1]"],
        ["[18446744073709551616]", "null", "[2]"],
        ['["2020-01-01T00:00:00Z"]', '["2020-01-01"]', "[]"],
    ],
}


class Spelled(str):
    """A number of JSON, as it is spelled."""


def spelled(text: str) -> Any:
    return json.loads(text, parse_int=Spelled, parse_float=Spelled, parse_constant=Spelled)


def is_the_same(got: Any, given: Any) -> bool:
    """Whether a value that came out is the one that a file spells."""
    if given is None or got is None:
        return given is got is None
    if isinstance(given, list):
        return len(got) == len(given) and all(map(is_the_same, got, given))
    if isinstance(given, dict):
        return all(is_the_same(got[name], given.get(name)) for name in got)
    if isinstance(got, str):
        return bool(got == (json.dumps(given) if isinstance(given, bool) else given))
    if isinstance(got, bool | np.bool_):
        return bool(got) == (given if isinstance(given, bool) else {"true": True, "false": False}[given.lower()])
    if isinstance(got, float):
        return is_the_same_float(float(got), given)
    return str(int(got)) == ("0" if given == "-0" else given.strip(" \t"))


def is_the_same_float(got: float, given: str) -> bool:
    if not math.isfinite(got):
        return str(got) == str(float(given)) and not re.search("[0-9]", given)
    has_exponent = "e" in given.lower()
    return got == float(given) and (has_exponent or abs(got) < 2**53 or Fraction(got) == Fraction(given.strip(" \t")))


def open_run(folder: Path, **job: Any) -> Any:
    penstock.run({"output": str(folder / "out"), "workers": 0, "memory": "1GB", "stages": [], **job})
    return penstock.open(folder / "out")


def rejected(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in (folder / "out" / "rejected").iterdir() for line in file.open()]


def test_every_value_of_a_csv_file_arrives_as_it_is_spelled(tmp_path):
    kinds = {f"{kind}_{number}": kind for kind, columns in CSV_COLUMNS.items() for number in range(len(columns))}
    columns = [values for columns in CSV_COLUMNS.values() for values in columns]
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([list(kinds), *zip(*columns, strict=True)])
    dataset = open_run(tmp_path, input=str(tmp_path / "rows.csv"))
    assert {field.name: field.type for field in dataset.schema} == kinds
    for name, values in zip(kinds, columns, strict=True):
        got = [dataset[row][name] for row in range(3)]
        assert all(map(is_the_same, got, values)), (name, got, values)


def test_every_value_of_a_jsonl_file_arrives_as_it_is_spelled(tmp_path):
    kinds = {f"{kind}_{number}": kind for kind, columns in JSON_COLUMNS.items() for number in range(len(columns))}
    columns = [values for columns in JSON_COLUMNS.values() for values in columns]
    rows = [
        "{" + ", ".join(f'"{name}": {value}' for name, value in zip(kinds, row, strict=True)) + "}"
        for row in zip(*columns, strict=True)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    dataset = open_run(tmp_path, input=str(tmp_path / "rows.jsonl"))
    assert {field.name: field.type for field in dataset.schema} == kinds
    for name, values in zip(kinds, columns, strict=True):
        got = [dataset[row][name] for row in range(3)]
        got = [value.tolist() if hasattr(value, "tolist") and value.shape else value for value in got]
        assert all(map(is_the_same, got, map(spelled, values))), (name, got, values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["[[1], [9007199254740993]]", "[[2, 3]]"], "list<item: list<item: int64>>"),
        (["[[1], [9007199254740993]]", "[[2.50]]"], "list<item: list<item: string>>"),
        (['{"x": 11400714819323198485}', '{"x": 1}'], "struct<x: uint64>"),
        (['{"x": [9007199254740993], "y": "2020-01-01"}', '{"x": [0.5]}'], "struct<x: list<item: string>, y: string>"),
        (['[{"x": 9007199254740993}]', '[{"x": 0.5}]'], "list<item: struct<x: string>>"),
    ],
)
def test_what_lists_and_objects_of_json_hold_arrives_as_it_is_spelled(tmp_path, values, kind):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"a": {value}}}\n' for value in values))
    assert str(survey(path).schema.field("a").type) == kind
    rows = read(path).rows
    assert all(is_the_same(row["a"], spelled(value)) for row, value in zip(rows, values, strict=True))


LATER_CSV = ["007,1.5,true", "9223372036854775808,1.5,true", "+5,1.5,true", "-0,1.5,true", "0x1f,1.5,true"]
LATER_CSV += ["1,9007199254740993,true", "1,1e400,true", "1,007,true", "1,1.5,1", "1,1.5,yes", "1.5,1.5,true"]
LATER_JSON = ['"i": 9223372036854775808', '"i": 1.5', '"f": 9007199254740993', '"l": [1, 9007199254740993]', '"b": 1']
LATER_JSON += ['"f": 12345678901234567890.0', '"f": 1e400', '"i": true', '"s": {"x": 9007199254740993}']


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_value_behind_the_first_megabyte_that_its_column_would_change_is_set_aside_and_names_types(tmp_path, kind):
    if kind == "csv":
        first, row, later = "i,f,b\n", "1,0.5,true\n", LATER_CSV
        asked = [f"column {name!r}" for name in "iiiiifffbbi"]
    else:
        first, row = "", '{"i": 1, "f": 0.5, "b": true, "l": [0.5], "s": {"x": 1.5}}\n'
        later = [f"{{{line}}}" for line in LATER_JSON]
        asked = [f"column '{name}'" for name in ("i", "i", "f", "l", "b", "f", "f", "i", "s.x")]
    count = (1 << 20) // len(row) + 100
    path = tmp_path / f"rows.{kind}"
    path.write_text(first + row * count + "".join(f"{line}\n{row}" for line in later))
    columns = ["i", "f", "b"] if kind == "csv" else ["i", "f", "b", "l", "s"]
    answer = read(path, columns=columns)
    assert len(answer.rows) == count + len(later)
    assert answer.raw == later
    assert [detail[: len(name)] for detail, name in zip(answer.details, asked, strict=True)] == asked
    assert all("`types: {" in detail or "of 's.x' in quotes" in detail for detail in answer.details)
    assert read(path, columns=columns, bytes_at_once=5000) == answer


def test_the_error_of_a_job_names_types_and_with_them_the_value_arrives(tmp_path):
    job: dict[str, Any] = {"path": str(tmp_path / "*.csv")}
    (tmp_path / "a.csv").write_text("id,x\n1,0.5\n")
    (tmp_path / "b.csv").write_text("id,x\n007,0.5\n")
    with pytest.raises(InputError, match=r"'007' is not int64.*`types: {id: string}`") as caught:
        open_run(tmp_path, input=job)
    assert "b.csv" in str(caught.value)
    dataset = open_run(tmp_path, input=job | {"types": {"id": "string"}})
    assert [dataset[row]["id"] for row in range(2)] == ["1", "007"]


def test_the_advice_about_a_value_inside_a_list_or_an_object_can_be_followed(tmp_path):
    first, later = '{"l": [0.5], "o": {"id": 0.5}}', ['{"l": [9007199254740993]}', '{"o": {"id": 9007199254740993}}']
    (tmp_path / "a.jsonl").write_text(first + "\n")
    path = tmp_path / "b.jsonl"
    path.write_text("\n".join(later) + "\n")
    in_list, in_object = read(path, schema=survey(tmp_path / "a.jsonl").schema).details
    assert in_list.endswith("`types: {l: list<string>}`")
    assert read(path, types={"l": "list<string>"}).rows[0]["l"] == ["9007199254740993"]
    assert "types:" not in in_object
    assert in_object.endswith("write all values of 'o.id' in quotes, or leave column 'o' out")


def test_with_set_aside_the_value_goes_to_rejected_and_all_others_arrive(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 0.5}\n')
    (tmp_path / "b.jsonl").write_text('{"x": 9007199254740993}\n{"x": 9007199254740992}\n')
    dataset = open_run(tmp_path, input=str(tmp_path / "*.jsonl"), on_bad_input="set_aside")
    assert [dataset[row]["x"] for row in range(len(dataset))] == [0.5, 9007199254740992.0]
    (line,) = rejected(tmp_path)
    assert line["raw"] == '{"x": 9007199254740993}'
    assert "`types: {x: string}`" in line["detail"]


def test_a_declared_type_is_what_was_asked_for(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n007,9007199254740993\n")
    assert read(tmp_path / "a.csv", types={"a": "int64", "b": "float64"}).rows == [{"a": 7, "b": 2.0**53}]
    (tmp_path / "a.jsonl").write_text('{"a": 9007199254740993, "b": 1.50}\n{"a": 1, "b": true}\n')
    rows = read(tmp_path / "a.jsonl", types={"a": "float64", "b": "string"}).rows
    assert rows == [{"a": 2.0**53, "b": "1.50"}, {"a": 1.0, "b": "true"}]


@pytest.mark.parametrize(
    ("kind", "declared", "value"),
    [
        ("csv", "float64", "1e400"),
        ("csv", "float32", "-1e39"),
        ("jsonl", "float64", "1e400"),
        ("jsonl", "float32", "1e39"),
        ("jsonl", "float16", "70000"),
        ("jsonl", "list<float32>", "[0.5, -1e39]"),
    ],
)
def test_a_declared_float_rounds_but_makes_no_infinity_of_a_number(tmp_path, kind, declared, value):
    path = tmp_path / f"a.{kind}"
    is_list = "list" in declared
    number = value.strip("[]").split(", ")[-1]
    infinity = "[Infinity]" if is_list else "inf" if kind == "csv" else "Infinity"
    values = [infinity, value, "null", value.replace(number, "0.1"), infinity]
    lines = [f"{value},1" if kind == "csv" else f'{{"a": {value}, "b": 1}}' for value in values]
    path.write_text("a,b\n" * (kind == "csv") + "\n".join(lines) + "\n")
    answer = read(path, types={"a": declared})
    assert answer.raw == [lines[1]]
    spelled = f"'{number}'" if kind == "csv" else number
    float_type = declared.removeprefix("list<").strip(">")
    assert answer.details == [f"column 'a': {spelled} is too large for {float_type}"]
    first, missing, rounded, last = (row["a"] for row in answer.rows)
    assert first == last == ([math.inf] if is_list else math.inf)
    assert missing is None
    assert np.allclose(rounded, [0.5, 0.1] if is_list else 0.1, rtol=1e-3)
    assert read(path, types={"a": declared}, bytes_at_once=7) == answer


@pytest.mark.parametrize(
    ("kind", "declared", "value"),
    [
        ("csv", "int8", "300"),
        ("csv", "uint64", "-1"),
        ("csv", "decimal128(9, 2)", "1.005"),
        ("csv", "timestamp[s]", "2020-01-01 00:00:00.5"),
        ("csv", "date32", "2020-01-01 12:00:00"),
        ("csv", "time32[s]", "12:00:00.5"),
        ("csv", "bool", "2"),
        ("jsonl", "int8", "300"),
        ("jsonl", "uint64", "-1"),
        ("jsonl", "int64", "1.5"),
        ("jsonl", "decimal128(9, 2)", "1.005"),
        ("jsonl", "timestamp[s]", '"2020-01-01 00:00:00.5"'),
        ("jsonl", "date32", '"2020-01-01 12:00:00"'),
        ("jsonl", "time32[s]", "86400"),
        ("jsonl", "time64[us]", "-1"),
        ("jsonl", "bool", "2"),
        ("jsonl", "float32", '"1.5"'),
    ],
)
def test_no_other_declared_type_cuts_a_value(tmp_path, kind, declared, value):
    path = tmp_path / f"a.{kind}"
    path.write_text(f"a,b\n{value},1\n" if kind == "csv" else f'{{"a": {value}}}\n')
    answer = read(path, types={"a": declared})
    assert not answer.rows
    assert value.strip('"') in answer.aside[0]["raw"]


def test_the_largest_number_that_float32_rounds_down_arrives_beside_bad_lines_too(tmp_path):
    smallest_too_large = 2**128 - 2**103
    lines = [f'{{"a": {smallest_too_large - 1}}}', f'{{"a": {smallest_too_large}}}', "bad"]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    answer = read(tmp_path / "a.jsonl", types={"a": "float32"})
    assert [row["a"] for row in answer.rows] == [float(2**128 - 2**104)]
    assert answer.raw == lines[1:]


HALF = r'{"a": "lone \ud83d half", "b": 1}'


@pytest.mark.parametrize("line", [HALF, HALF.replace('"b"', r'"b\ude00"')])
def test_half_a_character_in_the_first_rows_costs_its_own_row_alone(tmp_path, line):
    (tmp_path / "rows.jsonl").write_text('{"a": "x", "b": 2}\n' * 500 + line + "\n" + '{"a": "y", "b": 3}\n' * 500)
    dataset = open_run(tmp_path, input=str(tmp_path / "rows.jsonl"), on_bad_input="set_aside")
    assert [dataset[row]["a"] for row in range(len(dataset))] == ["x"] * 500 + ["y"] * 500
    assert [each["raw"] for each in rejected(tmp_path)] == [line]


def test_half_a_character_in_the_first_rows_is_repaired_where_that_is_asked_for(tmp_path):
    (tmp_path / "rows.jsonl").write_text(f'{{"a": "x", "b": 2}}\n{HALF}\n')
    answer = read(tmp_path / "rows.jsonl", bad_utf8="repair")
    assert answer.rows == [{"a": "x", "b": 2}, {"a": "lone \ufffd half", "b": 1}]
    assert not answer.aside


@pytest.mark.parametrize("kind", ["csv", "jsonl", "list"])
def test_a_declared_timestamp_neither_drops_nor_invents_a_zone(tmp_path, kind):
    zoned, plain = "2020-01-01T00:00:00+02:00", "2020-01-01T00:00:00"
    path = tmp_path / ("a.csv" if kind == "csv" else "a.jsonl")
    form = {"csv": "%s,1", "jsonl": '{"a": "%s"}', "list": '{"a": ["%s"]}'}[kind]
    path.write_text("a,b\n" * (kind == "csv") + "".join(form % value + "\n" for value in (zoned, plain)))
    word = "list<timestamp[us%s]>" if kind == "list" else "timestamp[us%s]"
    for zone, bad in (("", zoned), (", UTC", plain)):
        answer = read(path, types={"a": word % zone})
        assert answer.raw == [form % bad]
        assert bad in answer.details[0]
        (value,) = (row["a"][0] if kind == "list" else row["a"] for row in answer.rows)
        assert value.isoformat() == ("2019-12-31T22:00:00+00:00" if zone else plain)


@pytest.mark.parametrize("key", [r"caf\u00e9", r"caf\u00E9", r"\u0063afé", "café"])
def test_a_number_in_a_column_of_text_arrives_however_its_key_is_escaped(tmp_path, key):
    lines = ['{"café": 9007199254740993, "b": "x\\n"}', '{"café": 0.5}', f'{{"b": "\\"", "{key}" : 1.50}}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    answer = read(tmp_path / "a.jsonl")
    assert [row["café"] for row in answer.rows] == ["9007199254740993", "0.5", "1.50"]


def test_a_number_that_is_declared_as_text_is_found_at_its_own_place_alone(tmp_path):
    lines = ['{"a": 1, "d": {"a": 2, "l": [3]}, "l": ["x", 4]}', '{"d": {"a": 6}, "b": "\\"a\\": 7", "a": "8"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    rows = read(tmp_path / "a.jsonl", types={"a": "string", "b": "string", "l": "list<string>"}).rows
    assert [row["l"] for row in rows] == [["x", "4"], None]
    assert [row["a"] for row in rows] == ["1", "8"]
    assert [row["d"]["a"] for row in rows] == [2, 6]
    assert [row["b"] for row in rows] == [None, '"a": 7']


def test_a_word_for_null_may_look_like_a_number(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n-999,1.5\n007,0\n12,-999\n")
    rows = read(tmp_path / "a.csv", null_values=["-999", "007"]).rows
    assert rows == [{"a": None, "b": 1.5}, {"a": None, "b": 0.0}, {"a": 12, "b": None}]


NUMBERS = st.one_of(
    st.integers(-(2**66), 2**66).map(str),
    st.floats().map(repr),
    st.sampled_from([2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1]).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
)
TEXTS = st.one_of(
    NUMBERS,
    st.text("0123456789+-.eExX_ nNaAiIfF:TZ", min_size=1, max_size=8),
    st.sampled_from(["true", "True", "FALSE", "yes", "1", "0", "", "NA", "null", "00", "-0", "2020-01-01", "é", " 5"]),
)
NULLS = ("", "NA", "N/A", "NULL", "null")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("exact")


@pytest.mark.proof
@given(first=st.lists(TEXTS, min_size=1, max_size=5), later=st.lists(TEXTS, min_size=1, max_size=8))
def test_no_csv_value_is_changed_whatever_the_first_file_showed(folder, first, later):
    for name, values in (("a.csv", first), ("b.csv", later)):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(
                [("a", "b"), *((v, "x") for v in values)]
            )
    schema = survey(folder / "a.csv").schema
    answer = read(folder / "b.csv", schema=schema)
    assert repr(read(folder / "b.csv", schema=schema, bytes_at_once=7)) == repr(answer)
    got = dict(zip(answer.ordinals, (row["a"] for row in answer.rows), strict=True))
    start = len('"a","b"\n')
    for number, text in enumerate(later):
        if start + number in got and not (got[start + number] is None and text in NULLS):
            assert is_the_same(got[start + number], text)
    if str(schema.field("a").type) != "null":
        assert all("`types: {a: string}`" in detail for detail in answer.details)
    assert len(answer.rows) + len(answer.aside) == len(later)
    assert not read(folder / "a.csv").aside


JSON_NUMBERS = st.one_of(
    st.integers(-(2**66), 2**66).map(str),
    st.floats().map(json.dumps),
    st.sampled_from(["9007199254740993", "11400714819323198485", "12345678901234567890.0", "-0", "1e400", "1E5"]),
)
JSON_VALUES = st.one_of(
    JSON_NUMBERS,
    st.lists(JSON_NUMBERS, max_size=3).map(lambda values: f"[{', '.join(values)}]"),
    st.sampled_from(["true", "false", "null", '"x"', '"2020-01-01"', "[]", '["2020-01-01T00:00:00Z"]', "[[1.5]]"]),
)


@given(first=st.lists(JSON_VALUES, min_size=1, max_size=5), later=st.lists(JSON_VALUES, min_size=1, max_size=8))
def test_no_json_value_is_changed_whatever_the_first_file_showed(folder, first, later):
    for name, values in (("a.jsonl", first), ("b.jsonl", later)):
        (folder / name).write_text("".join(f'{{"a": {value}}}\n' for value in values))
    try:
        schema = survey(folder / "a.jsonl").schema
        answer = read(folder / "b.jsonl", schema=schema)
    except InputError as error:
        assert "types:" in str(error)
        return
    assert repr(read(folder / "b.jsonl", schema=schema, bytes_at_once=7)) == repr(answer)
    got = dict(zip(answer.ordinals, (row["a"] for row in answer.rows), strict=True))
    for number, text in enumerate(later):
        if number in got:
            assert is_the_same(got[number], spelled(text)), (got[number], text)
    assert len(answer.rows) + len(answer.aside) == len(later)
