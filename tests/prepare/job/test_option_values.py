"""Option values: a dict, a Config and a job file give a function the same values, and are one job."""

from __future__ import annotations

import datetime
import decimal
import enum
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, OutputError
from penstock.prepare.job.config import Config

MODULE = """\
import pyarrow as pa
def told(batch, value=None, **more):
    text = f"{value!r} {type(value).__name__} {more!r}"
    return batch.append_column("told", pa.array([text] * batch.num_rows))
"""


class Mode(enum.Enum):
    FAST = "fast"


class Word(enum.StrEnum):
    FAST = "fast"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "in.parquet")
    (tmp_path / "telling_options.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _config(stage: Any) -> Config:
    return Config(input="in.parquet", output="out", stages=[stage], workers=0)


def _given(options: dict[str, Any]) -> tuple[str, str]:
    """(job id, what the function was given)."""
    manifest = penstock.run(_config({"telling_options:told": options}), progress=False, redo=True)
    return manifest.job, penstock.open("out")[0]["told"]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ((1, 2), [1, 2]),
        ({"a": ((1,), 2)}, {"a": [[1], 2]}),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        ({np.str_("a"): 1}, {"a": 1}),
        (Path("a/b"), "a/b"),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    ],
)
def test_a_value_of_python_is_given_as_a_job_file_says_it(value, written):
    assert _given({"value": value}) == _given({"value": written})
    assert _given({"value": written})[1] == f"{written!r} {type(written).__name__} {{}}"


def test_a_dict_a_config_and_a_job_file_are_one_job(place):
    config = _config({"telling_options:told": {"value": {"a": (1, 2.0, -0.0, None, True)}}})
    (place / "job.yaml").write_text(config.to_yaml())
    made = []
    for job in (config, config.to_dict(), "job.yaml"):
        made.append((penstock.run(job, progress=False, redo=True).job, penstock.open("out")[0]["told"]))
    assert len(set(made)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (0.0, -0.0), (0, False), ("1", 1), (None, "null"), ([], {}),
     ({"a": 1, "b": 2}, {"b": 2, "a": 1})],
)  # fmt: skip
def test_values_that_a_function_can_tell_apart_are_other_jobs(one, other):
    (job, told), (other_job, other_told) = _given({"value": one}), _given({"value": other})
    assert told != other_told
    assert job != other_job


def test_the_order_of_keys_counts_below_the_options_and_their_own_does_not():
    assert _given({"b": 1, "a": {"d": 2, "c": 3}}) == _given({"a": {"d": 2, "c": 3}, "b": 1})
    assert _given({"a": {"d": 2, "c": 3}})[0] != _given({"a": {"c": 3, "d": 2}})[0]


@pytest.mark.parametrize(
    ("value", "what", "next_step"),
    [
        ({1: 2}, "option 'value' has the key 1, an int, but keys are text", "write '1', with quotes"),
        ({"a": [{True: 2}]}, "option 'value' has the key True, a bool", "write 'True', with quotes"),
        ({None: 2}, "option 'value' has the key None, a NoneType", "write text"),
        ({(1, 2): 2}, "option 'value' has the key (1, 2), a tuple", "write text"),
        ({1, 2}, "option 'value' is a set", "sort it into a list"),
        ([frozenset("a")], "option 'value' is a frozenset", "sort it into a list"),
        (b"a", "option 'value' is a bytes", "as text"),
        (decimal.Decimal("1.0"), "option 'value' is a decimal.Decimal", "as text"),
        (np.arange(2), "option 'value' is a numpy.ndarray", "array.tolist()"),
        (np.datetime64("2020-01-01"), "option 'value' is a numpy.datetime64", "functools.partial"),
        (datetime.time(1), "option 'value' is a datetime.time", "functools.partial"),
        (Mode.FAST, "option 'value' is a tests.prepare.job.test_option_values.Mode", "write its .value"),
        (Word.FAST, "option 'value' is a tests.prepare.job.test_option_values.Word", "write its .value"),
        (datetime.date(2020, 1, 2), "option 'value' is a date, but the manifest holds numbers", "as text"),
        (float("nan"), "option 'value' is nan, which the manifest cannot hold", "infinities as text"),
    ],
)
def test_what_a_job_file_cannot_say_is_refused_by_name(value, what, next_step):
    with pytest.raises(ConfigError) as caught:
        _config({"telling_options:told": {"value": value}})
    assert caught.value.what.startswith(f"stages[0].telling_options:told: {what}")
    assert next_step in str(caught.value.next_step)


def test_a_key_that_is_a_number_in_a_job_file_is_refused_too(place):
    text = "input: in.parquet\noutput: out\nstages:\n  - telling_options:told: {value: {1: 2}}\n"
    (place / "job.yaml").write_text(text)
    with pytest.raises(ConfigError, match="has the key 1, an int, but keys are text"):
        Config.from_file("job.yaml")


def test_options_that_contain_themselves_are_refused():
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ConfigError, match="contain themselves"):
        _config({"telling_options:told": {"value": value}})


@dataclass(frozen=True)
class Inner:
    x: int = 1


@dataclass(frozen=True, kw_only=True)
class Typed(penstock.Stage):
    inner: Inner | None = None
    word: Word = Word.FAST
    words: tuple[str, ...] = ()
    by_number: dict[int, float] | None = None

    def __call__(self, rows):
        return rows


@dataclass(frozen=True, kw_only=True)
class Untyped(penstock.Stage):
    since: datetime.date | None = None
    words: frozenset[str] | None = None


@pytest.mark.parametrize(
    ("stage", "options"),
    [
        (Typed(inner=Inner(x=2)), {"inner": {"x": 2}}),
        (Typed(word=Word.FAST), {"word": "fast"}),
        (Typed(words=("a",)), {"words": ["a"]}),
    ],
)
def test_a_stage_made_in_python_is_the_job_of_its_options(stage, options):
    jobs = {penstock.plan(_config(each)).job for each in (stage, {Typed: options})}
    assert len(jobs) == 1


@pytest.mark.parametrize(
    ("options", "word"), [({"since": "2020-01-02"}, "date"), ({"words": ["a"]}, "frozenset")]
)  # fmt: skip
def test_a_field_that_the_manifest_cannot_hold_is_refused_by_name(options, word):
    with pytest.raises(ConfigError, match=f"option '{next(iter(options))}' is a {word}, but the manifest holds"):
        _config({Untyped: options})


def test_another_order_of_the_columns_of_samples_is_another_job():
    def job(schema):
        return {"input": {"items": 2, "function": lambda item: {"x": item, "y": item}, "schema": schema}, "output": "o",
                "workers": 0}  # fmt: skip

    penstock.run(job({"x": "int32", "y": "int32"}), progress=False)
    with pytest.raises(OutputError, match=r"input\[0\].columns"):
        penstock.run(job({"y": "int32", "x": "int32"}), progress=False)


def test_items_with_sets_are_refused():
    with pytest.raises(ConfigError, match="items: item 0 has a set, whose order is another one in each process"):
        Config(input={"items": [{"a": {"x", "y"}}], "function": lambda item: {"x": len(item)}}, output="o")
