"""The flags of the probe-rows scripts still work, mean exactly what they meant, and may not contradict today's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.base.errors import ConfigError
from penstock.cli import main
from penstock.prepare.job.config import Config
from penstock.show.asking.asked import load_job
from penstock.show.asking.older_names import older_overrides
from penstock.show.asking.overrides import collect
from tests.show.desk import document, make_events, make_job

GROUP, SPLIT = {"group": {"by": "a", "max_record": "1MiB"}}, {"split": {"by": "key", "test": 0.5}}


def loaded(folder: Path, stages: list[Any], *older: str | None, **options: Any) -> Config:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({"input": "a.csv", "output": "out", "stages": stages}))
    return load_job(str(path), collect(**options), older_overrides(*older)).config


def test_the_old_command_line_is_a_preset_with_older_names(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    make_events(tmp_path / "data")
    old = ["--workers", "0", "--memory-limit-gb", "1", "--max-row-size-mb", "4", "--train-ratio", "0.9"]
    assert main(["plan", "pings", "--input", "data/**/*.parquet", "--output", "data/rows", *old, "--json"]) == 0
    assert document(capfd.readouterr().out)["job_file"] == {
        "input": "data/**/*.parquet",
        "output": "data/rows",
        "memory": "1GB",
        "workers": 0,
        "stages": [
            {"select": ["src_addr", "event_time", "dst_addr", "ip_version", "rtt"]},
            {"group": {"by": "src_addr", "order": "event_time", "max_record": "4MiB", "null_keys": "set_aside"}},
            {"split": {"by": "key", "test": 0.1}},
        ],
    }


def test_in_a_job_file_they_set_the_options_of_its_stages(tmp_path):
    config = loaded(tmp_path, [GROUP, SPLIT], "28", "16", "0.95")
    assert config.memory == "28GB"
    assert config.stages == ({"group": {"by": "a", "max_record": "16MiB"}}, {"split": {"by": "key", "test": 0.05}})


@pytest.mark.parametrize("ratio", ["0.9", "0.7", "0.999", ".3"])
def test_the_share_of_test_is_what_the_train_ratio_leaves_to_the_last_digit(ratio, tmp_path):
    share = loaded(tmp_path, [SPLIT], None, None, ratio).stages[0]["split"]["test"]
    assert share == {"0.9": 0.1, "0.7": 0.3, "0.999": 0.001, ".3": 0.7}[ratio]


def test_a_train_ratio_of_one_means_no_split(tmp_path):
    assert loaded(tmp_path, [GROUP, SPLIT], None, None, "1.0").stages == (GROUP,)
    stages = "stages=[{group: {by: b}}, {split: {test: 0.2}}]"
    assert loaded(tmp_path, [SPLIT], None, None, "1.0", settings=[stages]).stages == ({"group": {"by": "b"}},)


@pytest.mark.parametrize(
    ("stages", "older", "told"),
    [
        ([SPLIT], (None, "8", None), "`max_record` of the stage `group`, but this job has none"),
        ([GROUP], (None, None, "0.9"), "`test` of the stage `split`, but this job has none"),
        ([GROUP, GROUP], (None, "8", None), "this job has 2 of them"),
        ([{"split": {"val": 0.1, "test": 0.1}}], (None, None, "0.9"), "also has val"),
    ],
)
def test_a_job_without_that_stage_is_told_so(stages, older, told, tmp_path):
    with pytest.raises(ConfigError, match=told) as refused:
        loaded(tmp_path, stages, *older)
    assert str(refused.value.where).startswith("--")


@pytest.mark.parametrize(
    ("older", "told"),
    [
        (("much", None, None), "'much' is not a number above zero"),
        ((None, "0", None), "'0' is not a number above zero"),
        ((None, None, "90"), "90 is not a share between 0 and 1"),
        ((None, None, "nan"), "'nan' is not a number above zero"),
    ],
)
def test_what_is_no_number_or_no_share_is_refused(older, told):
    with pytest.raises(ConfigError, match=told):
        older_overrides(*older)


def test_old_and_new_may_say_the_same_and_not_different_things(tmp_path):
    assert loaded(tmp_path, [], "2", memory="2GB").memory == "2GB"
    assert loaded(tmp_path, [], "2", memory="2000MB").memory == "2GB"
    with pytest.raises(ConfigError, match="--memory-limit-gb 2 and --memory 2GiB contradict each other"):
        loaded(tmp_path, [], "2", memory="2GiB")
    with pytest.raises(ConfigError, match="contradict each other"):
        loaded(tmp_path, [], "2", memory="50%")
    with pytest.raises(ConfigError, match="contradict each other"):
        loaded(tmp_path, [GROUP], None, "8", settings=["stages.0.group.max_record=4MiB"])
    assert loaded(tmp_path, [GROUP], None, "8", settings=["stages.0.group.max_record=8MiB"]).stages
    with pytest.raises(ConfigError, match="contradict each other"):
        load_job("pings", collect(settings=["test=0.2"]), older_overrides(None, None, "0.9"))


def test_an_error_of_another_stage_is_not_laid_at_their_door(tmp_path):
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, [{"filtre": "x > 0"}, SPLIT], None, None, "0.9")
    assert ", line " in str(refused.value.where)


def test_strategy_and_format_are_options_of_their_own(tmp_path, capfd):
    job = str(make_job(tmp_path))
    assert main(["plan", job, "--strategy", "streaming", "--format", "npy", "--json"]) == 0
    assert document(capfd.readouterr().out)["settings"]["strategy"] == "streaming"
    assert main(["plan", job, "--strategy", "fast"]) == 2
    assert "where: --strategy fast, on top of" in capfd.readouterr().err
