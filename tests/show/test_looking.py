"""plan, inspect, doctor and init, as people and as programs see them."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pytest

from penstock.base.cache import PROOFS, cache_folder, keep
from penstock.cli import main
from penstock.show.contents.values import jsonable, short
from penstock.show.doctor import doctor_facts
from tests.show.desk import document, make_job


def test_a_plan_tells_memory_in_the_three_words_and_every_column(tmp_path, capfd):
    job = make_job(tmp_path, stages=[{"select": {"who": "user"}}])
    assert main(["plan", str(job)]) == 0
    printed = capfd.readouterr().out
    memory = next(line for line in printed.splitlines() if line.startswith("memory"))
    assert all(word in memory for word in ("allowed", "reserved", "projected"))
    assert ["value", "float64", "(not", "read)", "-"] in [line.split() for line in printed.splitlines()]
    assert ["who", "-", "int64"] in [line.split() for line in printed.splitlines()]
    assert not (tmp_path / "out").exists()


def test_a_plan_as_json_has_every_pass_with_its_projections(tmp_path, capfd):
    job = make_job(tmp_path, stages=[{"normalize": ["value"]}])
    assert main(["plan", str(job), "--json"]) == 0
    facts = document(capfd.readouterr().out)
    assert [(each["kind"], each["tasks"], each["rows"]) for each in facts["passes"]] == [
        ("fit", 3, 3000),
        ("map", 3, 3000),
    ]
    assert facts["memory"]["reserved_bytes"] <= facts["memory"]["projected_bytes"]
    assert {"memory_bytes", "spill_bytes", "output_bytes", "seconds"} <= facts["passes"][0].keys()


def test_a_plan_says_what_a_run_would_make_of_the_output_as_it_is(tmp_path, capfd):
    job = str(make_job(tmp_path))

    def last_words(*options: str) -> str:
        capfd.readouterr()
        assert main(["plan", job, *options]) == 0
        return capfd.readouterr().out.rpartition("\n\n")[2]

    assert last_words() == "Nothing has been written. `penstock run` with the same options does this.\n"
    assert main(["run", job]) == 0
    before = sorted((tmp_path / "out").rglob("*"))
    assert last_words().startswith("This job is done already")
    refused = last_words("--set", "format=npy")
    assert "refuses (exit 5): this output is finished, and was made from something else" in refused
    assert "--redo" in refused
    assert sorted((tmp_path / "out").rglob("*")) == before

    (tmp_path / "out" / "manifest.json").unlink()
    next((tmp_path / "out" / "train").iterdir()).unlink()
    assert "resumes: 2 of 3 tasks of an earlier run will be kept" in last_words()


def test_a_plan_says_that_a_run_refuses_a_folder_of_other_files(tmp_path, capfd):
    job = make_job(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter.txt").write_text("not penstock's")
    assert main(["plan", str(job), "--json"]) == 0
    facts = document(capfd.readouterr().out)
    assert (facts["run"]["would"], facts["run"]["refusal"]["exit_code"]) == ("refuse", 5)


def test_a_plan_names_files_that_cannot_be_used(tmp_path, capfd):
    job = make_job(tmp_path, on_bad_input="set_aside")
    (tmp_path / "data" / "part-9.parquet").write_text("no parquet at all")
    assert main(["plan", str(job)]) == 0
    assert "part-9.parquet" in capfd.readouterr().out


def test_inspect_shows_splits_account_files_and_records(tmp_path, capfd):
    stages = [{"filter": {"where": "value >= 100", "keep": True}}, {"statistics": ["value"]}]
    assert main(["run", str(make_job(tmp_path, stages=stages))]) == 0
    capfd.readouterr()
    assert main(["inspect", str(tmp_path / "out"), "--records", "1"]) == 0
    printed = capfd.readouterr().out
    assert "artifacts/statistics.json" in printed
    assert "train[0]" in printed
    assert "train[1]" not in printed

    assert main(["inspect", str(tmp_path / "out"), "--records", "2", "--json"]) == 0
    facts = document(capfd.readouterr().out)
    assert facts["splits"]["train"]["records"] == 2900
    assert sum(file["bytes"] for file in facts["rejected"]) > 0
    assert facts["records"] == {"split": "train", "first": [{"user": 0, "value": 100.0}, {"user": 1, "value": 101.0}]}


def test_of_a_very_wide_dataset_the_first_columns_are_shown_and_the_rest_counted(tmp_path, capfd):
    (tmp_path / "wide.csv").write_text(",".join(f"c{i}" for i in range(100)) + "\n" + ",".join("1" * 100) + "\n")
    job = make_job(tmp_path / "job", stages=[])
    assert main(["plan", str(job), "--input", str(tmp_path / "wide.csv")]) == 0
    printed = capfd.readouterr().out
    assert "c39 " in printed
    assert "c40 " not in printed
    assert "... and 60 columns more; --json lists all" in printed


def test_inspect_names_the_splits_there_are(tmp_path, capfd):
    assert main(["run", str(make_job(tmp_path))]) == 0
    assert main(["inspect", str(tmp_path / "out"), "--split", "tset"]) == 5
    assert "Did you mean 'test'?" in capfd.readouterr().err


def test_doctor_checks_the_machine_and_names_versions(tmp_path, capfd):
    assert main(["doctor", "--output", str(tmp_path / "not" / "yet"), "--json"]) == 0
    facts = document(capfd.readouterr().out)
    names = [check["name"] for check in facts["checks"]]
    assert {"memory", "cores", "open files", "output disk"} <= set(names)
    assert {"python", "penstock", "numpy", "pyarrow", "xxhash", "pydantic", "typer", "rich"} <= facts["versions"].keys()
    assert all(check["change"] for check in facts["checks"] if check["status"] == "warn")


def test_doctor_shows_the_cache_and_clears_it(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))
    keep(cache_folder(PROOFS) / ("ab" * 16), b"proof")
    (cache,) = (check for check in doctor_facts(".")["checks"] if check["name"] == "cache")
    assert cache["status"] == "ok"
    assert cache["found"] == (
        f"37 B at {tmp_path / 'cache'}: compiled kernels in 0 files, comparisons of tokenizers in 1 file"
    )
    assert main(["doctor", "--clear-cache"]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert said.startswith("removed 37 B from ")
    assert said.endswith("compiled kernels in 0 files, comparisons of tokenizers in 1 file")
    assert main(["doctor", "--clear-cache", "--json"]) == 0
    assert [each["files"] for each in json.loads(capfd.readouterr().out)["removed"]] == [0, 0]
    (tmp_path / "cache").chmod(0o777)
    (cache,) = (check for check in doctor_facts(".")["checks"] if check["name"] == "cache")
    assert cache["status"] == "warn"
    assert "chmod 700" in cache["change"]


def test_doctor_warns_of_a_folder_that_cannot_hold_a_dataset(monkeypatch):
    monkeypatch.setattr("penstock.base.machine.free_disk", lambda path: 10**6)  # noqa: ARG005
    disk = next(check for check in doctor_facts(".")["checks"] if check["name"] == "output disk")
    assert disk["status"] == "warn"
    assert "free some space" in disk["change"]


def test_init_writes_a_job_that_plans_and_never_overwrites_one(tmp_path, capfd):
    make_job(tmp_path)
    assert main(["init", str(tmp_path / "mine.yaml")]) == 0
    assert main(["plan", str(tmp_path / "mine.yaml"), "--workers", "0"]) == 0
    (tmp_path / "mine.yaml").write_text("mine")
    assert main(["init", str(tmp_path / "mine.yaml")]) == 5
    assert (tmp_path / "mine.yaml").read_text() == "mine"
    assert "try: choose another name: penstock init -o another_name.yaml" in capfd.readouterr().err


def test_init_prints_the_schema_of_job_files(capfd):
    assert main(["init", "--schema"]) == 0
    assert "stages" in json.loads(capfd.readouterr().out)["properties"]


@pytest.mark.parametrize(
    ("value", "as_json"),
    [
        (float("nan"), "nan"),
        (b"\xff", "\\xff"),
        (np.float32(0.5), 0.5),
        (np.arange(3), [0, 1, 2]),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        ({"a": [None, True]}, {"a": [None, True]}),
    ],
)
def test_every_value_of_a_record_has_a_json_form(value, as_json):
    assert jsonable(value) == as_json


def test_a_long_value_is_cut_and_its_size_told():
    assert short("a\nb") == "a\\nb"
    assert short(0.10000000149011612) == "0.1"
    assert short("x" * 300).endswith("... (300 characters)")
    assert short(list(range(100)), most=20).endswith("... (100 values)")
