"""CSV: every row arrives once with its own values, or is set aside with its text and the reason."""

from __future__ import annotations

import bz2
import gzip
import io
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.base.errors import InputError
from penstock.prepare.sources import UnreadablePart
from penstock.prepare.sources.reading.csv_records import CsvParser, Dialect, quoted_ends
from tests.prepare.sources.reader import read, survey


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("csv")


def write(folder: Path, data: bytes, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


# Rows as they are written, and a mix of line ends, blank lines and a last line with or without its newline.
INT_TEXT_ROWS = st.lists(
    st.tuples(st.integers(-(10**12), 10**12), st.text("abcé ,\"'", max_size=12)), min_size=1, max_size=25
)
LINE_ENDS = st.sampled_from(["\n", "\r\n", "\n\n", "\r\n\r\n", "\n\r\n"])


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@pytest.mark.proof
@given(
    rows=INT_TEXT_ROWS, ends=st.lists(LINE_ENDS, min_size=1), final=st.booleans(), mark=st.booleans(), data=st.data()
)
def test_cutting_a_file_anywhere_gives_the_rows_of_one_whole_read(folder, rows, ends, final, mark, data):
    lines = [f"{number},{quoted(text)}" for number, text in rows]
    text = "a,b\n" + "".join(line + ends[i % len(ends)] for i, line in enumerate(lines))
    text = text if final else text.rstrip("\r\n")
    path = write(folder, (b"\xef\xbb\xbf" if mark else b"") + text.encode())
    expected = [{"a": number, "b": text} for number, text in rows]
    types = {"a": "int64", "b": "string"}
    whole = read(path, types=types)
    assert whole.rows == expected
    slice_bytes = data.draw(st.integers(1, len(text) + 1))
    cut = read(path, slice_bytes=slice_bytes, bytes_at_once=data.draw(st.integers(1, 64)), types=types)
    assert cut.rows == expected
    assert cut.ordinals == sorted(set(cut.ordinals))
    assert read(path, slice_bytes=slice_bytes, types=types).ordinals == cut.ordinals


@given(
    rows=st.lists(st.tuples(st.integers(0, 99), st.text('ab\n\r",', max_size=10)), min_size=1), size=st.integers(1, 50)
)
def test_values_may_hold_newlines_where_the_job_says_so(folder, rows, size):
    text = "a,b\n" + "".join(f"{number},{quoted(text)}\n" for number, text in rows)
    path = write(folder, text.encode())
    options = {"types": {"a": "int64", "b": "string"}, "newlines_in_values": True}
    answer = read(path, slice_bytes=7, bytes_at_once=size, **options)
    assert answer.rows == [{"a": number, "b": text} for number, text in rows]
    assert answer.aside == []
    assert read(path, **options).ordinals == answer.ordinals


@given(line=st.text('ab1",\r', min_size=1, max_size=10).map(str.encode))
def test_a_line_is_refused_exactly_when_the_parser_does_not_see_one_row_in_it(line):
    parser = CsvParser(Dialect(("a", "b"), 0, ",", False, ()), pa.schema([("a", pa.string()), ("b", pa.string())]))
    assume(line.strip(b"\r"))
    followed = parsed_rows(line + b"\nlast,row\n")  # an open quote would swallow it
    is_one_row = followed[1:] == [("last", "row")] and followed[0] != "bad"
    assert (parser.refused([line + b"\n"]) == {}) == is_one_row or line.startswith(b"\r")


def parsed_rows(data: bytes) -> list[tuple[str, str] | str]:
    bad = []
    table = arrow_csv.read_csv(
        io.BytesIO(data),
        read_options=arrow_csv.ReadOptions(column_names=["a", "b"], use_threads=False),
        parse_options=arrow_csv.ParseOptions(invalid_row_handler=lambda row: bad.append(row.number) or "skip"),
        convert_options=arrow_csv.ConvertOptions(column_types={"a": pa.string(), "b": pa.string()}),
    )
    rows: list[tuple[str, str] | str] = list(zip(*table.to_pydict().values(), strict=True))
    for number in bad:
        rows.insert(number - 1, "bad")
    return rows


@given(data=st.text('a,"\n', max_size=60).map(str.encode))
def test_records_end_where_a_reader_that_goes_byte_by_byte_says(data):
    ends, inside, at_start, position = [], False, True, 0
    while position < len(data):
        byte = data[position : position + 1]
        position += 1
        if inside:
            if byte == b'"':
                if data[position : position + 1] == b'"':
                    position += 1
                else:
                    inside = False
        elif byte == b'"' and at_start:
            inside = True
        elif byte == b"\n":
            ends.append(position)
        at_start = not inside and byte in (b",", b"\n")
    assert quoted_ends(data, ",").tolist() == ends


GOOD_LINES = st.tuples(st.integers(0, 999), st.sampled_from(["x", "y z", '"q,q"', '5" disk'])).map(
    lambda row: f"{row[0]},{row[1]}"
)
BAD_LINES = st.sampled_from(
    ["x,y", "1", "1,2,3", '7,"open', "1.5,y", "99999999999999999999,y", "None,y", "5,a\rb", "8,9\r10,11", "\r", " "]
)


@pytest.mark.proof
@given(
    lines=st.lists(st.one_of(GOOD_LINES, BAD_LINES), min_size=1, max_size=30),
    sizes=st.lists(st.integers(1, 200), min_size=2, max_size=2),
)
def test_bad_lines_stand_aside_and_all_others_arrive_whatever_their_neighbours(folder, lines, sizes):
    types = {"a": "int64", "b": "string"}
    rows, raw, bad_lines = [], [], []
    for number, line in enumerate(lines):  # each line as the only one of its file: that is what it must be among others
        alone = read(write(folder, f"a,b\n{line}\n".encode(), "alone.csv"), types=types)
        assert len(alone.rows) + len(alone.raw) == (1 if line.strip("\r") else 0)
        rows += alone.rows
        raw += list(zip(alone.raw, alone.details, strict=True))
        bad_lines += [number + 2] * len(alone.raw)
    path = write(folder, ("a,b\n" + "".join(f"{line}\n" for line in lines)).encode())
    answers = [read(path, types=types, slice_bytes=60, bytes_at_once=size) for size in (*sizes, 1 << 20)]
    for answer in answers:
        assert answer.rows == rows
        assert list(zip(answer.raw, answer.details, strict=True)) == raw
        assert [each["line"] for each in answer.aside] == bad_lines
        assert answer.ordinals == answers[0].ordinals
        positions = sorted(answer.ordinals + [line["position"] for line in answer.aside])
        assert positions == sorted(set(positions))


def test_a_bad_record_is_kept_with_its_file_position_reason_and_text(tmp_path):
    answer = read(write(tmp_path, b"a,b\n1,x\nNone,y\n3,z\n"), types={"a": "int64"})
    assert answer.rows == [{"a": 1, "b": "x"}, {"a": 3, "b": "z"}]
    assert answer.aside == [
        {
            "source": 0,
            "file": "rows.csv",
            "position": 5,
            "reason": "not a valid record",
            "line": 3,
            "detail": "column 'a': 'None' is not int64",
            "raw": "None,y",
        }
    ]


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        ("1,2,3", "expected 2 columns, got 3"),
        ("1", "expected 2 columns, got 1"),
        ("one,x", "column 'a': 'one' is not int64"),
        ("99999999999999999999,x", "column 'a': '99999999999999999999' is not int64"),
        (
            "0xfffffffffffffffff,x",
            "In CSV column #0: CSV conversion error to int64: invalid value '0xfffffffffffffffff'",
        ),
        ("5,a\rb", "a carriage return without a newline stands between its values"),
    ],
)
def test_a_reason_says_what_is_wrong_with_the_line(tmp_path, line, detail):
    answer = read(write(tmp_path, f"a,b\n1,x\n{line}\n2,y\n".encode()), types={"a": "int64"})
    assert [row["a"] for row in answer.rows] == [1, 2]
    assert answer.raw == [line]
    assert answer.details == [detail]


def test_a_quoted_newline_where_none_is_allowed_is_told_and_names_the_option(tmp_path):
    path = write(tmp_path, b'a,b\n1,"two\nlines"\n3,z\n')
    answer = read(path, types={"a": "int64"})
    assert answer.rows == [{"a": 3, "b": "z"}]
    assert answer.raw == ['1,"two', 'lines"']
    assert "newlines_in_values: true" in answer.details[0]
    assert read(path, newlines_in_values=True).rows == [{"a": 1, "b": "two\nlines"}, {"a": 3, "b": "z"}]


def test_a_line_that_is_two_rows_does_not_make_up_for_two_lines_that_are_one(tmp_path):
    answer = read(write(tmp_path, b'a,b\n1,"x\n2,y"\n3,4\r5,6\n7,z\n'), types={"b": "string"})
    assert answer.rows == [{"a": 2, "b": 'y"'}, {"a": 7, "b": "z"}]
    assert answer.raw == ['1,"x', "3,4\r5,6"]


def test_a_quote_that_never_ends_takes_only_what_it_opened(tmp_path):
    path = write(tmp_path, b'a,b\n1,5" disk\n2,"x\ny"\n3,"open\n4,z\n')
    answer = read(path, newlines_in_values=True)
    assert answer.rows == [{"a": 1, "b": '5" disk'}, {"a": 2, "b": "x\ny"}]
    assert answer.raw == ['3,"open\n4,z']
    assert answer.details == ["a value starts with a quote that never ends"]


def test_text_that_is_not_utf8_is_set_aside_beside_other_bad_records(tmp_path):
    path = write(tmp_path, b"a,b\n1,caf\xe9\n2,ok\nbad,x\n3,\xff\n")
    answer = read(path, types={"a": "int64"})
    assert survey(path, types={"a": "int64"}).schema.field("b").type == pa.string()
    assert answer.rows == [{"a": 2, "b": "ok"}]
    assert [line["reason"] for line in answer.aside] == ["not a valid record"] + 2 * ["text is not UTF-8"]
    assert answer.aside[1]["row"] == {"a": 1, "b": "caf\\xe9"}
    assert [line["position"] for line in answer.aside] == [6, 4, 7]
    assert answer.ordinals == [5]


def test_a_tab_separated_row_of_empty_values_is_a_row(tmp_path):
    path = write(tmp_path, b"a\tb\n1\t2\n\t\n3\t4\n", "rows.tsv")
    assert [row["a"] for row in read(path).rows] == [1, None, 3]


def test_a_line_of_spaces_is_a_value_and_an_empty_line_is_nothing(tmp_path):
    path = write(tmp_path, b"a\nx\n\n \n   \n\r\ny\n")
    assert [row["a"] for row in read(path).rows] == ["x", " ", "   ", "y"]


def test_tab_is_the_delimiter_of_tsv_files_alone(tmp_path):
    (tmp_path / "my.tsv.d").mkdir()
    assert survey(write(tmp_path / "my.tsv.d", b"a,b\n1,2\n")).schema.names == ["a", "b"]
    packed = tmp_path / "rows.TSV.gz"
    packed.write_bytes(gzip.compress(b"a\tb\n1\t2\n"))
    assert survey(packed).schema.names == ["a", "b"]


def test_a_delimiter_and_words_for_null_of_ones_own(tmp_path):
    path = write(tmp_path, b"a;b\n1;-\n-;2.5\n")
    answer = read(path, delimiter=";", null_values=["-"])
    assert answer.rows == [{"a": 1, "b": None}, {"a": None, "b": 2.5}]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".zst", None)])
def test_compressed_input_is_the_same_rows(tmp_path, suffix, pack):
    data = b"a,b\n" + b"".join(b"%d,%s\n" % (i, b"x" * (i % 50)) for i in range(2000)) + b"bad\n"
    pack = pack or (lambda data: pa.compress(data, "zstd", asbytes=True))
    plain = read(write(tmp_path, data), bytes_at_once=1000)
    packed = read(write(tmp_path, pack(data), f"rows.csv{suffix}"), slice_bytes=100, bytes_at_once=777)
    assert packed.rows == plain.rows
    assert packed.raw == plain.raw == ["bad"]
    assert packed.ordinals == plain.ordinals


ROWS = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(1000))


@pytest.mark.proof
@pytest.mark.parametrize("zeros", [1, 512, 200_000])
@pytest.mark.parametrize("members", [1, 2, 100])
def test_a_gzip_file_may_have_many_members_and_end_in_zeros(tmp_path, zeros, members):
    cuts = [len(ROWS) * number // members for number in range(members + 1)]
    packed = b"".join(gzip.compress(ROWS[start:stop]) for start, stop in pairwise(cuts))
    path = write(tmp_path, packed + bytes(zeros), "rows.csv.gz")
    plain = read(write(tmp_path, ROWS))
    for size in (100, 1 << 20):
        assert read(path, bytes_at_once=size).rows == plain.rows


@pytest.mark.parametrize("end", [b"garbage", b"\0\0garbage"])
def test_what_follows_a_gzip_member_and_is_neither_another_nor_zeros_is_refused(tmp_path, end):
    path = write(tmp_path, gzip.compress(ROWS) + end, "rows.csv.gz")
    with pytest.raises((InputError, UnreadablePart), match="incorrect header check"):
        read(path)


def test_a_compressed_file_smaller_than_its_header_loses_no_row(tmp_path):
    header = b",".join(b"column_%03d" % i for i in range(100))
    path = write(tmp_path, gzip.compress(header + b"\n" + b",".join([b"1"] * 100) + b"\n"), "wide.csv.gz")
    assert path.stat().st_size < len(header)
    assert len(read(path).rows) == 1


@pytest.mark.proof
@pytest.mark.parametrize(
    ("suffix", "pack"),
    [
        (".gz", gzip.compress),
        (".bz2", lambda data: bz2.compress(data, 1)),
        (".zst", lambda data: pa.compress(data, "zstd", asbytes=True)),
    ],
    ids=["gzip", "bz2", "zstd"],
)
def test_of_a_compressed_file_that_breaks_off_the_whole_rows_arrive_and_the_break_is_told(tmp_path, suffix, pack):
    data = b"a,b\n" + b"".join(b"%d,%x\n" % (i, hash(i * i) * 2654435761 % 2**64) for i in range(20_000))
    path = write(tmp_path, pack(data)[: -len(pack(data)) // 10], f"rows.csv{suffix}")
    answer = read(path, types={"a": "int64", "b": "string"})
    assert [row["a"] for row in answer.rows] == list(range(len(answer.rows)))
    assert 3_000 < len(answer.rows) < 20_000
    (line,) = answer.aside
    assert (line["file"], line["reason"]) == (path.name, "the file breaks off")
    assert (line["position"], line["line"]) == (4 + len(answer.rows), 2 + len(answer.rows))
    assert data[4:].split(b"\n")[len(answer.rows)].startswith(line["raw"].encode())
    for size in (3000, 1 << 17):
        assert read(path, types={"a": "int64", "b": "string"}, bytes_at_once=size) == answer


def test_a_compressed_file_of_which_nothing_comes_out_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="cannot be decompressed"):
        survey(write(tmp_path, gzip.compress(b"a,b\n1,2\n")[:9], "early.csv.gz"))


def test_a_compressed_file_that_is_damaged_is_unreadable_as_a_whole(tmp_path):
    whole = bytearray(gzip.compress(b"a\n" + b"".join(b"%d\n" % (i * i) for i in range(150_000))))
    whole[-6] ^= 1  # of its checksum
    with pytest.raises(UnreadablePart) as caught:
        read(write(tmp_path, bytes(whole), "rows.csv.gz"))
    assert (caught.value.part, caught.value.rows, caught.value.segment.path) == (0, -1, "rows.csv.gz")


def test_types_are_told_by_the_first_megabyte_and_times_stay_text(tmp_path):
    path = write(tmp_path, b"i,f,b,s,t,n\n1,1.5,true,x,2020-01-01,\n2,2,false,y,2020-01-02,\n")
    kinds = {field.name: str(field.type) for field in survey(path).schema}
    assert kinds == {"i": "int64", "f": "double", "b": "bool", "s": "string", "t": "string", "n": "null"}


def test_types_are_told_by_the_good_lines_among_bad_ones(tmp_path):
    path = write(tmp_path, b'a,b\nx\n1,2.5\n1,2,3\n\n4,"5"\n7\n')
    assert survey(path).schema == pa.schema([("a", pa.int64()), ("b", pa.float64())])
    assert read(path).rows == [{"a": 1, "b": 2.5}, {"a": 4, "b": 5.0}]


def test_a_declared_type_holds_although_a_line_of_the_sample_breaks_it(tmp_path):
    path = write(tmp_path, b"a,b\n1,x\nnot a number,y\n3,z\n")
    assert survey(path, types={"a": "int32"}).schema.field("a").type == pa.int32()
    assert [row["a"] for row in read(path, types={"a": "int32"}).rows] == [1, 3]


def test_the_only_row_tells_its_types_without_a_newline_at_its_end(tmp_path):
    assert read(write(tmp_path, b"a,b\n1,x")).rows == [{"a": 1, "b": "x"}]


def test_a_file_of_nothing_but_bad_lines_sets_each_of_them_aside(tmp_path):
    answer = read(write(tmp_path, b"a,b\n1\n2\n1,2,3\n"), types={"a": "int64", "b": "string"})
    assert answer.rows == []
    assert answer.raw == ["1", "2", "1,2,3"]


def test_a_header_alone_is_a_file_of_no_rows(tmp_path):
    for data in (b"a,b\n", b"a,b", b"a,b\r\n"):
        path = write(tmp_path, data)
        assert survey(path).schema.names == ["a", "b"]
        assert read(path, types={"a": "int64", "b": "string"}).rows == []


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (b"", {}, "the file is empty"),
        (b"\n\n", {}, "the file is empty"),
        (b"a,b\r1,2\r3,4\r", {}, "carriage return alone"),
        (b'"a\nb",c\n1,2\n', {}, "newlines_in_values"),
        (b"a,b,a\n1,2,3\n", {}, "column 'a' occurs twice"),
        (b"\xff\xfea\x00,\x00b\x00\n\x00", {}, "the file is utf-16, as its first bytes say"),
        (b"x" * (1 << 20) + b"yz,b\n1,2\n", {}, "longer than 1,048,576 bytes"),
        (b"time,b\n1,2\n", {"types": {"tiem": "int64"}}, "'tiem' that does not exist. Did you mean 'time'"),
        (b"a,b\n1,2\n", {"types": {"a": "list<int64>"}}, "column 'a' cannot be list"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name_at_the_survey(tmp_path, data, options, message):
    path = write(tmp_path, data)
    with pytest.raises(InputError) as caught:
        survey(path, **options)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_only_the_wanted_columns_are_read_and_checked(tmp_path):
    path = write(tmp_path, b"a,b,c\n1,x,2\n3,\xff,oops\n")
    answer = read(path, columns=["c", "a"], types={"c": "string"})
    assert answer.rows == [{"c": "2", "a": 1}, {"c": "oops", "a": 3}]


def test_every_declared_type_is_read(tmp_path):
    path = write(tmp_path, b"a,b,c,d,e\n1,2020-01-02 03:04:05,1.25,abc,x\n2,2020-01-02 03:04:06,2.50,abd,y\n")
    types = {"a": "uint8", "b": "timestamp[ms]", "c": "decimal128(5, 2)", "d": "fixed_size_binary[3]"}
    types["e"] = "dictionary<string>"
    answer = read(path, types=types, bytes_at_once=40)
    assert str(answer.rows[1]["b"]) == "2020-01-02 03:04:06"
    assert str(answer.rows[1]["c"]) == "2.50"
    assert [row["d"] for row in answer.rows] == [b"abc", b"abd"]
    assert [row["e"] for row in answer.rows] == ["x", "y"]


VALUES = st.one_of(
    st.text("0123456789+-.eExX nNaAiIfF:TZ", max_size=8),
    st.sampled_from(
        ["true", "True", "FALSE", " 1 ", "0x1f", "inf", "-Infinity", "nan", "2020-01-01", "2020-01-01T12:00Z"]
    ),
    st.sampled_from(
        ["12:30:00", "12:30", "\t5", "127", "128", "-128", "-129", "-0", "255", "256", "18446744073709551615"]
    ),
    st.sampled_from(["9223372036854775807", "9223372036854775808", "-9223372036854775808", "NA", " NA", "1.", ".5"]),
)


@pytest.mark.proof
@given(values=st.lists(VALUES, min_size=1, max_size=10))
@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.bool_(), pa.decimal128(9, 2)]
    + [pa.timestamp("us"), pa.timestamp("s", "UTC"), pa.date32(), pa.time32("s"), pa.time64("ns"), pa.duration("s")],
    ids=str,
)
def test_no_value_that_the_parser_takes_is_refused_at_sight(kind, values):
    parser = CsvParser(Dialect(("a", "b"), 0, ",", False, ("NA",)), pa.schema([("a", kind)]))
    for value in values:
        record = f"{value},x\n".encode()
        if parser.refused([record]):
            with pytest.raises(pa.ArrowInvalid):
                parser.parse(record)


def test_long_lines_and_small_chunks(tmp_path):
    rows = [str(i) * (1 + 1000 * i) for i in range(10)]
    path = write(tmp_path, ("a,b\n" + "".join(f"{i},{row}\n" for i, row in enumerate(rows))).encode())
    answer = read(path, types={"b": "string"}, slice_bytes=1500, bytes_at_once=100)
    assert [row["b"] for row in answer.rows] == rows


def test_a_header_with_another_delimiter_is_refused_with_the_option_to_set(tmp_path):
    path = write(tmp_path, b"patient;temperature\nP1;36,7\nP2;37,1\n")
    with pytest.raises(InputError, match="values seem to be separated by ';'") as refused:
        survey(path)
    assert 'delimiter: ";"' in refused.value.next_step
    assert survey(path, delimiter=";").schema.names == ["patient", "temperature"]
    assert survey(path, delimiter=",").schema.names == ["patient;temperature"]


def test_a_bad_row_that_is_not_utf8_is_told_like_any_other(tmp_path, capfd):
    path = write(tmp_path, "a,b\n1,ä\n2,ö,ü\n".encode("latin-1"))
    answer = read(path, bad_utf8="repair")
    assert [row["a"] for row in answer.rows] == [1]
    assert answer.details == ["expected 2 columns, got 3"]
    assert capfd.readouterr().err == ""
