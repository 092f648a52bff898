"""A preset is a job without a file: the same options, the same errors, the same bytes as the file it is short for."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
import yaml
from array_record.python.array_record_module import ArrayRecordReader

import penstock
from penstock.cli import app, main
from tests.promises import text_making
from tests.show.desk import EVENTS, KEYS, document, make_events, make_job

DOCS = Path(__file__).parents[3] / "docs"
BY_KEY = ["--set", "by=src_addr", "--set", "order=event_time"]


@pytest.fixture(scope="module")
def events(tmp_path_factory) -> str:
    return str(make_events(tmp_path_factory.mktemp("events")))


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def paths(events: str) -> list[str]:
    return ["--input", events, "--output", "rows", "--workers", "0", "--memory", "1GB"]


def test_a_preset_groups_events_without_a_job_file(events, capfd):
    assert main(["run", "events", *paths(events), *BY_KEY]) == 0
    assert "in = out + set aside, in every step" in capfd.readouterr().out
    train, test = penstock.open("rows"), penstock.open("rows", "test")
    assert len(train) + len(test) == KEYS
    assert sum(len(record["rtt"]) for split in (train, test) for record in split) == EVENTS
    assert set(train[0]) == {"src_addr", "event_time", "dst_addr", "ip_version", "rtt", "note"}


def test_pings_takes_the_columns_of_a_ping_and_needs_no_settings(events, capfd):
    assert main(["plan", "pings", *paths(events), "--json"]) == 0
    facts = document(capfd.readouterr().out)
    assert facts["schema"]["read"] == ["src_addr", "event_time", "dst_addr", "ip_version", "rtt"]
    assert facts["splits"] == ["train", "test"]


def test_the_job_file_that_a_plan_prints_is_the_very_same_job(events, tmp_path, capfd):
    options = [*paths(events), *BY_KEY, "--set", "test=0.2", "--set", "slice_size=1MB", "--strategy", "streaming"]
    assert main(["plan", "events", *options]) == 0
    printed = capfd.readouterr().out
    (tmp_path / "kept.yaml").write_text(printed.partition("As a job file:\n\n")[2])
    assert yaml.safe_load((tmp_path / "kept.yaml").read_text())["output"] == "rows"
    assert main(["run", "events", *options]) == 0
    capfd.readouterr()
    assert main(["run", "kept.yaml"]) == 0
    assert "This job is done already" in capfd.readouterr().out


def test_a_plan_of_a_job_file_prints_no_other_job_file(tmp_path, capfd):
    assert main(["plan", str(make_job(tmp_path / "job"))]) == 0
    assert "As a job file" not in capfd.readouterr().out


def test_test_0_means_no_split(events, capfd):
    assert main(["plan", "pings", *paths(events), "--set", "test=0", "--json"]) == 0
    facts = document(capfd.readouterr().out)
    assert facts["splits"] == ["train"]
    assert [next(iter(stage)) for stage in facts["job_file"]["stages"]] == ["select", "group"]


def test_a_preset_without_what_it_needs_names_all_of_it_and_shows_the_job_file(capfd):
    assert main(["run", "events", "--set", "max_record=1MiB"]) == 2
    told = capfd.readouterr().err
    assert "preset events needs --input, --output, --set by=COLUMN" in told
    assert "- group: {by: COLUMN, max_record: 1MiB, null_keys: set_aside}" in told
    assert main(["plan", "pings", "--output", "rows"]) == 2
    told = capfd.readouterr().err
    assert "preset pings needs --input\n" in told
    assert "rows" in told


def test_a_misspelled_preset_or_file_gets_the_name_that_was_meant(tmp_path, capfd):
    assert main(["plan", "evnets"]) == 2
    assert "Presets: events, pings, text. Did you mean 'events'?" in capfd.readouterr().err
    make_job(tmp_path / "jobs")
    assert main(["plan", "jobs/jbo.yaml"]) == 2
    assert "Did you mean 'jobs/job.yaml'?" in capfd.readouterr().err


def test_a_file_of_a_presets_name_is_a_job_file_and_a_folder_is_not(events, tmp_path, capfd):
    make_job(tmp_path / "jobs").rename(tmp_path / "jobs" / "pings")
    assert main(["plan", "jobs/pings", "--json"]) == 0
    (tmp_path / "pings").mkdir()
    capfd.readouterr()
    assert main(["plan", "pings", *paths(events), "--json"]) == 0
    assert document(capfd.readouterr().out)["job_file"]["output"] == "rows"
    (tmp_path / "pings").rmdir()
    (tmp_path / "jobs" / "pings").rename(tmp_path / "pings")
    assert main(["plan", "pings", "--input", "jobs/data", "--json"]) == 0
    assert document(capfd.readouterr().out)["job_file"] == {}


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("by=src_adr", "Did you mean 'src_addr'?"),
        ("order=event_tim", "there is no column 'event_tim'"),
        ("order=src_addr", "named twice"),
        ("max_record=lots", "'lots' is not a size"),
        ("test=2.5", "is not a share between 0 and 1"),
        ("null_keys=drop", "is not one of set_aside, group"),
        ("tset=0.1", "Did you mean 'test'?"),
        ("by.0=src_addr", "takes by, order, max_record, test, null_keys"),
        ("slice_size=lots", "'lots' is not a size"),
        ("input.format=cvs", "is not one of auto, parquet, csv, jsonl, arrow, text"),
    ],
)
def test_an_error_in_a_setting_names_the_setting(setting, told, events, capfd):
    assert main(["plan", "events", *BY_KEY, *paths(events), "--set", setting]) == 2
    printed = capfd.readouterr().err
    assert told in printed
    assert f"where: --set {setting}" in printed


def test_a_key_of_the_input_is_told_with_the_way_to_set_it(events, capfd):
    assert main(["plan", "events", *BY_KEY, *paths(events), "--set", "text_column=body"]) == 2
    assert "try: text_column is a key of `input`: --set input.text_column=body" in capfd.readouterr().err


def test_the_setting_that_an_error_is_about_is_named_and_not_the_last_one(events, capfd):
    options = ["--set", "by=event_tim", "--set", "order=event_time"]
    assert main(["plan", "events", *options, *paths(events)]) == 2
    assert "where: --set by=event_tim, of preset events" in capfd.readouterr().err


def test_pings_does_not_group_by_anything_else(events, capfd):
    assert main(["plan", "pings", *paths(events), "--set", "by=dst_addr"]) == 2
    assert "preset pings is made for by: src_addr" in capfd.readouterr().err
    assert main(["plan", "pings", *paths(events), "--set", "by=src_addr"]) == 0


PINGS = {
    "src_addr": pa.array(["a", "b", "a"], pa.large_string()),
    "event_time": pa.array([3000, 1000, 2000], pa.timestamp("ns", "UTC")),
    "dst_addr": pa.array(["x", None, "y"], pa.large_string()),
    "ip_version": pa.array([4, 6, 4], pa.int64()),
    "rtt": pa.array([0.5, float("nan"), None], pa.float64()),
}
FAILS = ["--format", "arrayrecord", "--set", "test=0"]


def test_pings_casts_to_the_types_that_readers_expect_where_nothing_is_lost(tmp_path, capfd):
    pq.write_table(pa.table(PINGS), tmp_path / "wide.parquet")
    options = [*paths(str(tmp_path / "wide.parquet")), *FAILS]
    assert main(["plan", "pings", *options, "--json"]) == 0
    cast = {"event_time": "timestamp[us, UTC]", "ip_version": "int8", "rtt": "float32"}
    assert document(capfd.readouterr().out)["job_file"]["stages"][1] == {"cast": cast}
    assert main(["run", "pings", *options]) == 0
    (key,) = [record for record in ArrayRecordReader("rows/train.arrayrecord").read_all() if b"x" in record]
    events = pa.ipc.open_stream(pa.ipc.open_stream(key).read_all()["measurements"][0].as_py()).read_all()
    assert events.schema.types == [pa.timestamp("us"), pa.string(), pa.string(), pa.int8(), pa.float32()]
    assert events.to_pydict()["rtt"] == [None, 0.5]
    assert events["event_time"].cast(pa.int64()).to_pylist() == [2, 3]


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("rtt", pa.array([0.5, 0.1, 1.0]), "column 'rtt' has 0.1 of double, and float has no such value"),
        ("ip_version", pa.array([4, 4.5, 6]), "column 'ip_version' has 4.5 of double, and int8 has no such value"),
        ("event_time", pa.array([0, 1, 0], pa.timestamp("ns")), "'event_time' has '1970-01-01T00:00:00.000000001'"),
    ],
)
def test_pings_names_the_row_whose_value_would_be_lost_and_the_stage_that_rounds(tmp_path, capfd, column, values, told):
    pq.write_table(pa.table({**PINGS, column: values}), tmp_path / "wide.parquet")
    assert main(["run", "pings", *paths(str(tmp_path / "wide.parquet")), *FAILS]) == 4
    printed = capfd.readouterr().err
    assert told in printed
    assert "where: wide.parquet, row 1" in printed
    assert "cast: {columns: {...}, lossy: true}" in printed


def test_pings_casts_before_group_whichever_stages_are_set(tmp_path, capfd):
    pq.write_table(pa.table(PINGS), tmp_path / "wide.parquet")
    group = {"group": {"by": "src_addr", "order": "event_time"}}
    for stages in ([group], [{"filter": "ip_version < 1000"}, {"select": list(PINGS)}, group]):
        options = [*paths(str(tmp_path / "wide.parquet")), "--format", "arrayrecord", "--set", f"stages={stages}"]
        assert main(["plan", "pings", *options, "--json"]) == 0
        made = document(capfd.readouterr().out)["job_file"]["stages"]
        assert [next(iter(stage)) for stage in made[-2:]] == ["cast", "group"]
        assert made[:-2] == stages[:-1]


def test_the_bytes_in_rejected_are_told_as_a_part_of_what_was_written(tmp_path, capfd):
    pq.write_table(pa.table({**PINGS, "rtt": pa.array([0.5, 0.1, 1.0])}), tmp_path / "wide.parquet")
    options = [*paths(str(tmp_path / "wide.parquet")), *FAILS, "--set", "on_bad_input=set_aside"]
    assert main(["run", "pings", *options]) == 0
    assert re.search(r"written +[\d.]+ \w+ in \d+ files, including [\d.]+ \w+ in rejected/\n", capfd.readouterr().out)


def test_pings_refuses_types_that_are_not_numbers_where_readers_expect_them(tmp_path, capfd):
    pq.write_table(pa.table({**PINGS, "rtt": ["1", "2", "3"]}), tmp_path / "text.parquet")
    assert main(["run", "pings", *paths(str(tmp_path / "text.parquet")), *FAILS]) == 2
    told = capfd.readouterr().err
    assert "rtt is string and not float32" in told
    assert "- cast: {rtt: float32}" in told
    assert not Path("rows").exists()
    assert main(["plan", "pings", *paths(str(tmp_path / "text.parquet"))]) == 0


@pytest.mark.proof
def test_strategies_write_the_same_bytes(events, capfd):
    found = set()
    for strategy in ("sequential", "parallel", "streaming"):
        options = ["--input", events, "--output", strategy, "--workers", "1", "--strategy", strategy, "--json"]
        assert main(["run", "pings", *options]) == 0
        found.add(document(capfd.readouterr().out)["dataset"])
    assert len(found) == 1


def test_the_documents_show_the_job_file_and_name_only_options_that_there_are(events, capfd):
    documents = [(DOCS / name).read_text() for name in ("reference/events.md", "coming-from/probe-rows-scripts.md")]
    paths = ["--input", "data/**/*.parquet", "--output", "data/rows"]
    assert main(["plan", "events", "--input", events, *paths[2:], *BY_KEY, "--workers", "0", "--json"]) == 0
    job = document(capfd.readouterr().out)["job_file"]
    shown = yaml.safe_load(documents[0].partition("```yaml\n")[2].partition("```")[0])
    assert shown == {"input": paths[1], "output": job["output"], "stages": job["stages"]}
    command = typer.main.get_command(app)
    with command.make_context("penstock", ["run", "events"]) as context:
        known = {option for each in command.get_command(context, "run").params for option in each.opts}
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", "".join(documents)))
    assert named <= {*known, "--json"}


@pytest.mark.parametrize(
    ("settings", "begins", "ends"),
    [
        ([], False, True),
        (["eos=<|end|>"], False, True),
        ([f"eos={text_making.end()}"], False, True),
        (["eos=false"], False, False),
        (["bos=<|end|>"], True, True),
        (["bos=<|end|>", "eos=false"], True, False),
    ],
)
def test_the_text_preset_takes_the_tokens_that_begin_and_end_a_document(tmp_path, settings, begins, ends):
    text_making.write_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "a.txt").write_text("water flows")
    options = [word for each in ["tokenizer=tokenizer", "method=none", *settings] for word in ("--set", each)]
    assert main(["run", "text", *paths("a.txt"), *options]) == 0
    mark = [text_making.end()]
    expected = [*(mark if begins else []), *text_making.ids_of("water flows")[:-1], *(mark if ends else [])]
    assert penstock.open("rows")[0]["tokens"].tolist() == expected


def test_a_token_that_the_tokenizer_lacks_is_told_with_the_option_that_names_it(tmp_path, capfd):
    text_making.write_tokenizer(tmp_path / "tokenizer")
    (tmp_path / "a.txt").write_text("water flows")
    options = ["--set", "tokenizer=tokenizer", "--set", "eos=</s>"]
    assert main(["run", "text", *paths("a.txt"), *options]) == 2
    told = capfd.readouterr().err
    assert "the tokenizer has no token '</s>'" in told
    assert "special ones are: <|end|>" in told
