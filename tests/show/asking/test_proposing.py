"""`penstock init PATH...` proposes a job for the user's own files, and the job runs."""

import datetime
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.cli import main

_START = datetime.datetime(2024, 1, 1)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _init(*paths, output="job.yaml"):
    assert main(["init", *map(str, paths), "-o", str(output)]) == 0
    with open(output, encoding="utf-8") as file:
        return file.read()


def _run(job="job.yaml"):
    assert main(["plan", str(job), "--workers", "0"]) == 0
    assert main(["run", str(job), "--workers", "0"]) == 0
    return _records(yaml.safe_load(open(job, encoding="utf-8"))["output"])


def _records(output):
    manifest = penstock.open(output).manifest
    return [record for split in manifest.splits for record in penstock.open(output, split)]


def _events(place, rows=1000):
    times = [_START + datetime.timedelta(seconds=row) for row in range(rows)]
    cities = ["Kiel", "Bonn", "Ulm"]
    columns = {"price": np.arange(rows) / 7, "user_id": [row * row % 83 for row in range(rows)], "bought_at": times}
    pq.write_table(pa.table({**columns, "city": [cities[row % 3] for row in range(rows)]}), place)


def test_an_id_and_a_time_become_a_job_of_events_that_runs(here):
    (here / "data").mkdir()
    _events(here / "data" / "a.parquet")
    text = _init("data")
    job = yaml.safe_load(text)
    assert job["stages"] == [{"group": {"by": "user_id", "order": "bought_at"}}, {"split": {"by": "key", "test": 0.1}}]
    assert "# group by which column? user_id has 42, city has 3 different values in the first 1,000 rows" in text
    assert sum(len(record["price"]) for record in _run()) == 1000


def test_long_text_becomes_a_job_of_documents_that_says_how_to_get_a_tokenizer(here):
    lines = [json.dumps({"name": f"doc {number}", "body": f"{number} " + "word " * 80}) for number in range(40)]
    (here / "docs.jsonl").write_text("\n".join([*lines, lines[0]]))
    text = _init("docs.jsonl")
    assert yaml.safe_load(text)["input"] == {"path": "docs.jsonl", "text_column": "body"}
    assert "Tokenizer.from_pretrained" in text
    assert len(_run()) == 40  # one of 41 is there twice


@pytest.mark.proof
def test_the_commented_lines_of_a_text_job_work_with_a_tokenizer(here):
    from tokenizers import Tokenizer, models, pre_tokenizers

    (here / "a.txt").write_text("a b " * 100)
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2, "<|endoftext|>": 3}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save("tokenizer.json")
    text = (
        _init("a.txt").replace("# - tokenize", "- tokenize").replace("# - pack: {length: 2048", "- pack: {length: 20")
    )
    (here / "job.yaml").write_text(text)
    assert len(_run()) == 10


def test_plain_text_and_markdown_are_documents(here):
    (here / "notes").mkdir()
    (here / "notes" / "a.md").write_text("one")
    (here / "notes" / "b.txt").write_text("two")
    assert "not read" not in _init("notes")
    assert len(_run()) == 2


def test_a_folder_and_a_pattern_of_markdown_alone_are_documents(here):
    (here / "notes").mkdir()
    for number in range(3):
        (here / "notes" / f"{number}.md").write_text(f"# Note {number}")
    assert yaml.safe_load(_init("notes"))["input"] == {"path": "notes", "format": "text", "document": "file"}
    assert len(_run()) == 3
    assert yaml.safe_load(_init("notes/*.md", output="pattern.yaml"))["input"]["format"] == "text"


def test_a_key_is_found_in_many_small_files(here):
    (here / "data").mkdir()
    for number in range(200):
        lines = [f'{{"user": {(number * 10 + row) % 40}, "at": "2024-01-{row + 1:02}"}}\n' for row in range(10)]
        (here / "data" / f"{number:03}.jsonl").write_text("".join(lines))
    text = _init("data")
    assert "a look at 100 of 200 files, 1,000 rows of jsonl" in text
    assert {"group": {"by": "user", "order": "at"}} in yaml.safe_load(text)["stages"]


def test_rows_without_a_time_are_split_by_their_key(here):
    (here / "a.csv").write_text("account_id,amount\n" + "".join(f"{row % 7},{row}\n" for row in range(70)))
    text = _init("a.csv")
    assert yaml.safe_load(text)["stages"] == [{"split": {"by": "account_id", "test": 0.1}}]
    assert '# - filter: "`amount` >= 0"' in text
    _run()


def test_columns_that_cannot_be_stored_are_left_out_and_said(here):
    table = pa.table({"a/b": [1, 2], "": [3, 4], "nothing": pa.nulls(2), "x": [5, 6]})
    pq.write_table(table, here / "odd.parquet")
    text = _init("odd.parquet")
    assert yaml.safe_load(text)["stages"][0] == {"select": {"a_b": "a/b", "column_1": "", "x": "x"}}
    assert "# left out: nothing: column 'nothing' has no values, so its type is unknown" in text
    _run()


def test_an_unreadable_file_among_others_is_set_aside(here):
    (here / "data").mkdir()
    _events(here / "data" / "a.parquet")
    (here / "data" / "b.parquet").write_bytes(b"no parquet")
    text = _init("data")
    assert "on_bad_input: set_aside" in text
    assert "b.parquet" in text
    _run()


def test_values_that_span_lines_are_an_option_of_the_proposed_job(here):
    rows = [f'{row % 7};"first line\nsecond; line"\n' for row in range(50)]
    (here / "notes.csv").write_text("patient;note\n" + "".join(rows))
    text = _init("notes.csv")
    assert yaml.safe_load(text)["input"] == {"path": "notes.csv", "delimiter": ";", "newlines_in_values": True}
    assert "a look at 1 file, 50 rows of csv" in text
    assert len(_run()) == 50


@pytest.mark.parametrize("stray", ['1,"open\n', '1,"open\n2,"b"\n'])
def test_a_row_that_cannot_be_read_is_named_and_set_aside(here, stray):
    (here / "a.csv").write_text("user,note\n1,a\n" + stray + "3,c\n")
    text = _init("a.csv")
    job = yaml.safe_load(text)
    assert job["input"] == "a.csv"
    assert job["on_bad_input"] == "set_aside"
    assert "# 1 row of those looked at cannot be read, for example a.csv, line 3: a value starts with a quote" in text
    assert len(_run()) == 2 + stray.count("b")


def test_only_a_megabyte_of_a_file_and_a_few_files_are_read(here):
    (here / "data").mkdir()
    for number in range(8):
        (here / "data" / f"{number}.jsonl").write_text(f'{{"value": {number}, "name": "{"x" * 90}"}}\n' * 30_000)
    text = _init("data")
    assert "a look at 5 of 8 files, 10,000 rows of jsonl" in text


def test_batch_files_of_arrays_become_a_job(here):
    (here / "batches").mkdir()
    np.savez("batches/batch_0.npz", x=np.ones((20, 3), "f4"), y=np.arange(20))
    text = _init("batches")
    assert yaml.safe_load(text)["input"] == {"npz": "batches"}
    _run()


def test_the_job_lies_elsewhere_and_finds_the_files(here):
    (here / "jobs").mkdir()
    _events(here / "a.parquet")
    _init("a.parquet", output="jobs/mine.yaml")
    assert yaml.safe_load((here / "jobs" / "mine.yaml").read_text())["input"] == "../a.parquet"
    assert main(["run", "jobs/mine.yaml", "--workers", "0"]) == 0
    assert (here / "jobs" / "prepared" / "manifest.json").exists()


def test_neither_a_job_nor_a_dataset_is_overwritten(here, capfd):
    _events(here / "a.parquet")
    (here / "prepared").mkdir()
    _init("a.parquet")
    assert yaml.safe_load((here / "job.yaml").read_text())["output"] == "prepared-2"
    before = (here / "job.yaml").read_text()
    assert main(["init", "a.parquet"]) == 5
    assert (here / "job.yaml").read_text() == before
    assert "try: choose another name: penstock init PATH -o another_name.yaml" in capfd.readouterr().err


def test_json_tells_the_kind_the_job_and_the_questions(here, capfd):
    _events(here / "a.parquet")
    assert main(["init", "a.parquet", "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["kind"] == "events"
    assert facts["questions"][0].startswith("group by which column?")
    assert facts["job"] == (here / "job.yaml").read_text()


SHOPS = [f"{row % 9},{{}},{row}.5,s{row % 3}" for row in range(90)]


@pytest.mark.parametrize(
    ("when", "kind"),
    [
        ("2024-01-{:02}T10:00:00", "timestamp[us]"),
        ("2024-01-{:02}", "timestamp[us]"),
        ("2024-01-{:02}T10:00:00+02:00", "timestamp[us, UTC]"),
        ("2024-01-{:02} 10:00:00.123456789", "timestamp[ns]"),
    ],
)
def test_times_that_a_csv_file_has_as_text_are_declared_and_can_be_loaded(here, when, kind):
    lines = [line.format(when.format(row % 28 + 1)) for row, line in enumerate(SHOPS)]
    (here / "shop.csv").write_text("\n".join(["customer,when,amount,shop", *lines, "3,,1.5,s1", "3,NA,1.5,s1"]))
    text = _init("shop.csv")
    job = yaml.safe_load(text)
    assert job["input"] == {"path": "shop.csv", "types": {"when": kind}}
    assert job["stages"][0] == {"group": {"by": "customer", "order": "when"}}
    assert "so it is ordered" not in text
    _run()
    with penstock.load("prepared", batch_size=2, length=16, workers=0, fields={"when": "time"}) as loader:
        assert next(loader)["inputs"].shape == (2, 16)


def test_times_of_json_lines_are_declared_too(here):
    lines = [json.dumps({"user": row % 9, "at": f"2024-01-{row % 28 + 1:02}T10:00:00Z"}) for row in range(90)]
    (here / "a.jsonl").write_text("\n".join(lines))
    assert yaml.safe_load(_init("a.jsonl"))["input"]["types"] == {"at": "timestamp[us, UTC]"}
    _run()


@pytest.mark.parametrize("odd", ["soon", "2024-01-05T10:00:00Z"])  # no time, and a time zone that others lack
def test_text_of_which_not_every_value_is_a_time_stays_text(here, odd):
    lines = [line.format(f"2024-01-{row % 28 + 1:02}") for row, line in enumerate(SHOPS)]
    (here / "shop.csv").write_text("\n".join(["customer,when,amount,shop", *lines, f"1,{odd},1.5,s1"]))
    text = _init("shop.csv")
    assert yaml.safe_load(text)["input"] == "shop.csv"
    assert "# is when the time? Its type is string, so it is ordered as text, character by character" in text
    _run()


def test_a_csv_file_that_seems_to_have_no_header_is_asked_about(here):
    (here / "a.csv").write_text("1,2.5,x\n2,3.5,y\n3,4.5,z\n")
    assert '# does a file begin with names? "1", "2.5", x look like values' in _init("a.csv")
    (here / "b.csv").write_text("n,size,name\n2,3.5,y\n3,4.5,z\n")
    assert "begin with names" not in _init("b.csv", output="b.yaml")


def _refused(capfd, *paths):
    code = main(["init", *paths])
    assert code in (2, 4)
    assert not os.path.exists("job.yaml")
    return capfd.readouterr().err


def test_an_empty_folder_and_a_missing_file_are_told(here, capfd):
    (here / "empty").mkdir()
    assert "there is no file in this folder" in _refused(capfd, "empty")
    assert "there is no such file" in _refused(capfd, "nowhere.csv")


def test_files_of_several_kinds_are_refused_with_a_pattern_that_names_one(here, capfd):
    (here / "mixed").mkdir()
    (here / "mixed" / "a.csv").write_text("a\n1\n")
    pq.write_table(pa.table({"a": [1]}), here / "mixed" / "b.parquet")
    told = _refused(capfd, "mixed")
    assert "several formats: 1 " in told
    assert "penstock init 'mixed/**/*." in told
    assert "penstock init mixed/a.csv; " in _refused(capfd, "mixed/a.csv", "mixed/b.parquet")


def test_a_file_that_cannot_be_read_is_told_with_the_reason(here, capfd):
    (here / "a.parquet").write_bytes(b"no parquet")
    assert "footer" in _refused(capfd, "a.parquet")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[{"a": 1}, {"a": 2}]', "one JSON array, and penstock reads one object per line"),
        ('[\n  {\n    "a": 1\n  }\n]', "try: write one object per line, for example with jq -c '.[]'"),
        ('{\n  "a": 1\n}\n', "objects over several lines"),
        ("[1]\n[2]\n", "no line of it is a JSON object"),
    ],
)
def test_json_that_has_no_lines_of_objects_is_told_what_to_do(here, capfd, text, words):
    (here / "a.json").write_text(text)
    told = _refused(capfd, "a.json")
    assert words in told
    assert "  try: " in told


def test_a_header_without_rows_is_told(here, capfd):
    (here / "a.csv").write_text("a,b\n")
    assert "have column names but no rows" in _refused(capfd, "a.csv")


def test_images_get_a_function_to_start_from_and_it_runs(here, capfd):
    (here / "photos").mkdir()
    for number in range(30):
        (here / "photos" / f"{number}.png").write_bytes(b"x" * number)
    told = _refused(capfd, "photos")
    assert "penstock does not read these files by itself: 30 .png" in told
    function, job = told.partition("features.py, beside the job file:")[2].split("job.yaml:")
    unindented = ["\n".join(line[4:] for line in part.splitlines()) for part in (function, job)]
    (here / "features.py").write_text(unindented[0])
    (here / "job.yaml").write_text(unindented[1])
    command = [sys.executable, "-m", "penstock", "run", "job.yaml", "--workers", "0"]
    subprocess.run(command, check=True, capture_output=True)
    assert len(_records("prepared")) == 30


_VALUES = st.sampled_from(
    [
        [1, 2, 2, 3],
        [1.5, None, 2.5, 1.5],
        ["a", "b", "b", "a"],
        ["long text " * 40] * 4,
        [True, False, True, None],
        [_START, _START, _START, _START + datetime.timedelta(days=1)],
        ["2024-01-01", "2024-01-02", "2024-01-02", "2024-01-04"],
        [[1], [2, 3], None, []],
        [{"a": 1}, {"a": 2}, None, {"a": 3}],
        [None] * 4,
        [b"\xff", b"", None, b"x"],
    ]
)
_NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(
        ["user_id", "time", "text", "yes", "null", "~", "a: b", "- a", "#", "key", "by", "a\nb", "'", '"', "ü"]
    ),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(columns=st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=5))
def test_any_column_names_and_types_become_a_job_that_plans(tmp_path_factory, columns):
    folder = tmp_path_factory.mktemp("any")
    pq.write_table(pa.table(columns), folder / "data.parquet")
    if all(value is None for values in columns.values() for value in values):
        return  # nothing in it can be stored, and that is told
    job = folder / "job.yaml"
    assert main(["init", str(folder / "data.parquet"), "-o", str(job)]) == 0
    assert main(["plan", str(job), "--workers", "0"]) == 0


def test_semicolons_and_text_that_is_not_utf8_are_options_of_the_proposed_job(here):
    rows = "".join(f"P{row % 40};2{row % 7}.06.2024 13:18;Gynäkologie;36,{row % 10}\n" for row in range(400))
    (here / "visits.csv").write_bytes(f"patient;visit;department;temperature\n{rows}".encode("latin-1"))
    text = _init("visits.csv")
    assert yaml.safe_load(text)["input"] == {"path": "visits.csv", "encoding": "cp1252", "delimiter": ";"}
    assert '# visit has dates such as "20.06.2024 13:18"' in text
    assert {record["department"] for record in _run()} == {"Gynäkologie"}


def test_fields_of_structs_are_selected_by_their_paths(here):
    rows = [
        {"device": {"id": f"d{row % 9}"}, "device_id": row, "at": f"2024-01-{row % 28 + 1:02}"} for row in range(90)
    ]
    (here / "readings.jsonl").write_text("\n".join(map(json.dumps, rows)))
    stages = yaml.safe_load(_init("readings.jsonl"))["stages"]
    assert stages[:2] == [
        {"select": {"device_id_": "device.id", "device_id": "device_id", "at": "at"}},
        {"group": {"by": "device_id_", "order": "at"}},
    ]
    assert len(_run()) == 9


def test_plain_text_in_another_encoding_is_read(here):
    (here / "letters").mkdir()
    for number in range(3):
        (here / "letters" / f"{number}.txt").write_bytes(f"Grüße {number}".encode("latin-1"))
    assert yaml.safe_load(_init("letters"))["input"]["encoding"] == "cp1252"
    assert sorted(record["text"] for record in _run()) == ["Grüße 0", "Grüße 1", "Grüße 2"]
