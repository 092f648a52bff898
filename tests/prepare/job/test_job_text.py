"""A dict, a Config and a YAML file mean the same, and each prints as the others."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import Config, ConfigError
from penstock.prepare.job.job_file import read_yaml

JOB = {"input": "data/*.csv", "output": "out", "stages": [{"filter": "value > 0"}, {"split": {"test": 0.1}}]}


def test_a_dict_keywords_and_a_file_are_equal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = Config(JOB)
    Path("job.yaml").write_text(str(config))
    assert Config(**JOB) == config == Config.from_file("job.yaml")
    assert Config({**JOB, "output": "elsewhere"}, output="out") == config
    assert config.to_dict() == JOB


def test_a_config_prints_as_the_job_file_a_person_would_write():
    job = {**JOB, "stages": ["clean", *JOB["stages"]], "memory": "2GB"}
    assert str(Config(job)) == (
        "input: data/*.csv\noutput: out\nstages:\n- clean\n- {filter: value > 0}\n- split: {test: 0.1}\nmemory: 2GB\n"
    )


def test_a_job_of_plain_values_has_a_line_per_key():
    assert str(Config(input="data/*.csv", output="out")) == "input: data/*.csv\noutput: out\n"


def test_a_repr_is_python_that_makes_the_config_again():
    config = Config(JOB, workers=0)
    assert eval(repr(config), {"Config": Config}) == config
    assert "\x1b" not in repr(Config(JOB, output="a\x1b[31m"))


def test_a_notebook_shows_the_job_file_without_markup_from_it():
    shown = Config(JOB, output="<script>alert(1)</script>")._repr_html_()
    assert shown.startswith("<pre>input: data/*.csv\n")
    assert "<script" not in shown
    assert "\u202e" not in Config(JOB, output="a\u202eb")._repr_html_()


@pytest.mark.parametrize("wrong", [{"memory": "lots"}, {"outptu": "x"}, {"stages": [{"filtre": "a"}]}, {"workers": -1}])
def test_keywords_are_refused_as_the_keys_of_a_file_are(wrong, tmp_path):
    with pytest.raises(ConfigError) as by_dict:
        Config({**JOB, **wrong})
    (tmp_path / "job.yaml").write_text(repr({**JOB, **wrong}))
    with pytest.raises(ConfigError) as by_file:
        Config.from_file(tmp_path / "job.yaml")
    assert by_dict.value.what == by_file.value.what


def test_every_key_of_a_job_file_is_a_keyword():
    keys = [info.alias or name for name, info in Config.model_fields.items()]
    assert list(inspect.signature(Config).parameters)[1:] == keys


def test_a_function_prints_by_its_name():
    from penstock.prepare.job.job_text import job_text

    assert job_text({"stages": [{len: None}]}) == "stages:\n- {'builtins:len': null}\n"


def test_items_print_as_they_were_written(tmp_path):
    def config(items):
        return Config(input={"items": items, "function": "math:sqrt"}, output="out", folder=tmp_path)

    assert "input: {items: 1000, " in str(config(1000))
    assert config(range(1000)).to_dict()["input"]["items"] == 1000
    assert "[2, 4]" in str(config(range(2, 6, 2)))
    assert "[1, 2]" in str(config(np.array([1, 2])))
    for items in (3, range(2, 6, 2), np.array([1, 2]), ["a", {"b": [1.5]}]):
        made = config(items)
        assert Config(made.to_dict(), folder=tmp_path) == made
        assert read_yaml(str(made))["input"]["function"] == "math:sqrt"


def test_a_plan_of_a_config_is_the_plan_of_its_yaml(tmp_path):
    (tmp_path / "a.csv").write_text("value\n1\n2\n")
    config = Config(input=str(tmp_path / "a.csv"), output=str(tmp_path / "out"), workers=0)
    (tmp_path / "job.yaml").write_text(config.to_yaml())
    assert penstock.plan(tmp_path / "job.yaml").job == penstock.plan(config).job == penstock.plan(config.to_dict()).job


_WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(
    lambda text: text.strip() == text and not set(text) & set("~$/:*?[") and text not in (".", "..")
)
_SOURCES = st.one_of(
    _WORDS,
    st.lists(_WORDS, min_size=1, max_size=2),
    st.fixed_dictionaries(
        {"path": st.one_of(_WORDS, st.lists(_WORDS, min_size=1, max_size=2))},
        optional={
            "format": st.sampled_from(["auto", "csv", "jsonl"]),
            "delimiter": st.sampled_from([";", "\t", "#"]),
            "null_values": st.lists(st.text(max_size=3), max_size=2),
            "types": st.dictionaries(_WORDS, st.sampled_from(["int8", "timestamp[us, UTC]", "string"]), max_size=2),
            "newlines_in_values": st.booleans(),
        },
    ),
)
_STAGES = st.one_of(
    st.just("clean"),
    st.builds(lambda names: {"select": names}, st.lists(_WORDS, min_size=1, max_size=2, unique=True)),
    st.builds(lambda by: {"group": {"by": by, "max_record": "8MiB"}}, _WORDS),
    st.builds(lambda share, seed: {"split": {"test": share, "seed": seed}}, st.floats(0.01, 0.9), st.integers(0, 9)),
    st.builds(lambda value: {"filter": f"`a` == {value!r}"}, st.integers()),
)
_JOBS = st.fixed_dictionaries(
    {"input": _SOURCES, "output": _WORDS},
    optional={
        "stages": st.lists(_STAGES, max_size=3),
        "format": st.sampled_from(["safetensors", "npy", "arrays", "arrayrecord"]),
        "on_bad_input": st.sampled_from(["fail", "set_aside"]),
        "slice_size": st.sampled_from(["1MB", "2GiB", 12345678]),
        "memory": st.sampled_from(["80%", "2GB", 10**9]),
        "workers": st.one_of(st.just("auto"), st.integers(0, 9)),
        "task_timeout": st.floats(0.1, 1e6),
        "stall_notice": st.integers(1, 100),
        "batch_size": st.integers(1, 1000),
        "merge_strategy": st.sampled_from(["sequential", "accumulative"]),
        "export": st.one_of(st.just("hf"), st.fixed_dictionaries({"to": st.just("hf"), "path": _WORDS})),
        "intermediate_dir": _WORDS.map(lambda word: f"between/{word}"),
    },
)


@settings(max_examples=150, deadline=None)
@given(job=_JOBS)
def test_the_yaml_of_any_config_loads_back_to_an_equal_one(job):
    try:
        config = Config(job)
    except ConfigError:  # an impossible combination
        return
    assert Config(read_yaml(config.to_yaml())) == config
    assert Config(config.to_dict()) == config
