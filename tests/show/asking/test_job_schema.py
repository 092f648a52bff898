"""An editor that has the schema accepts what penstock accepts, and marks what it refuses."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.base.errors import ConfigError
from penstock.prepare.job.config import Config
from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.stages import BUILT_IN
from penstock.show.asking.job_schema import job_schema
from penstock.show.asking.starter import STARTER

jsonschema = pytest.importorskip("jsonschema")
EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/*.yaml"))
JOB = {"input": "a.csv", "output": "out"}


def accepts(job: Any) -> bool:
    schema = job_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return not list(jsonschema.Draft202012Validator(schema).iter_errors(job))


def test_the_starter_is_accepted_as_it_stands_and_with_every_line_uncommented():
    assert accepts(yaml.safe_load(STARTER))
    uncommented = STARTER.replace("  # - ", "  - ")
    assert len(yaml.safe_load(uncommented)["stages"]) == 12
    assert accepts(yaml.safe_load(uncommented))


def test_the_starter_explains_every_key_in_a_form_that_works(tmp_path):
    (tmp_path / "features.py").write_text("def samples(path): ...\n")
    uncommented = re.sub(r"^# (?= *[a-z_0-9]+:)", "", STARTER, flags=re.MULTILINE)
    first, *others = re.split(r"^(?=input:)", uncommented, flags=re.MULTILINE)
    job = yaml.safe_load(first + others[-1])
    assert job.keys() == {name for name, field in Config.model_fields.items() if not field.exclude}
    sources = [yaml.safe_load(each)["input"] for each in others[1:]]
    assert set().union(*sources) == {info.alias or name for name, info in SourceConfig.model_fields.items()}
    for source in ("data", *sources):
        assert accepts({**job, "input": source})
        Config({**job, "input": source}, folder=str(tmp_path))
    sys.modules.pop("features")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.parent.name)
def test_the_examples_are_accepted(path):
    assert accepts(yaml.safe_load(path.read_text()))


@pytest.mark.proof
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"input": ["a.csv", {"path": ["b.csv", "c.csv"], "format": "csv", "types": {"x": "int8"}}]},
        {"memory": 2_000_000_000, "slice_size": "1MiB", "workers": "auto", "task_timeout": 3.5},
        {"workers": 0, "format": "npy", "on_bad_input": "set_aside"},
        {"engine": "local", "workers": 0},
        {"engine": "ray"},
        {"engine": {"ray": None}},
        {"engine": {"ray": {"address": "auto"}}},
        {"stages": [{"filter": "x > 0"}, {"filter": ["x > 0", "y is null"]}, {"filter": {"where": "x > 0"}}]},
        {"stages": [{"filter": {"where": ["x > 0"], "keep": True}}]},
        {"stages": [{"select": "x"}, {"select": ["x", "y"]}, {"select": {"new": "old"}}]},
        {"stages": [{"split": {"test": 0.1}}, {"split": {"by": "user", "test": 0.1, "val": 0.2}}]},
        {"stages": [{"split": {"by": ["a", "b"], "test": 0.1}}]},
        {"stages": [{"split": {"test": 1000}}, {"split": {"by": "user", "test": 100, "val": 50, "seed": 1}}]},
        {"stages": [{"split": {"by_time": "at", "validation": "2024-05-01", "test": "2024-06-01"}}]},
        {"stages": [{"split": {"by_time": "at", "test": 1717200000}}]},
        {"stages": [{"group": {"by": "user"}}, {"split": {"by": "key", "test": 0.1}}]},
        {"stages": [{"group": {"by": ["a", "b"], "order": ["t"], "max_record": 1000, "null_keys": "group"}}]},
        {"strategy": "streaming", "format": "arrayrecord", "stages": [{"group": {"by": "user", "max_record": "8MiB"}}]},
        {"stages": [{"normalize": ["x"]}, {"statistics": {"columns": ["x"]}}]},
        {
            "stages": [
                {"normalize": {"columns": ["x"], "method": "standard", "skip": ["y", 7, "10:20"], "type": "float16"}}
            ]
        },
        {"stages": [{"normalize": {"skip": ["y"]}}, {"normalize": {"method": "standard"}}]},
        {"input": {"npz": ["a.npz", "b.npz"], "trust_pickle": True}, "merge_strategy": "accumulative"},
        {"input": {"files": "*.txt", "function": "os:listdir"}, "intermediate_dir": "batches", "batch_size": 7},
        {"input": {"path": "a.csv", "function": "os:listdir", "batch_rows": 10, "floats": "float64"}},
        {
            "input": {
                "files": ["*.txt"],
                "function": "os:listdir",
                "schema": {"features": "float32[893]", "labels": {"move": "int16"}},
                "missing": {"labels_move": -1},
                "function_memory": 1_000_000,
            }
        },
        {"export": "hf", "stages": []},
        {"export": {"to": "hf", "path": "rows-hf", "shard_size": 1_000_000}},
        {"stages": ["clean", "dedup", {"tokenize": "tokenizer.json"}, {"pack": 2048}]},
        {
            "input": [
                {"path": "a.parquet", "text_column": "body"},
                {"path": "b", "format": "text", "document": "line"},
            ],
            "stages": [
                {"clean": {"column": "text", "normalize": "nfc"}},
                {"dedup": {"remember": "seen", "keep": True}},
                {"tokenize": {"tokenizer": "org/name", "add_bos": True, "eos": "</s>", "engine": "hf"}},
                {"pack": {"length": 64, "method": "best_fit", "overflow": "truncate", "window": 6400}},
            ],
        },
        {"stages": [{"json:loads": {"anything": 1}}, "json:loads", {"json:loads": None}]},
    ],
)
def test_every_form_that_penstock_takes_is_accepted(keys):
    job = {**JOB, **keys}
    assert accepts(job)
    if "json:loads" not in str(keys):  # a name that any function may have; this one is no stage
        Config(job)


@pytest.mark.proof
@pytest.mark.parametrize(
    "keys",
    [
        {"memroy": "1GB"},
        {"workers": -1},
        {"workers": "many"},
        {"format": "zip"},
        {"task_timeout": 0},
        {"input": {"path": "a.csv", "delimeter": ";"}},
        {"input": {"format": "csv"}},
        {"input": {"path": "a.csv", "npz": "a.npz"}},
        {"input": {"files": "*.txt"}},
        {"input": {"files": "*.txt", "function": "listdir"}},
        {"input": {"npz": "a.npz", "function": "os:listdir"}},
        {"input": {"path": "a.csv", "schema": {"x": "int8"}}},
        {"input": {"path": "a.csv", "missing": {"x": 0}}},
        {"input": {"path": "a.csv", "function_memory": "1GB"}},
        {"input": {"files": "*.txt", "function": "os:listdir", "floats": "float8"}},
        {"merge_strategy": "fast"},
        {"engine": "spark"},
        {"engine": {"ray": {"adress": "auto"}}},
        {"engine": {"local": {}, "ray": {}}},
        {"batch_size": 0},
        {"stages": [{"normalize": {"method": "robust"}}]},
        {"stages": [{"normalize": {"columns": ["x"], "skip": [-1]}}]},
        {"stages": [{"normalize": {"columns": ["x"], "type": "int8"}}]},
        {"stages": [{"statistics": {}}]},
        {"stages": [{"filtre": "x > 0"}]},
        {"stages": [{"filter": "x > 0", "select": ["x"]}]},
        {"stages": [{"filter": {"were": "x > 0"}}]},
        {"stages": [{"split": {"test": 2.5}}]},
        {"stages": [{"split": {"test": 0}}]},
        {"stages": [{"split": {"test": 100, "val": 0.1}}]},
        {"stages": [{"split": {"test": 1_000_000}}]},
        {"strategy": "fast"},
        {"stages": [{"group": {"order": "time"}}]},
        {"stages": [{"group": {"by": "user", "null_keys": "drop"}}]},
        {"stages": [{"group": {"by": "user", "max_rows": 3}}]},
        {"export": "arrow"},
        {"stages": [{"tokenize": {"tokeniser": "tokenizer.json"}}]},
        {"stages": [{"pack": {"method": "wrapped"}}]},
        {"stages": [{"pack": 1}]},
        {"stages": [{"pack": {"length": 64, "method": "tight"}}]},
        {"stages": {"filter": "x > 0"}},
    ],
)
def test_what_penstock_refuses_is_marked(keys):
    job = {**JOB, **keys}
    assert not accepts(job)
    with pytest.raises(ConfigError):
        Config(job)


def test_every_built_in_stage_can_be_completed_and_is_explained():
    stages = job_schema()["properties"]["stages"]["items"]["anyOf"][0]["properties"]
    assert stages.keys() >= BUILT_IN.keys()
    assert all(stages[name]["description"] for name in BUILT_IN)
