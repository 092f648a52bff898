"""Stages of the user's own: a function beside the job, a Stage class, and an entry point of an installed package."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, TaskError
from tests.promises import workshop

CODE = """
from dataclasses import dataclass
import numpy as np, pyarrow as pa, pyarrow.compute as pc
from penstock.prepare.stages.stage import Stage

def doubled(batch, *, column, by=2):
    i = batch.schema.get_field_index(column)
    return batch.set_column(i, column, pc.multiply(batch[column], pa.scalar(by, batch[column].type)))

def fewer(batch):
    return batch.slice(1)

def moody(batch):
    kind = pa.int32() if batch.num_rows <= 100 else pa.float64()
    return pa.RecordBatch.from_arrays([batch["size"].cast(kind)], names=["size"])

def centred(batch):
    i = batch.schema.get_field_index("size")
    return batch.set_column(i, "size", pc.subtract(batch["size"], pc.min(batch["size"])))

@dataclass(frozen=True, kw_only=True)
class Even(Stage):
    column: str

    def __call__(self, rows):
        return rows.keep(np.asarray(rows.batch[self.column]) % 2 == 0, f"{self.column} is odd", keep_rejected=True)
"""


@pytest.fixture
def workplace(tmp_path: Path):
    workshop.make_input(tmp_path / "data", files=1)
    (tmp_path / "own.py").write_text(CODE)
    yield tmp_path
    for name in ("own", "helping"):
        sys.modules.pop(name, None)
    sys.path[:] = [path for path in sys.path if path != str(tmp_path)]


def _job(workplace: Path, *stages: Any) -> Path:
    return workshop.write_job(workplace / "job.yaml", workplace / "data", stages=list(stages))


def _plan_and_run(job: Path, running: Path) -> None:
    plan = penstock.plan(job)
    running.touch()
    penstock.run(plan)


@pytest.mark.proof
def test_a_function_beside_the_job_file_is_a_stage(workplace):
    workshop.run_well(_job(workplace, {"own:doubled": {"column": "size", "by": 3}}))
    given = workshop.make_rows(6000, 0)["size"].to_pylist()
    assert penstock.open(workplace / "out")[:]["size"].to_pylist() == [3 * size for size in given]


@pytest.mark.proof
def test_a_stage_class_sets_rows_aside_with_a_reason(workplace):
    workshop.run_well(_job(workplace, {"own:Even": {"column": "size"}}))
    odd = sum(size % 2 for size in workshop.make_rows(6000, 0)["size"].to_pylist())
    step = json.loads((workplace / "out" / "manifest.json").read_text())["account"][2]
    assert step["set_aside"] == {"size is odd": odd}


@pytest.mark.proof
def test_an_entry_point_of_an_installed_package_is_a_stage(workplace):
    """A real distribution's metadata on the path, as pip would have written it."""
    info = workplace / "site" / "own_stages-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-stages\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[penstock.stages]\neven = own:Even\n")
    job = _job(workplace, {"even": {"column": "size"}})
    workshop.run_well(job, environment={"PYTHONPATH": str(workplace / "site")})
    assert workshop.run(job).returncode == 2  # without the package the name is unknown


def test_options_that_the_function_does_not_take_are_told_before_anything_runs(workplace):
    with pytest.raises(ConfigError, match=r"stages\[0\].own:doubled: .*'bye'"):
        penstock.plan(_job(workplace, {"own:doubled": {"column": "size", "bye": 2}}))


def test_a_function_that_drops_rows_is_refused_so_that_they_are_counted(workplace):
    with pytest.raises(TaskError, match="100 rows and returned 99") as caught:
        penstock.plan(_job(workplace, "own:fewer"))
    assert "filter" in (caught.value.next_step or "")


@pytest.mark.proof
def test_a_function_whose_columns_change_on_the_way_is_told_both(workplace):
    done = workshop.run(_job(workplace, "own:moody"))
    assert done.returncode == 7
    what = json.loads(done.stdout)["what"]
    assert "size: double" in what
    assert "size: int32" in what


def test_a_function_whose_values_depend_on_the_batch_is_refused(workplace):
    with pytest.raises(ConfigError, match="in two batches"):
        penstock.plan(_job(workplace, "own:centred"))


@pytest.mark.proof
def test_changed_code_of_a_class_or_of_a_helper_module_is_noticed(workplace):
    (workplace / "helper.py").write_text("LIMIT = 2\n")
    (workplace / "own.py").write_text(CODE.replace("% 2 == 0", "% LIMIT == 0") + "\nfrom helper import LIMIT\n")
    job = _job(workplace, {"own:Even": {"column": "size"}})
    workshop.run_well(job)
    (workplace / "helper.py").write_text("LIMIT = 3\n")
    refused = workshop.run(job)
    assert refused.returncode == 5
    assert "own:Even" in json.loads(refused.stdout)["what"]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_edited_helper_module_counts_in_the_same_process_too(workplace, workers):
    (workplace / "own.py").write_text(
        CODE + "\nfrom helping import FACTOR\n\ndef scaled(batch):\n"
        "    return doubled(batch, column='size', by=FACTOR)\n"
    )
    made = []
    for factor in (2, 50):
        (workplace / "helping.py").write_text(f"FACTOR = {factor}\n")
        os.utime(workplace / "helping.py", (factor, factor))  # else its bytecode could pass for that of this version
        job = {"output": str(workplace / str(factor)), "workers": workers}
        penstock.run(workshop.write_job(workplace / "job.yaml", workplace / "data", stages=["own:scaled"], **job))
        made.append(np.asarray(penstock.open(workplace / str(factor))[:]["size"]))
    assert made[0].any()
    assert (made[1] == 25 * made[0]).all()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ValueError('no such luck')", "own:Mine raised ValueError: no such luck"),
        ("return rows.batch", "own:Mine returned RecordBatch, not Rows"),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_a_class_that_fails_is_told_by_name_while_planning_and_in_a_worker(workplace, body, words, late):
    guard = f"if {late} and not os.path.exists({str(workplace / 'running')!r}): return rows"
    kind = ["@dataclass(frozen=True, kw_only=True)", "class Mine(Stage):", "    def __call__(self, rows):"]
    (workplace / "own.py").write_text("\n".join(["import os", CODE, *kind, f"        {guard}", f"        {body}"]))
    with pytest.raises(TaskError, match=words) as caught:
        _plan_and_run(_job(workplace, "own:Mine"), workplace / "running")
    assert (workplace / "running").exists() == late
    if "raise" in body:
        assert "own.py, line" in (caught.value.where or "")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_function_may_follow_columns_that_their_file_declares_without_nulls(workplace, workers):
    given = pa.table({"size": pa.array([1, 2, 3])}, pa.schema([pa.field("size", pa.int64(), nullable=False)]))
    pq.write_table(given, workplace / "strict.parquet")
    job = {"stages": [{"own:doubled": {"column": "size"}}], "workers": workers}
    penstock.run(workshop.write_job(workplace / "job.yaml", workplace / "strict.parquet", **job))
    assert penstock.open(workplace / "out")[:]["size"].to_pylist() == [2, 4, 6]


FAILING = """
import os, sys, pyarrow as pa
RUNNING = {running!r}

def leaves(batch):
    if os.path.exists(RUNNING): sys.exit(0)
    return batch

def garbles(batch):
    if not os.path.exists(RUNNING): return batch.append_column("name", pa.array(["a"] * len(batch)))
    data = pa.array([b"\\xff"] * len(batch), pa.binary())
    return batch.append_column("name", pa.Array.from_buffers(pa.string(), len(data), data.buffers()))

def forks(batch):
    if os.path.exists(RUNNING) and os.fork() == 0: return batch
    return batch
"""


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("name", "words"), [("leaves", "raised SystemExit"), ("garbles", "a batch that Arrow cannot use: .*UTF8")]
)
def test_a_function_that_leaves_or_gives_text_that_is_none_ends_the_run_with_its_name(workplace, workers, name, words):
    (workplace / "own.py").write_text(FAILING.format(running=str(workplace / "running")))
    job = workshop.write_job(workplace / "job.yaml", workplace / "data", stages=[f"own:{name}"], workers=workers)
    with pytest.raises(TaskError, match=f"own:{name}.*{words}"):
        _plan_and_run(job, workplace / "running")


@pytest.mark.parametrize("workers", [0, 2])
def test_the_child_of_a_function_that_forks_does_no_task_beside_its_parent(workplace, workers):
    (workplace / "own.py").write_text(FAILING.format(running=str(workplace / "running")))
    data, made = workshop.make_input(workplace / "several", files=3), []
    for output in ("forked", "plain"):
        job = {"stages": ["own:forks"], "workers": workers, "output": str(workplace / output)}
        _plan_and_run(workshop.write_job(workplace / "job.yaml", data, **job), workplace / "running")
        (workplace / "own.py").write_text(FAILING.format(running=str(workplace / "never")))
        made.append(
            {name: each for name, each in workshop.bytes_of(workplace / output).items() if name != "manifest.json"}
        )
    assert made[0] == made[1]
    assert penstock.verify(workplace / "forked").ok


def test_two_jobs_of_one_process_may_each_have_a_module_of_the_same_name(workplace):
    for number in (2, 3):
        folder = workplace / str(number)
        folder.mkdir()
        (folder / "own.py").write_text(CODE.replace("by=2", f"by={number}"))
        stages = [{"own:doubled": {"column": "size"}}]
        penstock.run(workshop.write_job(folder / "job.yaml", workplace / "data", stages=stages, workers=0))
    given = workshop.make_rows(6000, 0)["size"].to_pylist()
    for number in (2, 3):
        assert penstock.open(workplace / str(number) / "out")[:]["size"].to_pylist() == [number * x for x in given]


def test_a_function_named_by_an_entry_point_is_a_stage(workplace):
    info = workplace / "site" / "own_stages-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-stages\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[penstock.stages]\nshout = own:doubled\n")
    job = _job(workplace, {"shout": {"column": "size"}})
    workshop.run_well(job, environment={"PYTHONPATH": str(workplace / "site")})


def test_a_misspelled_module_or_name_says_where_it_looked(workplace):
    with pytest.raises(ConfigError, match="there is no module 'onw'"):
        penstock.plan(_job(workplace, "onw:doubled"))
    with pytest.raises(ConfigError, match="Did you mean 'doubled'"):
        penstock.plan(_job(workplace, "own:dubled"))


def test_a_decorated_function_must_take_its_options_as_keywords():
    with pytest.raises(TypeError, match="options as keywords"):

        @penstock.stage
        def wrong(batch, option):
            return (batch, option)


def test_a_folder_without_init_inside_a_package_of_ones_own_is_imported_anew_too(workplace):
    (workplace / "pack" / "inner").mkdir(parents=True)
    (workplace / "pack" / "__init__.py").touch()
    (workplace / "pack" / "inner" / "stages.py").write_text(CODE)
    for output in ("one", "two"):
        keys = {"stages": [{"pack.inner.stages:doubled": {"column": "size"}}], "workers": 0}
        job = workshop.write_job(workplace / "job.yaml", workplace / "data", output=str(workplace / output), **keys)
        penstock.run(job)
    assert workshop.bytes_of(workplace / "one") == workshop.bytes_of(workplace / "two")
