"""Functions as objects: given to penstock.run in a script or a session, they do what their names would."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, OutputError, TaskError
from penstock.prepare.job.config import Config

SCRIPT = """\
import functools, json, os, sys
from dataclasses import dataclass
import numpy as np, pyarrow.compute as pc
import penstock

BY = 2
def times(array, by):
    return pc.multiply(array, by)
def scaled(batch, *, by=BY):
    assert os.getpid() != {driver} or not int(sys.argv[1])
    return batch.set_column(0, "x", times(batch["x"], by))
def small(batch):
    return np.asarray(batch["x"]) < 60
@dataclass(frozen=True, kw_only=True)
class Even(penstock.Stage):
    column: str
    def __call__(self, rows):
        return rows.keep(np.asarray(rows.batch[self.column]) % 4 == 0, "odd")
stages = [scaled, {{"filter": small}}, {{scaled: {{"by": 3}}}}, functools.partial(scaled, by=1), Even(column="x"),
          {{Even: {{"column": "x"}}}}, lambda batch: batch]
job = {{"input": "in.parquet", "output": "out", "stages": stages, "workers": int(sys.argv[1])}}
penstock.run(job, progress=False)
print(penstock.open("out")[:]["x"].to_pylist())
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pq.write_table(pa.table({"x": list(range(100))}), tmp_path / "in.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _script(place: Path, code: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    (place / "script.py").write_text(code)
    command = [sys.executable, "script.py", *arguments]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False, **options)


def _job(*stages: Any, **keys: Any) -> dict[str, Any]:
    return {"input": "in.parquet", "output": "out", "stages": list(stages), "workers": 0, **keys}


def _run(*stages: Any, **keys: Any) -> list[int]:
    job = _job(*stages, **keys)
    penstock.run(job, progress=False)
    return penstock.open(job["output"])[:]["x"].to_pylist()


@pytest.mark.parametrize("workers", ["1", "0"])
def test_functions_and_stages_of_a_script_run_in_workers_and_in_the_driver(place, workers):
    done = _script(place, SCRIPT.format(driver=0), workers)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [6 * x for x in range(30) if 6 * x % 4 == 0]


def test_a_session_without_a_file_may_hold_the_functions_of_its_job(place):
    code = SCRIPT.format(driver=0).replace("\nstages", "\n\nstages").replace("int(sys.argv[1])", "1")
    done = subprocess.run([sys.executable, "-"], cwd=place, input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[:3] == [0, 12, 24]


def test_a_second_process_finds_the_job_done_and_an_edit_is_named(place):
    code = SCRIPT.format(driver=0)
    assert _script(place, code, "0").returncode == 0
    again = _script(place, "# moved\n\n" + code.replace("return batch.set", "# set\n    return batch.set"), "0")
    assert again.returncode == 0, again.stderr
    edited = _script(place, code.replace("BY = 2", "BY = 5"), "0")
    assert "made from something else: stages[0].code[0]: the code of scaled, or what it uses" in edited.stderr
    helper = _script(place, code.replace("return pc.multiply(array, by)", "return pc.add(array, by)"), "0")
    assert "made from something else: stages[0].code[0]: the code of scaled, or what it uses" in helper.stderr


def _plus(number: int) -> Any:
    def added(batch):
        return batch.set_column(0, "x", pc.add(batch["x"], number))

    return added


def _plus_option(batch, *, number=0):
    return batch.set_column(0, "x", pc.add(batch["x"], number))


@pytest.mark.usefixtures("place")
def test_a_closure_and_a_partial_are_known_by_what_they_capture():
    assert _run(_plus(3))[:2] == [3, 4]
    assert _run(_plus(3))[:2] == [3, 4]  # done already
    with pytest.raises(OutputError, match=r"stages\[0\].code\[0\]: the code of added, or what it uses"):
        _run(_plus(4))
    jobs = [penstock.plan(_job(functools.partial(_plus_option, number=number))).job for number in (1, 1, 2)]
    assert jobs[0] == jobs[1] != jobs[2]


def test_a_function_of_a_module_is_the_same_job_as_its_name(place):
    (place / "own.py").write_text("def same(batch):\n    return batch\n")
    sys.path.insert(0, str(place))
    try:
        import own

        plans = [penstock.plan(_job(stage)).job for stage in ("own:same", own.same, own.same)]
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("own", None)
    assert len(set(plans)) == 1


@pytest.mark.parametrize("make", ["penstock.plan", "penstock.Config"])
@pytest.mark.parametrize("workers", ["1", "0"])
def test_a_value_that_changes_after_planning_does_not_change_the_plan(place, make, workers):
    code = """\
import sys
import penstock, pyarrow.compute as pc
by = [1]
def added(batch):
    return batch.set_column(0, "x", pc.add(batch["x"], by[0]))
job = {"input": "in.parquet", "output": "out", "stages": [added], "workers": int(sys.argv[1])}
made = MAKE(job)
by[0] = 100
penstock.run(made, progress=False)
print(penstock.open("out")[:]["x"].to_pylist()[0])
"""
    done = _script(place, code.replace("MAKE", make), workers)
    assert done.stdout.strip() == "1", done.stderr


def test_a_value_that_workers_would_not_see_is_refused(place):
    (place / "settings.py").write_text("BY = 1\n")
    code = """\
import sys
import penstock, pyarrow.compute as pc, settings
settings.BY = 100
def added(batch):
    return batch.set_column(0, "x", pc.add(batch["x"], settings.BY))
job = {"input": "in.parquet", "output": "out", "stages": [added], "workers": int(sys.argv[1])}
penstock.run(job, progress=False)
print(penstock.open("out")[:]["x"].to_pylist()[0])
"""
    assert "added uses settings.BY, which was set to another value" in _script(place, code, "1").stderr
    assert _script(place, code, "0").stdout.strip() == "100"


def test_an_error_of_a_function_names_its_line_in_the_script(place):
    code = """\
import penstock
def broken(batch):
    return batch["nothing"]
penstock.run({"input": "in.parquet", "output": "out", "stages": [broken], "workers": 1}, progress=False)
"""
    done = _script(place, code)
    assert "broken raised KeyError" in done.stderr
    assert f'{place}/script.py, line 3, in broken: return batch["nothing"]' in done.stderr
    assert not (place / "out").exists()


def test_what_has_no_identity_is_refused_before_anything_is_written(place):
    generator = np.random.default_rng(1)

    def noisy(batch):
        return batch.set_column(0, "x", generator.normal(0, 1, batch.num_rows))

    with pytest.raises(ConfigError) as caught:
        penstock.run(_job(noisy), progress=False)
    assert caught.value.what == (
        "stages[0].noisy: noisy uses 'generator', a numpy.random._generator.Generator, which has no identity that a "
        "later run could check"
    )
    assert not (place / "out").exists()


@dataclass(frozen=True, kw_only=True)
class Kept(penstock.Stage):
    least: int

    def __call__(self, rows):
        return rows.keep(np.asarray(rows.batch["x"]) >= self.least, "too small")


class Undecorated(penstock.Stage):
    column: str

    def __call__(self, rows):
        return rows


class Plain:
    def __call__(self, rows):
        return rows


def _nothing():
    return None


def _two(batch, other):
    return batch, other


def _samples(path):
    yield path


@pytest.mark.usefixtures("place")
def test_a_class_of_a_module_that_an_earlier_job_forgot_keeps_its_name(monkeypatch):
    """Else the second run of a script would find another identity than the first, and redo everything."""
    monkeypatch.delitem(sys.modules, __name__)
    assert Config(_job(Kept(least=90))).stages == ({f"{__name__}:Kept": {"least": 90}},)


@pytest.mark.usefixtures("place")
def test_a_ready_stage_is_its_class_with_options():
    assert Config(_job(Kept(least=90))).stages == ({f"{__name__}:Kept": {"least": 90}},)
    assert _run(Kept(least=97)) == [97, 98, 99]


@pytest.mark.usefixtures("place")
def test_a_ready_built_in_stage_is_its_name():
    from penstock.prepare.stages.filter import Filter

    plans = [penstock.plan(_job(stage)).job for stage in (Filter(where=("x > 3",)), {"filter": "x > 3"})]
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    ("stage", "what", "next_step"),
    [
        (Undecorated, "Undecorated is a Stage without @dataclass, so column is no option", "@dataclass(frozen=True"),
        (Plain, "Plain is a class, but not a Stage", "penstock.Stage"),
        (
            _nothing,
            "_nothing is called as _nothing(), but a stage is called differently",
            "def my_stage(batch, *, option=1)",
        ),
        (_two, "_two is called as _two(batch, other), but a stage is called differently", "def my_stage(batch, *"),
        (_samples, "_samples yields, but a stage returns one record batch", "input: {files: ..., function: ...}"),
        ({_plus_option: {"numbr": 1}}, "unknown option 'numbr'. Options: number. Did you mean 'number'?", ""),
        ({_plus_option: {"number": object()}}, "option 'number' is an object, but options are what a job", "partial"),
        ({_plus_option: {"number": abs}}, "option 'number' is a builtin_function_or_method, but options", "partial"),
        (Plain(), "Plain uses 'Plain', a ", "frozen dataclasses"),
        (42, "one stage with its options", ""),
    ],
)
@pytest.mark.usefixtures("place")
def test_what_is_no_stage_is_refused_in_a_sentence(stage, what, next_step):
    with pytest.raises(ConfigError) as caught:
        penstock.plan(_job(stage))
    assert caught.value.what.startswith("stages[0]")
    assert what in caught.value.what
    assert next_step in str(caught.value.next_step)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ({"items": 5, "function": 3}, "input[0].function: expected module:name, or in Python a function; got 3"),
        ({"items": 5}, "in Python a function too"),
    ],
)
def test_a_source_without_a_function_is_told_that_a_function_may_stand_there(source, what):
    with pytest.raises(ConfigError) as caught:
        penstock.plan({"input": source, "output": "out"})
    assert what in caught.value.what


def test_a_set_has_one_order_in_all_workers(place, monkeypatch):
    words = {"a", "b", "c", "d", "e", "f"}

    def joined(batch):
        return batch.set_column(0, "x", pa.array(["".join(words)] * batch.num_rows))

    found = set()
    for seed in ("1", "2", "3"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        found |= set(_run(joined, workers=1, output=str(place / seed)))
    assert len(found) == 1


@pytest.mark.usefixtures("place")
def test_a_word_of_another_session_is_refused():
    with pytest.raises(ConfigError, match="cleaned@0123456789ab is a function of another session"):
        penstock.plan(_job("cleaned@0123456789ab"))


def test_rows_that_a_filter_function_drops_are_counted_under_its_name(place):
    small = lambda batch: np.asarray(batch["x"]) < 10  # noqa: E731
    assert len(_run({"filter": small})) == 10
    account = json.loads((place / "out" / "manifest.json").read_text())["account"]
    assert account[2]["set_aside"] == {"lambda": 90}


@pytest.mark.usefixtures("place")
def test_a_function_that_drops_rows_is_told_to_be_a_filter():
    with pytest.raises(TaskError, match="lambda was given 100 rows and returned 99"):
        penstock.plan(_job(lambda batch: batch.slice(1)))
