"""`text_column`: that column arrives alone, as `text`, from every format; one that cannot be text is refused."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

import penstock
from penstock.base.errors import InputError
from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.sources import Reading, read_segment
from tests.prepare.sources.reader import read, survey

DOCUMENTS = ["one", "zwei é", None, "", "nul \0 in it", "5"]


def write_all(folder):
    """The documents in every format, under another name each time, among other columns."""
    others = {"n": list(range(len(DOCUMENTS))), "nested": [[1], [2], [], [3], [4], [5]]}
    table = pa.table({"n": others["n"], "body": DOCUMENTS, "nested": others["nested"]})
    pq.write_table(table, folder / "a.parquet", row_group_size=4)
    feather.write_feather(table, folder / "b.feather", chunksize=4)
    lines = [json.dumps({"nested": [i, "x"][i % 2], "body": text}) for i, text in enumerate(DOCUMENTS)]
    (folder / "c.jsonl").write_text("\n".join(lines))
    shown = "".join(f'{i},"{text or ""}"\n' for i, text in enumerate(DOCUMENTS))
    (folder / "d.csv").write_text("n,body\n" + shown)
    return [folder / name for name in ("a.parquet", "b.feather", "c.jsonl", "d.csv")]


def test_every_format_gives_the_same_one_column(tmp_path):
    for path in write_all(tmp_path):
        assert survey(path, text_column="body").schema == pa.schema([("text", pa.string())])
        for rows_at_once in (1, 1000):
            answer = read(path, text_column="body", rows_at_once=rows_at_once, bytes_at_once=40)
            expected = [text or "" for text in DOCUMENTS] if path.suffix == ".csv" else DOCUMENTS
            assert [row["text"] for row in answer.rows] == expected
            assert answer.aside == []


def test_sources_with_other_columns_make_one_dataset(tmp_path):
    paths = write_all(tmp_path)
    (tmp_path / "e.txt").write_text("a whole file")
    sources = [{"path": str(path), "text_column": "body"} for path in paths] + [{"path": str(tmp_path / "e.txt")}]
    penstock.run({"input": sources, "output": str(tmp_path / "out"), "workers": 0, "memory": "1GB"})
    dataset = penstock.open(tmp_path / "out")
    assert len(dataset) == 4 * len(DOCUMENTS) + 1
    assert dataset[0] == {"text": "one"}
    assert dataset[len(dataset) - 1] == {"text": "a whole file"}


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()], ids=str
)
def test_however_text_is_kept_it_arrives_as_text(tmp_path, kind):
    feather.write_feather(pa.table({"body": pa.array(["a", None, "a"], pa.string()).cast(kind)}), tmp_path / "a.arrow")
    assert [row["text"] for row in read(tmp_path / "a.arrow", text_column="body").rows] == ["a", None, "a"]


def test_a_missing_column_is_told_with_those_that_are_there(tmp_path):
    for path in write_all(tmp_path):
        with pytest.raises(InputError, match=r"no column 'bodi'.*Did you mean 'body'") as caught:
            survey(path, text_column="bodi")
        assert str(path) in str(caught.value)
        assert "body" in caught.value.next_step


def test_a_column_that_is_no_text_is_refused(tmp_path):
    for path in write_all(tmp_path)[:2]:
        with pytest.raises(InputError, match="`text_column: n` is int64, not text"):
            survey(path, text_column="n")
    (tmp_path / "e.jsonl").write_text('{"nested":1}\n')
    with pytest.raises(InputError, match="`text_column: nested` is int64, not text"):
        survey(tmp_path / "e.jsonl", text_column="nested")
    pq.write_table(pa.table({"body": [b"raw"]}), tmp_path / "bytes.parquet")
    with pytest.raises(InputError, match="is binary, not text"):
        survey(tmp_path / "bytes.parquet", text_column="body")


def test_in_csv_whatever_stands_there_is_text(tmp_path):
    (tmp_path / "a.csv").write_text("n,body\n1,007\n2,NA\n")
    assert [row["text"] for row in read(tmp_path / "a.csv", text_column="body").rows] == ["007", "NA"]


def test_a_first_line_of_megabytes_is_not_read_to_find_its_text(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": 1, "body" : "' + "x" * (3 << 20))  # it never ends
    assert survey(path, text_column="body").schema.names == ["text"]
    with pytest.raises(InputError, match="no line of it is a JSON object"):
        survey(path, text_column="other")


def test_rows_of_a_source_are_taken_by_their_own_size_not_by_that_of_another(tmp_path):
    pq.write_table(pa.table({"body": ["x" * 1000] * 1000}), tmp_path / "a.parquet", use_dictionary=False)
    surveyed = survey(tmp_path / "a.parquet", text_column="body")
    options = SourceConfig(path="a.parquet", text_column="body").options()
    reading = Reading(surveyed.schema, ("text",), True, 1_000_000, 50_000, ("parquet",), (options,))
    sizes = [len(rows) for rows in read_segment(surveyed.pieces[0], reading, frozenset())]
    assert sum(sizes) == 1000
    assert 20 < max(sizes) <= 50


def test_a_json_line_whose_text_is_no_text_stands_aside(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"body":"x"}\n{"body":7}\n{"other":1}\n{"body":["y"]}\n')
    answer = read(tmp_path / "a.jsonl", text_column="body")
    assert [row["text"] for row in answer.rows] == ["x", None]
    assert [line["line"] for line in answer.aside] == [2, 4]
    assert answer.details[0] == "column 'body': 7 is not string"


BAD = [
    ("a.jsonl", b'{"text":"first"}\n{"text":"caf\xe9"}\n{"text":"last"}\n', "line 2"),
    ("a.csv", b"text\nfirst\ncaf\xe9\nlast\n", "line 3"),
    ("a.jsonl.gz", gzip.compress(b'{"text":"first"}\n{"text":"last"}\n' + b"\n" * 99 + b'{"text":"')[:-9], "line 102"),
]


@pytest.mark.parametrize(("name", "data", "place"), BAD, ids=["jsonl", "csv", "broken"])
def test_a_job_goes_on_behind_a_bad_record_or_stops_with_its_line(tmp_path, name, data, place):
    (tmp_path / name).write_bytes(data)
    job = {"input": {"path": str(tmp_path / name), "text_column": "text"}, "workers": 0, "memory": "1GB"}
    with pytest.raises(InputError) as caught:
        penstock.run({**job, "output": str(tmp_path / "a")})
    assert f"{name}, {place}" in (caught.value.where or "")
    penstock.run({**job, "output": str(tmp_path / "b"), "on_bad_input": "set_aside"})
    dataset = penstock.open(tmp_path / "b")
    assert [dataset[0]["text"], dataset[len(dataset) - 1]["text"]] == ["first", "last"]
    (rejected,) = (tmp_path / "b" / "rejected").glob("*.jsonl")
    line = json.loads(rejected.read_text())
    assert (line["file"], f"line {line['line']}") == (name, place)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"npz": "a.npz", "text_column": "body"}, "text_column: is an option for rows"),
        ({"path": "a.csv", "function": "module:name", "text_column": "body"}, "text_column: is an option for rows"),
        ({"path": "a", "format": "text", "text_column": "body"}, "one column, which is called `text` already"),
        ({"path": ["a", "b"], "split": "train"}, "split: belongs to one dataset, but path: names 2"),
        ({"path": "org/name", "revision": "main"}, "which needs `split:`"),
    ],
)
def test_options_that_do_not_go_together_are_told(options, message):
    with pytest.raises(ValidationError, match=message):
        SourceConfig(**options)


def test_options_of_text_that_are_not_used_change_no_old_fingerprint():
    semantic = SourceConfig(path="a.csv").semantic()
    assert not semantic.keys() & {"text_column", "document", "bad_utf8", "split", "name", "revision"}
    documents = SourceConfig(path="a.csv", text_column="b").semantic()  # which may hold newlines
    assert documents == {**semantic, "text_column": "b", "newlines_in_values": True}
