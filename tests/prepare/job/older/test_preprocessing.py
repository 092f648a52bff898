"""Preprocessing: every key of the block of array-batch scripts means something here, or is said to mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.base import machine
from penstock.base.errors import ConfigError
from penstock.prepare.job.config import Config, load_config, understood
from penstock.prepare.job.older.preprocessing import Translated

FUNCTION = {"files": "games/*", "function": "os:listdir"}
WHOLE = {
    "num_workers": None,
    "parallel": True,
    "verbose": True,
    "batch_size": 500,
    "use_float32": True,
    "monitor_memory": True,
    "intermediate_dir": "data/intermediate",
    "merge_strategy": "sequential",
}


def translated(block: Any, **keys: Any) -> Translated:
    return understood({"input": FUNCTION, "output": "data/processed", **keys, "preprocessing": block})


def loaded(folder: Path, block: Any, **keys: Any) -> Config:
    job = {"input": FUNCTION, "output": "data/processed", **keys, "preprocessing": block}
    (folder / "config.yaml").write_text(yaml.safe_dump(job, sort_keys=False))
    return load_config(folder / "config.yaml")


@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 1), (3, 1), (4, 2), (16, 14)])
def test_the_whole_block_is_a_job_file(monkeypatch, cores, workers):
    monkeypatch.setattr(machine, "cpu_count", lambda: machine.Limit(cores, "a test"))
    found = translated(WHOLE)
    assert found.job == {
        "input": {"floats": "float32", **FUNCTION},
        "output": "data/processed",
        "batch_size": 500,
        "intermediate_dir": "data/intermediate",
        "merge_strategy": "sequential",
        "workers": workers,
    }
    assert found.notes == ("verbose: what happens is in .penstock/events.jsonl, and on the screen as it happens",)


def test_the_job_file_it_means_is_loaded(tmp_path):
    config = loaded(tmp_path, {**WHOLE, "num_workers": 3}, stages=[{"split": {"test": 0.1}}])
    assert (config.workers, config.batch_size, config.merge_strategy) == (3, 500, "sequential")
    assert config.batches_path == str(tmp_path / "data/intermediate")
    assert (config.input[0].floats, config.stage_names, config.format) == ("float32", ("split",), "arrays")


@pytest.mark.parametrize(
    ("block", "keys"),
    [
        ({}, {}),
        ({"num_workers": 5}, {"workers": 5}),
        ({"num_workers": 5, "parallel": True}, {"workers": 5}),
        ({"num_workers": 5, "parallel": False}, {"strategy": "sequential"}),
        ({"parallel": False}, {"strategy": "sequential"}),
        ({"parallel": True}, {}),
        ({"batch_size": 7}, {"batch_size": 7}),
        ({"batch_size": None, "intermediate_dir": None, "merge_strategy": None}, {}),
        ({"merge_strategy": "accumulative"}, {"merge_strategy": "accumulative"}),
        ({"monitor_memory": True}, {}),
    ],
)
def test_each_key_becomes_what_it_means(block, keys):
    source = {"floats": "float32", **FUNCTION}  # what those scripts did, unless told otherwise
    assert translated(block) == Translated({"input": source, "output": "data/processed", **keys}, ())


@pytest.mark.parametrize(("use_float32", "floats"), [(True, "float32"), (False, "float64")])
def test_use_float32_says_what_floats_of_a_function_become(use_float32, floats):
    block = {"use_float32": use_float32}
    assert translated(block).job["input"] == {"floats": floats, **FUNCTION}
    sources = [FUNCTION, "a.csv", {"npz": "b.npz"}]
    assert translated(block, input=sources).job["input"] == [{"floats": floats, **FUNCTION}, *sources[1:]]
    said = {**FUNCTION, "floats": "float16"}
    assert translated(block, input=said).job["input"] == said


def test_what_means_nothing_here_is_said():
    notes = translated({"monitor_memory": False}, model={"layers": 3}, training={}).notes
    assert notes[0] == "not about preparing data, and left alone: model, training"
    assert notes[1].startswith("monitor_memory: false: memory is watched always")
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("block", "line", "message"),
    [
        ({"num_wrokers": 3}, 6, "preprocessing.num_wrokers: unknown key. Keys: num_workers, parallel, verbose, batch_"),
        ({"num_wrokers": 3}, 6, "Did you mean 'num_workers'?"),
        ({"verbose": 1}, 6, "preprocessing.verbose: 1 is neither true nor false"),
        ({"batch_size": 5, "parallel": "yes"}, 7, "preprocessing.parallel: 'yes' is neither true nor false"),
        ("sequential", 5, "preprocessing: expected keys such as batch_size, got 'sequential'"),
        (None, 5, "preprocessing: expected keys such as batch_size, got None"),
    ],
)
def test_a_mistake_in_the_block_is_told_with_its_line(tmp_path, block, line, message):
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, block)
    assert message in caught.value.what
    assert caught.value.where == f"{tmp_path / 'config.yaml'}, line {line}"


@pytest.mark.parametrize("missing", ["input", "output"])
def test_what_the_block_cannot_say_is_asked_for(missing):
    job = {"input": FUNCTION, "output": "out", "preprocessing": WHOLE}
    del job[missing]
    with pytest.raises(ConfigError, match=f"`{missing}:` is missing") as caught:
        understood(job)
    lines = {"input": "\ninput: {files: games, function: 'features:samples'}", "output": "\noutput: data/processed"}
    assert lines[missing] in caught.value.next_step


def test_a_plain_config_is_told_the_very_lines_to_add_and_they_do(tmp_path):
    data = {"data_root": "data/games", "processed_dir": "data/ready", "train_ratio": 0.8}
    plain = {"seed": 42, "data": {**data, "val_ratio": 0.15, "test_ratio": 0.05}, "preprocessing": WHOLE}
    with pytest.raises(ConfigError, match="`input:` and `output:` are missing") as caught:
        understood(plain)
    told, merging = caught.value.next_step.split("For batch files that are there already, the input is\n")
    lines = told.partition("\n")[2].partition("\nfeatures:samples is your own function")[0]
    assert lines == (
        "input: {files: data/games, function: 'features:samples'}\n"
        "output: data/ready\n"
        "stages:\n"
        "- split: {by: game_id, val: 0.15, test: 0.05}"
    )
    assert merging == "input: {npz: data/intermediate/batch_*.npz, trust_pickle: true}"
    (tmp_path / "features.py").write_text("def samples(path): ...\n")
    for more in (lines, f"{merging}\noutput: data/ready"):
        (tmp_path / "config.yaml").write_text(f"{yaml.safe_dump(plain)}{more}\n")
        config = load_config(tmp_path / "config.yaml")
        assert config.output_path == str(tmp_path / "data/ready")


def test_values_that_a_job_refuses_are_refused_here_too(tmp_path):
    for block in ({"batch_size": 0}, {"merge_strategy": "fast"}, {"num_workers": -1}):
        with pytest.raises(ConfigError):
            loaded(tmp_path, block)


def test_a_job_without_the_block_is_left_as_it_is():
    job = {"input": "a.csv", "output": "out", "anything": 1}
    assert understood(job) == Translated(job, ())
