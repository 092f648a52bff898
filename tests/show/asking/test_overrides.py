"""What the command line says wins over the job file, and is what an error in it points at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.base.errors import ConfigError
from penstock.prepare.job.config import Config
from penstock.prepare.job.engine_config import EngineConfig, RayOptions
from penstock.show.asking.asked import load_job
from penstock.show.asking.overrides import collect


def loaded(folder: Path, job: dict[str, Any], *settings: str, **options: Any) -> Config:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({"output": "out", **job}))
    return load_job(str(path), collect(settings=settings, **options)).config


def test_a_setting_is_yaml_and_replaces_the_files_key(tmp_path):
    config = loaded(tmp_path, {"input": "a.csv", "slice_size": "1MB"}, "slice_size=2MB", "stages=[{filter: x > 0}]")
    assert config.slice_size == "2MB"
    assert config.stages == ({"filter": "x > 0"},)


@pytest.mark.parametrize("written", ["a.csv", ["a.csv"], {"path": "a.csv"}, [{"path": ["a.csv"]}]])
def test_a_dotted_setting_goes_inside_every_form_of_input(written, tmp_path):
    (source,) = loaded(tmp_path, {"input": written}, "input.types.x=float32", "input.format=csv").input
    assert (source.path, source.format, source.types) == (("a.csv",), "csv", {"x": "float32"})


def test_a_number_picks_one_of_several_entries(tmp_path):
    job = {"input": ["a.txt", "b.csv"], "stages": [{"filter": "x > 0"}, {"split": {"test": 0.1}}]}
    config = loaded(tmp_path, job, "input.0.format=jsonl", "stages.1.split.test=0.3")
    assert [source.format for source in config.input] == ["jsonl", "auto"]
    assert config.stages[1] == {"split": {"test": 0.3}}


def test_other_files_keep_the_options_of_the_source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = {"input": {"path": "a.csv", "types": {"x": "int8"}}}
    (source,) = loaded(tmp_path, job, inputs=["new/*.csv", "/far/b.csv"]).input
    assert source.path == (str(tmp_path / "new" / "*.csv"), "/far/b.csv")
    assert source.types == {"x": "int8"}


@pytest.mark.parametrize("source", [{"files": "a", "function": "os:listdir"}, {"npz": "a.npz"}])
def test_other_files_take_the_place_of_whatever_files_the_source_has(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    (found,) = loaded(tmp_path, {"input": source}, inputs=["new/*"]).input
    assert found.patterns == (str(tmp_path / "new/*"),)
    assert found.function == source.get("function")
    assert not found.path


def test_a_range_is_no_number_of_minutes_on_the_command_line_either(tmp_path):
    job = {"input": "a.csv", "stages": [{"normalize": ["x"]}]}
    config = loaded(tmp_path, job, "stages.0.normalize={columns: [x], skip: [10:20, 7]}")
    assert config.stages[0]["normalize"]["skip"] == ["10:20", 7]


ON_A_CLUSTER = {"input": "a.csv", "engine": {"ray": {"address": "head:6379"}}}


def test_an_engine_by_name_keeps_the_options_that_the_file_has_for_it(tmp_path):
    assert loaded(tmp_path, ON_A_CLUSTER, engine="ray").engine.options == RayOptions(address="head:6379")
    assert loaded(tmp_path, ON_A_CLUSTER, engine="local").engine == EngineConfig()
    assert loaded(tmp_path, {"input": "a.csv"}, engine="ray").engine.options == RayOptions()


@pytest.mark.parametrize("job", [ON_A_CLUSTER, {"input": "a.csv"}, {"input": "a.csv", "engine": "ray"}])
def test_an_option_of_an_engine_chooses_the_engine(tmp_path, job):
    assert loaded(tmp_path, job, "engine.ray.address=auto").engine.options == RayOptions(address="auto")


def test_one_path_for_two_sources_is_refused_with_the_way_to_say_it(tmp_path):
    with pytest.raises(ConfigError, match="is a list") as refused:
        loaded(tmp_path, {"input": ["a.csv", "b.jsonl"]}, inputs=["c.csv"])
    assert refused.value.next_step == "entries are numbered from 0: input.0 to input.1"


def test_an_error_in_an_option_points_at_the_option_and_not_at_a_line(tmp_path):
    with pytest.raises(ConfigError, match="'lots' is not a size") as refused:
        loaded(tmp_path, {"input": "a.csv", "memory": "1GB"}, memory="lots")
    assert refused.value.where == f"--memory lots, on top of {tmp_path / 'job.yaml'}"


def test_an_error_in_the_file_still_points_at_its_line(tmp_path):
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, {"input": "a.csv", "stages": [{"filtre": "x > 0"}]}, memory="1GB")
    assert refused.value.where is not None
    assert ", line " in refused.value.where


@pytest.mark.parametrize("setting", ["memory", "=3", "memory=[", "memory.inner=3"])
def test_a_setting_that_cannot_be_read_is_named(setting, tmp_path):
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, {"input": "a.csv", "memory": "1GB"}, setting)
    assert setting in f"{refused.value.what} {refused.value.where}"


def test_workers_may_be_a_number_or_auto(tmp_path):
    assert loaded(tmp_path, {"input": "a.csv"}, workers="3").workers == 3
    assert loaded(tmp_path, {"input": "a.csv", "workers": 3}, workers="auto").workers == "auto"
