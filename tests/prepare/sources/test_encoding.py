"""Text that is not UTF-8: `encoding:` says what it is, and the rows are those of the same text in UTF-8."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import penstock
from penstock.base.errors import ConfigError, InputError
from penstock.prepare.job.source_config import SourceConfig
from tests.prepare.sources.reader import read, survey
from tests.promises import workshop

TABLE = "name,n\nJosé,1\nZoë,2\nÿ,3\n"
ENCODINGS = ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp437"]
WHEN = {"memory": "1GB", "workers": 0}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("bytes_at_once", [1, 7, 1 << 20])
def test_a_table_in_any_encoding_has_the_rows_of_the_table_in_utf8(tmp_path, encoding, bytes_at_once):
    (tmp_path / "a.csv").write_bytes(TABLE.encode(encoding))
    (tmp_path / "b.csv").write_text(TABLE, encoding="utf-8")
    found = read(tmp_path / "a.csv", encoding=encoding, bytes_at_once=bytes_at_once, slice_bytes=3)
    usual = read(tmp_path / "b.csv")
    assert [row["name"] for row in found.rows] == ["José", "Zoë", "ÿ"]
    assert (found.rows, found.ordinals) == (usual.rows, usual.ordinals)


@pytest.mark.parametrize("encoding", ["shift_jis", "euc_jp", "utf-16", "gb18030"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_json_lines_and_lines_of_text_too_and_compressed_ones(tmp_path, encoding, suffix):
    lines = [
        json.dumps({"text": text, "n": number}, ensure_ascii=False) for number, text in enumerate(["日本", "水力"])
    ]
    data = "\n".join(lines).encode(encoding)
    for name in ("a.jsonl", "a.txt"):
        (tmp_path / f"{name}{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    rows = read(tmp_path / f"a.jsonl{suffix}", encoding=encoding).rows
    assert rows == [{"text": "日本", "n": 0}, {"text": "水力", "n": 1}]
    texts = read(tmp_path / f"a.txt{suffix}", encoding=encoding, document="line").rows
    assert [row["text"] for row in texts] == lines
    (whole,) = read(tmp_path / f"a.txt{suffix}", encoding=encoding).rows
    assert whole["text"] == "\n".join(lines)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), min_size=1), max_size=8),
    st.sampled_from(["utf-16", "utf-16-be", "utf-32-le", "gb18030"]),
    st.integers(1, 40),
)
def test_lines_of_any_text_come_through_in_chunks_of_any_size(tmp_path, lines, encoding, size):
    lines = [line for line in lines if not line.startswith("\ufeff")]
    text = "".join(f"{line}\n" for line in lines)
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    found = read(tmp_path / "a.txt", encoding=encoding, document="line", bytes_at_once=size)
    assert [row["text"] for row in found.rows] == lines
    assert not found.aside


def test_a_file_is_one_segment_because_its_bytes_are_not_those_of_the_text(tmp_path):
    (tmp_path / "a.csv").write_bytes((TABLE * 100).encode("utf-16"))
    assert len(survey(tmp_path / "a.csv", slice_bytes=100, encoding="utf-16").pieces) == 1


@pytest.mark.parametrize(
    ("name", "text", "encoding", "bad"),
    [
        ("a.csv", "x,name\n1,good\n2,b?d\n3,fine\n", "cp1252", b"\x81"),
        ("a.jsonl", '{"name": "good"}\n{"name": "b?d"}\n{"name": "fine"}\n', "shift_jis", b"\xff"),
        ("a.txt", "good\nb?d\nfine\n", "ascii", b"\xe9"),
    ],
)
def test_bytes_that_mean_nothing_set_their_row_aside_or_are_repaired(tmp_path, name, text, encoding, bad):
    (tmp_path / name).write_bytes(text.encode(encoding).replace(b"?", bad))
    options = {"encoding": encoding, "document": "line"}
    found = read(tmp_path / name, **options)
    (line,) = found.aside
    assert [list(row.values())[-1] for row in found.rows] == ["good", "fine"]
    assert line["reason"] == f"text is not {encoding}"
    assert line["line"] == (3 if name == "a.csv" else 2)
    repaired = read(tmp_path / name, **options, bad_utf8="repair")
    assert [list(row.values())[-1] for row in repaired.rows] == ["good", "b\ufffdd", "fine"]


def test_a_job_stops_at_bad_bytes_and_says_what_to_do(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"name\ngood\nb\x81d\n")
    job = {"input": {"path": str(tmp_path / "a.csv"), "encoding": "cp1252"}, "output": str(tmp_path / "out"), **WHEN}
    with pytest.raises(InputError, match="text is not cp1252") as caught:
        penstock.run(job, progress=False)
    assert "line 3" in caught.value.where
    assert "name the right `encoding:`" in caught.value.next_step
    manifest = penstock.run({**job, "on_bad_input": "set_aside"}, progress=False)
    assert {step.step: step.set_aside for step in manifest.account}["read"] == {"text is not cp1252": 1}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_mark_of_another_encoding_is_named_with_the_next_step(tmp_path, name, encoding):
    (tmp_path / name).write_bytes('{"a": 1}\n'.encode(encoding))
    with pytest.raises(InputError, match=f"the file is {encoding}, as its first bytes say") as caught:
        survey(tmp_path / name)
    assert f"add `encoding: {encoding}` to the input" in caught.value.next_step


def test_a_mark_is_named_in_plain_text_too(tmp_path):
    (tmp_path / "a.txt").write_bytes("water".encode("utf-16"))
    with pytest.raises(InputError, match="the file is utf-16"):
        survey(tmp_path / "a.txt", document="line")
    (line,) = read(tmp_path / "a.txt").aside
    assert line["reason"] == "text is not UTF-8"
    assert "add `encoding: utf-16` to the input" in line["detail"]


def test_a_mark_of_utf8_needs_no_encoding(tmp_path):
    (tmp_path / "a.csv").write_text(TABLE, encoding="utf-8-sig")
    assert read(tmp_path / "a.csv").rows[0] == {"name": "José", "n": 1}
    assert read(tmp_path / "a.csv", encoding="utf-8-sig").rows[0] == {"name": "José", "n": 1}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.jsonl.gz"])
def test_text_without_the_mark_that_its_encoding_begins_with_is_refused_with_the_next_step(tmp_path, name, encoding):
    data = b'{"a": 1}\n{"a": 2}\n'
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    with pytest.raises(InputError, match=f"it does not begin with the mark of {encoding}") as caught:
        survey(tmp_path / name, encoding=encoding)
    assert f"{encoding}-le" in caught.value.what
    assert "name the right `encoding:`" in caught.value.next_step


def test_a_document_without_that_mark_is_set_aside_by_name(tmp_path):
    (tmp_path / "a.txt").write_text("water")
    job = {"input": {"path": str(tmp_path / "a.txt"), "encoding": "utf-16"}, "output": str(tmp_path / "out"), **WHEN}
    with pytest.raises(InputError, match="it does not begin with the mark of utf-16"):
        penstock.run(job, progress=False)
    manifest = penstock.run({**job, "on_bad_input": "set_aside"}, progress=False)
    assert [step.set_aside for step in manifest.account if step.set_aside] == [{"unreadable file": 1}]


def test_a_header_in_another_encoding_is_refused_with_the_next_step(tmp_path):
    (tmp_path / "a.csv").write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(InputError, match="its header line cannot be read: it is not UTF-8") as caught:
        survey(tmp_path / "a.csv")
    assert "`encoding:` of the input, such as cp1252 or latin-1" in caught.value.next_step


@pytest.mark.parametrize("encoding", ["latin9000", "rot13", "base64", "idna", "unicode_escape", "utf-7", "hex"])
def test_what_is_no_encoding_of_files_is_refused(encoding):
    with pytest.raises(ValidationError, match="is not a"):
        SourceConfig(path=("a.csv",), encoding=encoding)


def test_one_encoding_has_one_name_and_utf8_is_none():
    one, other, usual = (SourceConfig(path=("a.csv",), encoding=name).semantic() for name in ("latin1", "L1", "UTF8"))
    assert one == other != usual
    assert usual == SourceConfig(path=("a.csv",)).semantic()


def test_an_encoding_of_files_that_are_no_text_is_refused(tmp_path):
    data = workshop.make_input(tmp_path / "data", files=1, rows=10)
    with pytest.raises(
        ConfigError, match=r"input\[0\].encoding: it is an option for text formats, but these files are parquet"
    ):
        penstock.plan({"input": {"path": str(data), "encoding": "latin-1"}, "output": str(tmp_path / "out")})
    with pytest.raises(ConfigError, match="encoding: is an option for text that penstock reads"):
        penstock.plan({"input": {"npz": "*.npz", "encoding": "latin-1"}, "output": str(tmp_path / "out")})


@pytest.mark.proof
def test_workers_and_batches_decide_no_byte(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.csv").write_bytes((TABLE + "é,7\n" * 2000 * (number + 1)).encode("utf-16"))
    job = {"input": {"path": str(tmp_path / "*.csv"), "encoding": "utf-16"}, "stages": [{"split": {"test": 0.3}}]}
    for output, workers in (("one", 0), ("two", 2)):
        penstock.run(
            {**job, "output": str(tmp_path / output), "workers": workers, "memory": "1GB", "slice_size": "10kB"},
            progress=False,
        )
    assert workshop.bytes_of(tmp_path / "one") == workshop.bytes_of(tmp_path / "two")


def test_a_compressed_file_that_breaks_off_gives_the_rows_before_the_break(tmp_path: Path):
    whole = gzip.compress("".join(f"line {number} é\n" for number in range(5000)).encode("utf-16"))
    (tmp_path / "a.txt.gz").write_bytes(whole[: len(whole) // 2])
    found = read(tmp_path / "a.txt.gz", encoding="utf-16", document="line", bytes_at_once=100)
    assert [row["text"] for row in found.rows] == [f"line {number} é" for number in range(len(found.rows))]
    assert len(found.rows) > 1000
    assert found.aside[-1]["reason"] == "the file breaks off"
    assert found.rows == read(tmp_path / "a.txt.gz", encoding="utf-16", document="line", bytes_at_once=1 << 20).rows
