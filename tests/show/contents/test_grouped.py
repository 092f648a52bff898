"""Grouped events: what plan, run and inspect show of an exchange, of keys, and of .arrayrecord files by themselves."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.show.console import show
from penstock.show.contents.summary import key_tables
from tests.shards.foreign.records import TWO, broken_text, foreign, write_records
from tests.show.desk import EVENTS, KEYS, document, make_events


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """events.parquet, and what `pings` makes of it in each format; a record has 64 kiB at most."""
    folder = make_events(tmp_path_factory.mktemp("grouped")).parent
    for name, options in {"native": [], "records": ["--format", "arrayrecord"]}.items():
        paths = ["--input", str(folder / "events.parquet"), "--output", str(folder / name)]
        assert main(["run", "pings", *paths, *options, "--workers", "0", "--set", "max_record=64KiB"]) == 0
    return folder


@pytest.mark.proof
@pytest.mark.parametrize("columns", [80, 100])
def test_a_plan_shows_the_two_sides_of_an_exchange_within_the_screen(columns, made, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    paths = ["--input", str(made / "events.parquet"), "--output", "out"]
    assert main(["plan", "pings", *paths, "--workers", "0"]) == 0
    printed = capfd.readouterr().out
    table = printed.partition("\npass")[2].partition("group is an exchange")[0].splitlines()
    assert table[0].split() == ["0", "scatter", "1", "gather"]
    assert all(len(line) <= columns for line in table)
    writes = next(line for line in table if line.startswith("writes"))
    assert "of spill, in 1 bucket" in writes
    assert "of output" in writes
    assert "pass 0 scatters rows into 1 bucket by a hash of src_addr, pass 1 gathers" in printed
    assert "in the order of event_time" in printed


def test_a_plan_as_json_tells_of_the_exchange_and_the_disk(made, capfd):
    paths = ["--input", str(made / "events.parquet"), "--output", str(made / "planned")]
    assert main(["plan", "pings", *paths, "--workers", "0", "--json"]) == 0
    facts = document(capfd.readouterr().out)
    scatter, gather = facts["passes"]
    side = {"stage": "group", "pass": 0, "by": ["src_addr"], "order": ["event_time"], "buckets": 1}
    assert (scatter["exchange"], gather["exchange"]) == ({"to": side}, {"from": side})
    spilled = scatter["spill_bytes"] + gather["spill_bytes"]
    assert facts["disk"]["most_bytes"] == facts["disk"]["kept_bytes"] + spilled


def test_the_account_says_what_became_of_the_events(made, capfd):
    assert main(["inspect", str(made / "native"), "--records", "0"]) == 0
    printed = capfd.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    group = lines.index(["group", "events", f"{EVENTS:,}", f"{EVENTS:,}", "0"])
    records = lines[group + 1][-1]
    assert lines[group + 1] == ["makes", "records", records]
    assert lines[group + 2] == ["split", "records", records, records, "0"]


def test_inspect_tells_of_keys_times_and_the_largest(made, capfd):
    assert main(["inspect", str(made / "native"), "--json", "--records", "0"]) == 0
    facts = document(capfd.readouterr().out)["group"]
    assert (facts["keys"], facts["events"]) == (KEYS, EVENTS)
    assert facts["records"] > KEYS  # the first key has more than fits into a record
    assert main(["inspect", str(made / "native")]) == 0
    printed = capfd.readouterr().out
    assert f"{EVENTS:,} events of {KEYS} keys (src_addr), in {facts['records']} records" in printed
    assert "120.0 on average; 68% of the keys have fewer than 64, 99.8% fewer than 128" in " ".join(printed.split())
    largest = next(line.split() for line in printed.splitlines() if line.startswith("10.0.0.0"))
    assert largest == [
        "10.0.0.0",
        f"{facts['largest'][0]['events']:,}",
        f"{facts['largest'][0]['events'] / EVENTS:.1%}",
    ]


def test_inspect_abbreviates_the_events_of_a_record(made, capfd):
    assert main(["inspect", str(made / "native"), "--records", "1"]) == 0
    shown = capfd.readouterr().out.partition("train[0]")[2]
    assert "4 (all " in shown
    assert " values)" in shown
    assert all(len(line) < 100 for line in shown.splitlines())


def test_files_by_themselves_tell_what_their_dataset_tells(made, tmp_path, capfd):
    for split in ("train", "test"):
        shutil.copy(made / "records" / f"{split}.arrayrecord", tmp_path)
    assert main(["inspect", str(made / "native"), "--json", "--records", "0"]) == 0
    dataset = document(capfd.readouterr().out)
    assert main(["inspect", str(tmp_path / "*.arrayrecord"), "--json", "--records", "2"]) == 0
    facts = document(capfd.readouterr().out)
    assert facts["group"]["largest"][0] == dataset["group"]["largest"][0]
    for same in ("by", "order", "keys", "records", "events", "least", "greatest", "keys_by_events"):
        assert facts["group"][same] == dataset["group"][same]
    assert [file["records"] for file in facts["paths"]] == [
        dataset["splits"][split]["records"] for split in ("test", "train")
    ]
    assert facts["bytes"] == sum((tmp_path / f"{split}.arrayrecord").stat().st_size for split in ("train", "test"))
    assert len(facts["records"]["first"]) == 2


def test_a_file_by_itself_is_shown_with_records_and_has_no_splits(made, capfd):
    train = str(made / "records" / "train.arrayrecord")
    assert main(["inspect", train]) == 0
    printed = capfd.readouterr().out
    assert "largest keys" in printed
    assert f"{train}[0]" in printed
    assert "n_measurements" in printed
    assert main(["inspect", train, "--split", "test"]) == 2
    assert f"give {made / 'records' / 'test.arrayrecord'}" in capfd.readouterr().err


def test_a_file_that_is_missing_or_cut_short_is_named(made, tmp_path, capfd):
    assert main(["inspect", str(tmp_path / "no-*.arrayrecord")]) == 5
    assert "no file matches" in capfd.readouterr().err
    whole = (made / "records" / "train.arrayrecord").read_bytes()
    (tmp_path / "cut.arrayrecord").write_bytes(whole[: len(whole) // 2])
    assert main(["inspect", str(tmp_path / "cut.arrayrecord")]) == 6
    assert "cut.arrayrecord is cut short" in capfd.readouterr().err


@pytest.mark.parametrize(
    "records",
    [
        [foreign(), foreign(src_id=None)],
        [foreign(src_id="7")],
        [foreign(), foreign(n_measurements=3)],
        [foreign(measurements=broken_text())],
        [*[foreign()] * 16, foreign({name: TWO[name] for name in ("event_time", "rtt")})],
    ],
)
def test_a_file_of_another_program_is_refused_by_its_name_and_record(records, tmp_path, capfd):
    path = write_records(tmp_path / "other.arrayrecord", records)
    assert main(["inspect", path]) == 5
    printed = capfd.readouterr().err
    assert "Defect" not in printed
    assert f"where: {path}, record {len(records) - 1}" in printed
    assert "try: " in printed


def test_keys_without_events_are_counted_as_such(tmp_path, capfd):
    none = {name: array[:0] for name, array in TWO.items()}
    records = [foreign(none, src_id=5, n_measurements=0, first_timestamp=datetime(1970, 1, 1)), foreign(src_id=7)]
    path = write_records(tmp_path / "other.arrayrecord", records)
    assert main(["inspect", path, "--json"]) == 0
    facts = document(capfd.readouterr().out)["group"]
    assert (facts["keys"], facts["records"], facts["events"]) == (2, 2, 2)
    assert facts["largest"] == [{"key": "k", "events": 2}]
    assert facts["keys_by_events"] == {"0": 1, "2": 1}
    assert facts["least"] == facts["greatest"] == "2024-05-06T07:08:09.000000"
    assert main(["inspect", path]) == 0
    shown = " ".join(capfd.readouterr().out.split())  # however wide the terminal is
    assert "1.0 on average; 50% of the keys have fewer than 1, all fewer than 4" in shown
    assert main(["inspect", write_records(tmp_path / "none.arrayrecord", records[:1])]) == 0
    assert "0 events of 1 key (src_addr), in 1 record" in capfd.readouterr().out


def test_without_an_order_events_are_still_counted_as_events(made, tmp_path, capfd):
    job = tmp_path / "job.yaml"
    stages = "[{select: [src_addr, rtt]}, {group: {by: src_addr, max_record: 64KiB}}]"
    job.write_text(f"input: {made / 'events.parquet'}\noutput: out\nworkers: 0\nstages: {stages}\n")
    assert main(["run", str(job)]) == 0
    assert main(["inspect", str(tmp_path / "out"), "--records", "0"]) == 0
    printed = capfd.readouterr().out
    assert f"{EVENTS:,} events of {KEYS} keys (src_addr), in " in printed
    assert "events per key  120.0 on average" in printed
    assert "largest keys   events" in printed


def test_records_of_a_key_alone_are_shown_without_a_number_of_events(capfd):
    facts = {"by": ["k"], "order": [], "keys": 2, "records": 3, "events": None, "least": None, "greatest": None}
    largest = [{"key": "a", "events": None}, {"key": "b", "events": None}]
    show({**facts, "largest": largest, "keys_by_events": {"1": 2}}, key_tables, as_json=False)
    assert capfd.readouterr().out.split() == ["keys", "2", "keys", "(k),", "in", "3", "records"]


def test_patterns_that_the_shell_expanded_get_the_advice_to_quote_them(capfd):
    assert main(["inspect", "a.arrayrecord", "b.arrayrecord"]) == 2
    assert "quote a pattern" in capfd.readouterr().err


def test_a_summary_that_was_changed_is_not_shown(made, tmp_path, capfd):
    shutil.copytree(made / "native", tmp_path / "copy")
    (tmp_path / "copy" / "artifacts" / "group.json").write_text("{}")
    assert main(["inspect", str(tmp_path / "copy")]) == 6
    assert "artifacts/group.json is not the file that was written" in capfd.readouterr().err


def test_inspect_shows_the_files_of_a_folder_without_a_manifest(made, tmp_path, capfd):
    for name in ("train.arrayrecord", "test.arrayrecord"):
        (tmp_path / name).write_bytes((made / "records" / "train.arrayrecord").read_bytes())
    for options, shown in [([], ["test", "train"]), (["--split", "test"], ["test"])]:
        assert main(["inspect", str(tmp_path), "--json", "--records", "0", *options]) == 0
        files = [each["file"] for each in document(capfd.readouterr().out)["paths"]]
        assert files == [str(tmp_path / f"{name}.arrayrecord") for name in shown]
