"""Plain text: every file is a document, or every line is; what is no text stands aside and the rest arrives."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import InputError, OutputError
from penstock.prepare.sources import UnreadablePart
from penstock.prepare.sources.reading import chunks
from tests.prepare.sources.reader import read, survey


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("text")


def write(folder: Path, data: bytes | str, name: str = "book.txt") -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def run(folder: Path, **keys) -> list[str]:
    penstock.run({"output": str(folder / "out"), "workers": 0, "memory": "1GB", **keys})
    dataset = penstock.open(folder / "out")
    return [dataset[i]["text"] for i in range(len(dataset))]


@pytest.mark.parametrize("text", ["", "one", "two\r\nlines\n", "nul \0 \n\n", "\ufeffmarked é"])
def test_a_file_is_one_document_as_it_is(tmp_path, text):
    packed = {"": text.encode(), ".gz": gzip.compress(text.encode()), ".zst": pa.compress(text.encode(), "zstd")}
    for suffix, data in packed.items():
        path = write(tmp_path, bytes(data), f"book.txt{suffix}")
        assert survey(path).pieces[0].rows == 1
        assert read(path).rows == [{"text": text.removeprefix("\ufeff")}]


LINES = st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8), max_size=20)


@given(lines=LINES, final=st.booleans(), end=st.sampled_from(["\n", "\r\n"]), data=st.data())
def test_a_line_is_one_document_wherever_a_file_is_cut(folder, lines, final, end, data):
    text = end.join(lines) + (end if final and lines else "")
    expected = text.replace("\r\n", "\n").removeprefix("\ufeff").removesuffix("\n")
    path = write(folder, text)
    whole = read(path, document="line")
    assert [row["text"] for row in whole.rows] == (expected.split("\n") if expected or "\n" in text else [])
    slice_bytes, size = data.draw(st.integers(1, len(text) + 1)), data.draw(st.integers(1, 40))
    cut = read(path, document="line", slice_bytes=slice_bytes, bytes_at_once=size)
    assert cut.rows == whole.rows
    assert cut.ordinals == sorted(set(cut.ordinals))
    assert read(path, document="line", slice_bytes=slice_bytes).ordinals == cut.ordinals


def test_a_line_that_is_no_text_stands_aside_with_its_number_and_the_others_arrive(tmp_path):
    path = write(tmp_path, b"a\nb\xff\n\nc\nd\xe9")
    answer = read(path, document="line", slice_bytes=3, bytes_at_once=2)
    assert [row["text"] for row in answer.rows] == ["a", "", "c"]
    assert [(line["line"], line["row"]["text"]) for line in answer.aside] == [(2, "b\\xff"), (5, "d\\xe9")]
    assert answer.details[0] == "column 'text', byte 1 is 0xff: invalid start byte"
    repaired = read(path, document="line", bad_utf8="repair")
    assert [row["text"] for row in repaired.rows] == ["a", "b\ufffd", "", "c", "d\ufffd"]


def test_a_file_that_is_no_text_stands_aside_or_is_repaired(tmp_path):
    path = write(tmp_path, b"\xffx" + b"y" * 3_000_000 + b"\xe9")
    answer = read(path)
    assert (answer.rows, answer.aside[0]["reason"]) == ([], "text is not UTF-8")
    assert len(answer.aside[0]["row"]["text"]) == 64 * 1024
    assert read(path, bad_utf8="repair").rows == [{"text": "\ufffdx" + "y" * 3_000_000 + "\ufffd"}]


def test_a_packed_file_that_breaks_off_is_no_document_but_its_whole_lines_are(tmp_path):
    text = "".join(f"line {i * i}\n" for i in range(20_000)).encode()
    path = write(tmp_path, gzip.compress(text)[:-1000], "book.txt.gz")
    answer = read(path)
    assert (answer.rows, len(answer.aside), answer.aside[0]["reason"]) == ([], 1, "the file breaks off")
    lines = read(path, document="line")
    assert [row["text"] for row in lines.rows] == text.decode().split("\n")[: len(lines.rows)]
    assert lines.aside[0]["line"] == len(lines.rows) + 1
    assert len(lines.rows) > 15_000
    damaged = bytearray(gzip.compress(text))
    damaged[-6] ^= 1
    with pytest.raises(UnreadablePart):
        read(write(tmp_path, bytes(damaged), "book.txt.gz"))


def test_a_folder_of_text_is_its_documents_in_the_order_of_their_names(tmp_path):
    books = tmp_path / "books"
    books.mkdir()
    for number in range(50):
        write(books, f"book {number:02d}", f"{number:02d}{'.txt' if number % 2 else '.md'}")
    write(books, "no book", "cover.dat")
    expected = [f"book {number:02d}" for number in range(50)]
    assert run(tmp_path, input={"path": str(books), "format": "text"}) == expected
    assert run(tmp_path / "named", input=str(books)) == expected[1::2]


def test_a_note_beside_tables_is_no_document(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    write(data, '{"text":"row"}\n', "a.jsonl")
    write(data, "mind the gap", "LICENSE.txt")
    assert run(tmp_path, input=str(data)) == ["row"]


def test_a_folder_without_a_document_says_which_files_would_be(tmp_path):
    (tmp_path / "books").mkdir()
    write(tmp_path / "books", "x", "cover.dat")
    with pytest.raises(InputError, match="no file matches") as caught:
        run(tmp_path, input=str(tmp_path / "books"))
    assert "for others give a pattern" in caught.value.next_step
    assert run(tmp_path / "b", input={"path": str(tmp_path / "books" / "*"), "format": "text"}) == ["x"]


def test_a_line_that_is_too_long_for_a_column_stands_aside_and_the_others_arrive(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "MOST_BYTES", 10)
    lines = ["a", "tencharact", "eleven char", "b", "", "twelve chars", "ten behind", "c"]
    for end in ("\n", "\r\n"):
        for final in ("", end):
            path = write(tmp_path, end.join(lines) + final)
            for options in ({}, {"bytes_at_once": 3}, {"slice_bytes": 9}):
                answer = read(path, document="line", **options)
                assert [row["text"] for row in answer.rows] == [line for line in lines if len(line) <= 10]
                assert [(line["line"], line["raw"], line["reason"]) for line in answer.aside] == [
                    (3, lines[2], "longer than 2 GiB"),
                    (6, lines[5], "longer than 2 GiB"),
                ]
                ordinals = [*answer.ordinals, *(line["position"] for line in answer.aside)]
                assert len(set(ordinals)) == len(lines)


def test_what_a_job_wrote_into_its_input_folder_is_not_read_by_the_next_run(tmp_path):
    """Nor does it count as tables, beside which text would be no document."""
    books = tmp_path / "books"
    books.mkdir()
    write(books, "one")
    write(books, "two \xff".encode("latin-1"), "bad.txt")
    job = {"input": str(books), "output": str(books / "prepared"), "export": "hf", "on_bad_input": "set_aside"}
    for _ in range(2):
        penstock.run({**job, "workers": 0, "memory": "1GB"})
        assert penstock.open(books / "prepared")[0] == {"text": "one"}
        assert list((books / "prepared" / "rejected").glob("*.jsonl"))
        assert list((books / "prepared-hf").glob("*.arrow"))
    write(books, "three", "more.txt")
    with pytest.raises(OutputError, match=r"made from something else: more\.txt: new\n"):
        penstock.run({**job, "workers": 0, "memory": "1GB"})


def test_a_split_of_a_folder_that_the_job_writes_into_is_refused(tmp_path):
    books = tmp_path / "books"
    books.mkdir()
    source = {"path": str(books), "split": "train"}
    with pytest.raises(InputError, match="the job writes into the folder of this split"):
        penstock.run({"input": source, "output": str(books / "prepared"), "workers": 0})
    export = {"to": "hf", "path": str(books / "export")}
    with pytest.raises(InputError, match="the job writes into the folder of this split") as caught:
        penstock.run({"input": source, "output": str(tmp_path / "prepared"), "export": export, "workers": 0})
    assert str(books / "export") in caught.value.where


def test_a_file_over_2_gib_is_set_aside_whole_and_never_cut_short(tmp_path):
    """The kernel gives at most 2 GiB - 4 KiB at once, so that a longer file read in one go would look shorter."""
    path = tmp_path / "long.txt"
    with path.open("wb") as file:
        file.write(b"a long story")
        file.truncate(2**31 + 5000)
    found = read(path)
    assert found.rows == []
    (aside,) = found.aside
    assert aside["reason"] == "longer than 2 GiB"
    assert aside["raw"].startswith("a long story")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_that_memory_has_no_room_for_is_set_aside_with_how_it_begins(tmp_path, suffix):
    data = b"word " * 20
    path = write(tmp_path, gzip.compress(data) if suffix else data, f"book.txt{suffix}")
    assert read(path, most_record_bytes=25).rows == [{"text": data.decode()}]
    (aside,) = read(path, most_record_bytes=24).aside
    assert aside["reason"] == "record too large for this memory"
    assert "96 bytes" in aside["detail"]
    assert aside["raw"].startswith("word word")
