"""Promises 2 and 3 on a Ray cluster: one, two and three nodes write the same bytes, and a node that dies costs its
tasks and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the library ray, which `make promises` installs")

import penstock
from penstock.prepare.plan.plan import Plan
from tests.clusters.ray_nodes import Nodes, ray_nodes
from tests.promises import arrays_making, near_making, text_making, workshop
from tests.promises.killing import assert_no_leftovers

pytestmark = pytest.mark.thorough
FITTED = [*workshop.STAGES, {"normalize": ["rtt"]}]
NEAR = {"near_dedup": {"threshold": 0.6, "words": 3, **near_making.SURE}}


def _events(folder: Path) -> dict[str, Any]:
    workshop.make_event_input(folder / "data")
    return workshop.job_keys(workshop.write_events_job(folder / "written.yaml", folder / "data"))


def _rows(folder: Path) -> dict[str, Any]:
    workshop.make_input(folder / "data")
    return workshop.job_keys(workshop.write_job(folder / "written.yaml", folder / "data", stages=FITTED))


def _text(folder: Path) -> dict[str, Any]:
    data = text_making.write_documents(folder / "data", *text_making.files_of_documents())
    text_making.write_tokenizer(folder / "tokenizer")
    stages = text_making.stages(folder / "tokenizer")
    return {**workshop.job_keys(text_making.write_job(folder / "written.yaml", data)), "stages": stages}


def _near(folder: Path) -> dict[str, Any]:
    data = text_making.write_documents(folder / "data", *text_making.files_of_documents())
    keys = workshop.job_keys(text_making.write_job(folder / "written.yaml", data))
    return {**keys, "stages": ["clean", {"dedup": {}}, NEAR]}


def _arrays(folder: Path) -> dict[str, Any]:
    games = arrays_making.many_games(folder / "data")
    return workshop.job_keys(arrays_making.write_job(folder / "written.yaml", games))


JOBS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "rows": _rows,
    "events": _events,
    "text": _text,
    "near": _near,
    "arrays": _arrays,
}
# Every kind of pass of these jobs.
PASSES = {
    "rows": ["fit", "map"],
    "events": ["scatter", "gather"],
    "text": ["hash", "match", "map", "pack"],
    "near": ["sign", "pair", "shingle", "verify", "choose"],
    "arrays": ["map", "place"],
}


@dataclass(frozen=True)
class Job:
    """A job, and what a run without workers writes."""

    keys: dict[str, Any]
    folder: Path
    plan: Plan
    written: dict[str, str]

    def write(self, name: str, engine: Any) -> Path:
        """The job in a folder of its own; modules of its functions lie beside it."""
        place = self.folder / name
        place.mkdir()
        for module in self.folder.glob("*.py"):
            (place / module.name).write_bytes(module.read_bytes())
        path = place / "job.yaml"
        path.write_text(json.dumps({**self.keys, "output": "out", "engine": engine, "workers": "auto"}))
        return path

    def assert_is_written(self, job: Path) -> None:
        assert workshop.bytes_of(job.parent / "out") == self.written
        assert_no_leftovers(job.parent / "out")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    made = {}
    for name, make in JOBS.items():
        folder = tmp_path_factory.mktemp(name)
        keys = make(folder)
        plan = penstock.plan(penstock.Config({**keys, "output": "inline", "workers": 0}, folder=str(folder)))
        penstock.run(plan)
        made[name] = Job(keys, folder, plan, workshop.bytes_of(folder / "inline"))
    return made


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with ray_nodes(tmp_path_factory.mktemp("home"), head_cpus=1) as nodes:
        yield nodes


def test_the_jobs_have_every_pass_that_is_listed(jobs):
    """And so every kind of pass that there is."""
    assert {kind for kinds in PASSES.values() for kind in kinds} >= {
        each.pass_.kind for job in jobs.values() for each in job.plan.passes
    }
    for name, kinds in PASSES.items():
        assert {each.pass_.kind for each in jobs[name].plan.passes} >= set(kinds)


@pytest.mark.parametrize("name", JOBS)
def test_one_two_and_three_nodes_write_the_bytes_of_one_process(name, jobs, nodes):
    job, added = jobs[name], []
    try:
        for count in (1, 2, 3):
            path = job.write(f"nodes-{count}", nodes.engine)
            workshop.run_well(path, environment=nodes.environment)
            job.assert_is_written(path)
            added.append(nodes.add())
    finally:
        for each in added:
            nodes.kill(each)


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in PASSES.items() for kind in kinds])
def test_one_of_three_nodes_is_killed_in_every_kind_of_pass(name, kind, jobs, nodes):
    """The run goes on by itself, and only tasks of that node are done again."""
    job, added = jobs[name], [nodes.add(), nodes.add()]
    path = job.write(f"killed-{kind}", nodes.engine)
    output = path.parent / "out"
    run = subprocess.Popen(
        workshop.command(path),
        env={**os.environ, **nodes.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        workshop.wait_for(lambda: _has_begun(output, kind) or run.poll() is not None, seconds=180)
        nodes.kill(added.pop())
        _, told = run.communicate(timeout=300)
    finally:
        run.kill()
        run.wait()
        for each in added:
            nodes.kill(each)
    assert run.returncode == 0, told
    job.assert_is_written(path)
    tasks = workshop.events_named(output, "task")
    assert len(tasks) == workshop.ledger_rows(output)  # each is in the ledger once
    assert len(workshop.events_named(output, "retry")) <= 2


def _has_begun(output: Path, kind: str) -> bool:
    log = output / ".penstock" / "events.jsonl"
    return log.exists() and any(event["kind"] == kind for event in workshop.events_named(output, "pass"))
