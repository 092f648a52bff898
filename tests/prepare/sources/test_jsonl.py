"""JSONL: every object arrives once with its own values, or its line is set aside with its text and the reason."""

from __future__ import annotations

import bz2
import gzip
import json
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import InputError
from penstock.prepare.sources.reading.exact import KINDS, keeps
from penstock.prepare.sources.reading.json_literals import literals_in, plain_check
from penstock.prepare.sources.reading.json_records import JsonParser
from penstock.shards.schema import declared_type
from tests.prepare.sources.reader import read, survey

TYPES = {"a": "int64", "b": "string"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jsonl")


def write(folder: Path, data: bytes | str, name: str = "rows.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


OBJECTS = st.fixed_dictionaries(
    {"a": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), "b": st.one_of(st.none(), st.text(max_size=20))}
)
LINE_ENDS = st.sampled_from(["\n", "\r\n", "\n\n", "\n \t \n", "  \n", "\r\n\r\n"])


@pytest.mark.proof
@given(
    rows=st.lists(OBJECTS, min_size=1, max_size=25),
    ends=st.lists(LINE_ENDS, min_size=1),
    final=st.booleans(),
    mark=st.booleans(),
    ascii_only=st.booleans(),
    data=st.data(),
)
def test_cutting_a_file_anywhere_gives_the_rows_of_one_whole_read(folder, rows, ends, final, mark, ascii_only, data):
    lines = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    text = "".join(line + ends[i % len(ends)] for i, line in enumerate(lines))
    text = text if final else text.rstrip()
    path = write(folder, (b"\xef\xbb\xbf" if mark else b"") + text.encode())
    assert read(path, types=TYPES).rows == rows
    slice_bytes = data.draw(st.integers(1, len(text) + 1))
    cut = read(path, slice_bytes=slice_bytes, bytes_at_once=data.draw(st.integers(1, 64)), types=TYPES)
    assert cut.rows == rows
    assert cut.aside == []
    assert cut.ordinals == sorted(set(cut.ordinals))
    assert read(path, slice_bytes=slice_bytes, types=TYPES).ordinals == cut.ordinals


GOOD_LINES = st.sampled_from(
    ['{"a":1,"b":"x"}', '{"b":"é"}', "{}", ' {"a": 2 } ', '{"a":null}', '{"b":"}{"}', '{"a":-9223372036854775808}']
)
BAD_LINES = st.sampled_from(
    ["null", "nullnull", "[1]", "1", '"x"', "{", "}", '{"a":1}{"a":2}', '{"a":', "3}", '{"a":"x"}', '{"a":1.5}']
    + ['{"a":1,"a":2}', '{"b":7}', '{"a":true}', '{"c":1}', '{"a":1}null', '{"a":1} {"a":', '"b":"x"}', '{"a":1},{}']
    + ['{"a":NaN}', '{"a":Inf}', '{"b":"\\ud800"}', '{"a":9223372036854775808}', '{"a":{"b":1}}', '{"a":[1]}', "}{"]
)


@pytest.mark.proof
@given(
    lines=st.lists(st.one_of(GOOD_LINES, BAD_LINES), min_size=1, max_size=30),
    sizes=st.lists(st.integers(1, 200), min_size=2, max_size=2),
)
def test_bad_lines_stand_aside_and_all_others_arrive_whatever_their_neighbours(folder, lines, sizes):
    rows, raw, bad_lines = [], [], []
    for number, line in enumerate(lines):  # each line as the only one of its file: that is what it must be among others
        alone = read(write(folder, line + "\n", "alone.jsonl"), types=TYPES, columns=["a", "b"])
        assert len(alone.rows) + len(alone.raw) == 1
        rows += alone.rows
        raw += list(zip(alone.raw, alone.details, strict=True))
        bad_lines += [number + 1] * len(alone.raw)
    path = write(folder, "".join(f"{line}\n" for line in lines))
    answers = [
        read(path, types=TYPES, columns=["a", "b"], slice_bytes=60, bytes_at_once=size) for size in (*sizes, 1 << 20)
    ]
    for answer in answers:
        assert answer.rows == rows
        assert list(zip(answer.raw, answer.details, strict=True)) == raw
        assert [each["line"] for each in answer.aside] == bad_lines
        assert answer.ordinals == answers[0].ordinals


def test_a_bad_record_is_kept_with_its_file_position_reason_and_text(tmp_path):
    answer = read(write(tmp_path, '{"a":1}\nnull\n{"a":3}\n'), types={"a": "int64"})
    assert answer.rows == [{"a": 1}, {"a": 3}]
    assert answer.ordinals == [0, 2]
    assert answer.aside == [
        {
            "source": 0,
            "file": "rows.jsonl",
            "position": 1,
            "reason": "not a valid record",
            "line": 2,
            "detail": "not a JSON object",
            "raw": "null",
        }
    ]


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        ('{"a":1}{"a":2}', "not JSON: Extra data: line 1 column 8 (char 7)"),
        ('{"a":"x"}', "column 'a': \"x\" is not int64"),
        ('{"a":1,"a":2}', "JSON parse error: Column(/a) was specified twice"),
        ('{"a":9223372036854775808}', "Failed to convert JSON to int64, couldn't parse:9223372036854775808"),
    ],
)
def test_a_reason_says_what_is_wrong_with_the_line(tmp_path, line, detail):
    answer = read(write(tmp_path, f'{{"a":1}}\n{line}\n{{"a":2}}\n'), types={"a": "int64"})
    assert [row["a"] for row in answer.rows] == [1, 2]
    assert answer.raw == [line]
    assert answer.details == [detail]


def test_a_field_that_the_first_megabyte_did_not_show_makes_its_line_bad_unless_columns_are_chosen(tmp_path):
    first = "".join(f'{{"a":{i}}}\n' for i in range(120_000))
    path = write(tmp_path, first + '{"a":-1,"late":5}\n{"a":-2}\n')
    assert survey(path).schema.names == ["a"]
    answer = read(path)
    assert [row["a"] for row in answer.rows[-2:]] == [119_999, -2]
    assert answer.details == [
        "unexpected field 'late', which the first rows do not have: "
        "declare it, such as `types: {late: string}`, or `select` others"
    ]
    assert read(path, columns=["a"]).rows[-2:] == [{"a": -1}, {"a": -2}]
    assert read(path, types={"late": "int8"}).rows[-2] == {"a": -1, "late": 5}


def test_a_missing_field_is_null(tmp_path):
    path = write(tmp_path, '{"a":1}\n{"b":"x"}\n{}\n')
    assert read(path).rows == [{"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": None, "b": None}]


def test_an_object_may_not_span_lines(tmp_path):
    answer = read(write(tmp_path, '{"a":1}{"a":2}\n{"a":\n3}\n{"a":4}\n'), types={"a": "int64"})
    assert answer.rows == [{"a": 4}]
    assert answer.raw == ['{"a":1}{"a":2}', '{"a":', "3}"]


def test_text_that_is_not_utf8_is_set_aside_beside_other_bad_records(tmp_path):
    answer = read(write(tmp_path, b'{"a":1,"b":"caf\xe9"}\n{"a":2,"b":"ok"}\nnull\n{"a":3,"b":"\xff"}\n'))
    assert answer.rows == [{"a": 2, "b": "ok"}]
    assert [line["reason"] for line in answer.aside] == ["not a valid record"] + 2 * ["text is not UTF-8"]
    assert answer.aside[1]["row"] == {"a": 1, "b": "caf\\xe9"}
    assert answer.details[1] == "column 'b', byte 3 is 0xe9: unexpected end of data"
    assert [line["line"] for line in answer.aside] == [3, 1, 4]
    assert answer.ordinals == [1]


def test_bad_text_is_repaired_where_the_source_says_so(tmp_path):
    lines = [
        b'{"b":"caf\xe9!"}',
        b'{"b":"\\ud800x"}',
        b'{"b":"\\ud83d\\ude00 \\\\ud800"}',
        b'{"b":"\\uDC00\\uD83D"}',
        b"bad",
    ]
    path = write(tmp_path, b"".join(line + b"\n" for line in lines))
    answer = read(path, types={"b": "string"}, bad_utf8="repair")
    assert [row["b"] for row in answer.rows] == ["caf\ufffd!", "\ufffdx", "\U0001f600 \\ud800", "\ufffd\ufffd"]
    assert answer.raw == ["bad"]
    assert [line["line"] for line in read(path, types={"b": "string"}).aside] == [2, 4, 5, 1]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", None)])
def test_compressed_input_is_the_same_rows(tmp_path, suffix, pack):
    data = "\ufeff" + "".join(f'{{"a":{i},"b":"{"x" * (i % 50)}"}}\n' for i in range(2000)) + "bad\n"
    pack = pack or (lambda data: pa.compress(data, "zstd", asbytes=True))
    plain = read(write(tmp_path, data), bytes_at_once=1000)
    packed = read(write(tmp_path, pack(data.encode()), f"rows.jsonl{suffix}"), slice_bytes=100, bytes_at_once=777)
    assert packed.rows == plain.rows
    assert packed.raw == plain.raw == ["bad"]
    assert packed.ordinals == plain.ordinals


@pytest.mark.proof
@given(kept=st.floats(0.05, 0.999), size=st.integers(50, 20_000), suffix=st.sampled_from(["gz", "zst"]))
def test_where_a_compressed_file_breaks_off_no_batch_size_changes_what_arrives(folder, kept, size, suffix):
    data = "".join(f'{{"a":{i * i}}}\n' for i in range(1000)).encode()
    packed = {"gz": gzip.compress(data), "zst": pa.compress(data, "zstd", asbytes=True)}
    path = write(folder, packed[suffix][: int(kept * len(packed[suffix]))], f"rows.jsonl.{suffix}")
    try:
        answer = read(path, types={"a": "int64"})
    except InputError as error:
        assert "cannot be decompressed" in str(error)
        return
    assert [row["a"] for row in answer.rows] == [i * i for i in range(len(answer.rows))]
    assert [line["reason"] for line in answer.aside] == ["the file breaks off"]
    assert read(path, types={"a": "int64"}, bytes_at_once=size) == answer


def test_types_are_told_by_the_first_megabyte_and_times_stay_text(tmp_path):
    path = write(tmp_path, '{"i":1,"f":1.5,"b":true,"s":"x","t":"2020-01-01","n":null,"l":[1,2],"d":{"x":1}}\n')
    kinds = {field.name: str(field.type) for field in survey(path).schema}
    assert kinds.pop("d").startswith("struct")
    assert kinds.pop("l").startswith("list<")
    assert kinds == {"i": "int64", "f": "double", "b": "bool", "s": "string", "t": "string", "n": "null"}


def test_types_are_told_by_the_good_lines_among_bad_ones(tmp_path):
    path = write(tmp_path, b'null\n{"a":1}\n{"a":\n[2]\n{"a":1,"a":2}\n{"a":3,"b":"\xff"}\n')
    assert survey(path).schema == pa.schema([("a", pa.int64()), ("b", pa.string())])


def test_a_column_is_of_the_kind_that_most_of_its_values_are(tmp_path):
    path = write(tmp_path, '{"a":null,"b":"?"}\n{"a":"seven","b":1}\n{"a":3,"b":2.5}\n{"a":4,"b":3}\n{"c":true}\n')
    assert survey(path).schema == pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.bool_())])
    answer = read(path)
    assert [row["a"] for row in answer.rows] == [3, 4, None]
    assert [detail.partition(",")[0] for detail in answer.details] == [
        "column 'b': \"?\" is not float64",
        "column 'a': \"seven\" is not int64",
    ]
    draw = write(tmp_path, '{"a":null}\n{"a":"x"}\n{"a":1}\n')
    assert survey(draw).schema == pa.schema([("a", pa.string())])


def test_a_declared_type_holds_although_most_lines_of_the_sample_break_it(tmp_path):
    path = write(tmp_path, '{"a":"x","b":1}\n{"a":"y","b":2}\n{"a":3,"b":3}\n')
    assert survey(path, types={"a": "int32"}).schema == pa.schema([("a", pa.int32()), ("b", pa.int64())])
    assert [row["a"] for row in read(path, types={"a": "int32"}).rows] == [3]


def test_values_that_no_column_can_hold_together_are_told_at_the_survey(tmp_path):
    path = write(tmp_path, '{"a":[1]}\n{"a":["x"]}\n')
    with pytest.raises(InputError, match="cannot tell the columns") as caught:
        survey(path)
    assert "types:" in caught.value.next_step


@pytest.mark.parametrize(
    ("word", "good", "bad"),
    [
        ("int8", "5", "300"),
        ("uint64", "18446744073709551615", "-1"),
        ("float16", "0.5", '"x"'),
        ("float32", "1", "true"),
        ("bool", "true", "1"),
        ("string", '"x"', '{"b": 5}'),
        ("large_string", '"x"', "[5]"),
        ("dictionary<string>", '"x"', "[false]"),
        ("fixed_size_binary[2]", '"ab"', '"abc"'),
        ("decimal128(5, 2)", '"1.25"', '"x"'),
        ("timestamp[us]", '"2020-01-02 03:04:05"', '"yesterday"'),
        ("timestamp[ms, UTC]", '"2020-01-02T03:04:05Z"', '"yesterday"'),
        ("date32", '"2020-01-02"', '"2020-13-02"'),
        ("time32[s]", "61", '"noon"'),
        ("duration[s]", "7", '"x"'),
        ("list<float32>", "[0.5]", '["x"]'),
        ("large_list<int16>", "[1]", "[1.5]"),
        ("fixed_size_list<float32>[2]", "[0.5, 1]", "[0.5]"),
        ("fixed_size_list<float16>[1]", "[0.5]", "[]"),
    ],
)
def test_every_declared_type_is_read_and_its_bad_values_are_told(tmp_path, word, good, bad):
    path = write(tmp_path, f'{{"a":{good}}}\n{{"a":null}}\n{{"a":{bad}}}\n{{"a":{good}}}\n{{}}\n')
    answer = read(path, types={"a": word})
    assert survey(path, types={"a": word}).schema.field("a").type == declared_type(word)
    assert [row["a"] is None for row in answer.rows] == [False, True, False, True]
    assert answer.raw == [f'{{"a":{bad}}}']


def test_a_first_line_longer_than_the_sample_tells_its_types(tmp_path):
    text = "x" * (3 << 20)
    path = write(tmp_path, f'{{"b":"{text}"}}\n{{"b":"y"}}\n')
    assert survey(path).schema == pa.schema([("b", pa.string())])
    assert [len(row["b"]) for row in read(path, bytes_at_once=1000, slice_bytes=1 << 20).rows] == [len(text), 1]


@pytest.mark.parametrize("data", ["[\n 1,\n 2\n]\n", "null\n", "a,b\n1,2\n"])
def test_a_file_without_one_object_is_refused_by_name_unless_its_columns_are_declared(tmp_path, data):
    path = write(tmp_path, data)
    with pytest.raises(InputError) as caught:
        survey(path)
    assert "no line of it is a JSON object" in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(read(path, types=TYPES).aside) == data.count("\n")


@pytest.mark.parametrize("data", ["", "\n \n", "\ufeff"])
def test_an_empty_file_is_a_file_of_no_rows(tmp_path, data):
    assert read(write(tmp_path, data), types=TYPES).rows == []


WORDS = ["1", "1.5", "1e3", "-0", "true", "null", '"x"', "NaN", "-NaN", "Inf", "-Inf", "Infinity", "[1]", "{}", "nan"]


@pytest.mark.proof
@given(random=st.text('0123456789.-+eE"{}[],:aInf\\', max_size=6))
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.timestamp("s")], ids=str)
def test_no_line_that_the_parser_takes_is_refused_at_sight(kind, random):
    schema = pa.schema([("a", kind)])
    parser = JsonParser(schema, schema, strict=True)
    for value in (*WORDS, random):
        line = f'{{"a":{value}}}\n'.encode()
        if parser.refused([line]):
            try:
                assert parser.parse(line).num_rows > 1, line
            except pa.ArrowException:
                continue


def test_numbers_that_json_does_not_have_are_read_where_most_writers_write_them(tmp_path):
    path = write(tmp_path, '{"a":NaN}\n{"a":-NaN}\n{"a":Inf}\n{"a":-Infinity}\nbad\n')
    answer = read(path, types={"a": "float64"})
    assert str([row["a"] for row in answer.rows]) == "[nan, nan, inf, -inf]"


@given(
    sizes=st.lists(st.integers(1, 60), max_size=14),
    most=st.integers(20, 60),
    slice_bytes=st.integers(1, 400),
    at_once=st.integers(1, 300),
    final=st.booleans(),
)
def test_a_line_that_is_longer_than_may_be_held_is_set_aside_however_the_file_is_cut(
    tmp_path_factory, sizes, most, slice_bytes, at_once, final
):
    lines = [json.dumps({"n": number, "t": "x" * size}) for number, size in enumerate(sizes)]
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    path.write_text("\n".join(lines) + ("\n" if final and lines else ""))
    ends = [len(line) + (final or number < len(lines) - 1) for number, line in enumerate(lines)]
    found = read(
        path,
        slice_bytes=slice_bytes,
        bytes_at_once=at_once,
        most_record_bytes=most,
        types={"n": "int64", "t": "string"},
    )
    assert [row["n"] for row in found.rows] == [number for number, end in enumerate(ends) if end <= most]
    assert [aside["line"] for aside in found.aside] == [n + 1 for n, end in enumerate(ends) if end > most]
    assert [aside["raw"] for aside in found.aside] == [lines[n][:most] for n, end in enumerate(ends) if end > most]
    assert {aside["reason"] for aside in found.aside} <= {"record too large for this memory"}
    places = sorted([*found.ordinals, *(aside["position"] for aside in found.aside)])
    assert len(set(places)) == len(lines)


DEEP = "[" * 10_000 + "1" + "]" * 10_000


def test_a_line_that_nests_ten_thousand_levels_deep_is_a_bad_record_wherever_it_stands(tmp_path):
    first = read(write(tmp_path, f'{{"a":1,"d":{DEEP}}}\n{{"a":2,"d":[3]}}\n'))
    later = read(write(tmp_path, f'{{"a":2,"d":[3]}}\n{{"a":1,"d":{DEEP}}}\n'))
    assert first.rows == later.rows == [{"a": 2, "d": [3]}]
    assert first.details == later.details == ["its lists and objects nest more than 100 levels deep"]


def test_a_line_that_nests_deep_in_a_column_that_is_not_read_is_an_ordinary_one(tmp_path):
    path = write(tmp_path, f'{{"a":1,"d":{DEEP}}}\n{{"a":2}}\nbad\n')
    assert read(path, columns=["a"]).rows == [{"a": 1}, {"a": 2}]


def test_a_file_of_nothing_but_deep_lines_is_refused_by_name(tmp_path):
    objects = '{"x":' * 10_000 + "1" + "}" * 10_000
    for value in (DEEP, objects):
        with pytest.raises(InputError, match="nest more than 100 levels deep"):
            survey(write(tmp_path, f'{{"d":{value}}}\n'))


def test_the_text_beside_a_value_that_nests_deep_is_found(tmp_path):
    path = write(tmp_path, f'{{"body":"x","d":{DEEP}}}\n{{"body":"y"}}\n')
    assert read(path, text_column="body").rows == [{"text": "x"}, {"text": "y"}]


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(json.dumps),
    st.sampled_from(["1e3", "1E400", "-0", "1.0", "true", "null", '"x"', "9007199254740993", "1.5e-9"]),
)


@given(number=NUMBERS, shape=st.sampled_from(["{}", "[{}]", '{{"b":{}}}', '[{{"b":[{}, 1]}}]', '{{"c":{}}}']))
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.float64(), pa.bool_(), pa.string()], ids=str)
def test_a_quick_look_and_a_close_one_agree_about_every_number(kind, number, shape):
    inside = {"{}": kind, "[{}]": pa.list_(kind)}.get(shape, pa.struct([("b", kind)]))
    inside = pa.list_(pa.struct([("b", pa.list_(kind))])) if shape.startswith("[{{") else inside
    value = shape.format(number)
    if plain_check(inside)(json.loads(value)):
        literals = literals_in(f'{{"a":{value}}}'.encode(), pa.schema([("a", inside)]))
        assert all(keeps("0" if each.text == "-0" else each.text, kind) for each in literals if kind in KINDS)


def test_a_bad_line_does_not_make_all_lines_around_it_slow(tmp_path):
    """Calls of Python functions stand for time, which tests do not measure."""
    lines = [json.dumps({"a": n, "b": f"word {n}", "c": [n / 7, n / 9], "d": {"e": n}}) for n in range(2000)]
    lines[5::100] = ['{"a": 1, "b'] * 20
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    path = write(tmp_path, "\n".join(lines) + "\n")
    sys.setprofile(count)
    try:
        answer = read(path)
    finally:
        sys.setprofile(None)
    assert (len(answer.rows), len(answer.aside)) == (1980, 20)
    assert calls < 50 * len(lines)
