"""Members: a run that several processes do by a plan file: one short job, and whoever cannot take part is told why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Config
from penstock.base.errors import ConfigError, InputError, OutputError, PlanError
from penstock.base.stores.local import LocalStore
from penstock.prepare.run.members.beginning import begin
from penstock.prepare.run.members.plan_file import tasks_of
from penstock.shards.manifest import dataset_id
from penstock.show.running.joined import work

ROWS = [
    {"key": f"k{number % 7}", "time": number, "value": number / 3, "note": "ü" if number % 3 else None}
    for number in range(4000)
]
CODE = """
import pyarrow as pa

def doubled(rows):
    return pa.record_batch({"value": [2 * each.as_py() for each in rows["value"]]})
"""


def _job(folder: Path, **keys: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "in").mkdir(exist_ok=True)
    for number in range(3):
        lines = [json.dumps({**row, "time": 3 * row["time"] + number}) for row in ROWS]
        (folder / "in" / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    job = {
        "input": "in/*.jsonl",
        "output": "out",
        "memory": "1GB",
        "slice_size": "60kB",
        "stages": [{"group": {"by": "key", "order": "time"}}],
        "engine": "workers",
        **keys,
    }
    (folder / "job.yaml").write_text(json.dumps(job))  # which is YAML
    return folder / "job.yaml"


def _begun(job: Path) -> LocalStore:
    """The output, with a plan that workers can join, and nobody who watches."""
    plan = penstock.plan(job)
    store = LocalStore(plan.config.output_path)
    begin(store, plan, redo=False)
    return store


def _penstock(*arguments: str) -> subprocess.Popen[str]:
    called = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.Popen(called, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_workers_write_the_dataset_of_one_machine(tmp_path):
    job = _job(tmp_path)
    watcher = _penstock("run", str(job), "--json")
    deadline = time.monotonic() + 60
    while not (tmp_path / "out" / ".penstock" / "plan.json").exists():
        assert time.monotonic() < deadline
        assert watcher.poll() is None, watcher.communicate()
        time.sleep(0.02)
    workers = [_penstock("work", str(tmp_path / "out"), "--json", "-w", "1") for _ in range(2)]
    answers = []
    for each in (watcher, *workers):
        output, errors = each.communicate(timeout=60)
        assert each.returncode == 0, errors
        answers.append(json.loads(output))
    alone = penstock.run(
        {
            **json.loads(job.read_text()),
            "engine": "local",
            "output": str(tmp_path / "alone"),
            "input": str(tmp_path / "in" / "*.jsonl"),
            "workers": 0,
        }
    )
    made = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert made == json.loads((tmp_path / "alone" / "manifest.json").read_text())
    assert {each["dataset"] for each in answers} == {dataset_id(LocalStore(str(tmp_path / "out")))}
    run = json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())
    assert run["tasks_done"] == answers[1]["tasks"] + answers[2]["tasks"]
    assert {each["member"] for each in run["members"]} == {each["member"] for each in answers[1:]}
    assert 0 < sum(each["tasks"] for each in run["members"]) <= run["tasks_done"]
    left = set(os.listdir(tmp_path / "out" / ".penstock"))
    assert not left & {"plan.json", "spill", "live.json"}
    assert not list((tmp_path / "out" / ".penstock").glob("tmp/*"))
    assert alone.job == made["job"]


def test_without_a_plan_the_error_says_how_to_start_one(tmp_path):
    with pytest.raises(OutputError, match="no run waits for workers here") as error:
        work(str(tmp_path))
    assert "--engine workers" in str(error.value)


def test_a_worker_that_comes_too_late_has_nothing_to_do(tmp_path):
    manifest = penstock.run(Config.from_file(_job(tmp_path, engine="local")), progress=False)
    worked = work(str(tmp_path / "out"))
    assert (worked.tasks, worked.member) == (0, "")
    assert worked.dataset == dataset_id(LocalStore(str(tmp_path / "out")))
    assert manifest.job


def test_another_version_is_refused_by_name(tmp_path):
    store = _begun(_job(tmp_path))
    plan = tmp_path / "out" / ".penstock" / "plan.json"
    facts = json.loads(plan.read_text())
    facts["versions"]["penstock"] = "0.0.9"
    plan.write_text(json.dumps(facts))
    with pytest.raises(OutputError, match=r"other versions than the run: penstock \d.* here, 0\.0\.9 there"):
        work(store.root)


def test_a_file_that_this_machine_does_not_see_is_named(tmp_path):
    store = _begun(_job(tmp_path))
    (tmp_path / "in" / "1.jsonl").unlink()
    with pytest.raises(OutputError, match=r"sees another job than the run: 1\.jsonl: gone"):
        work(store.root)


def test_code_that_differs_or_cannot_be_imported_is_named(tmp_path):
    (tmp_path / "theirs.py").write_text(CODE)
    store = _begun(_job(tmp_path, stages=["theirs:doubled"]))
    (tmp_path / "theirs.py").write_text(CODE.replace("2 *", "3 *"))
    with pytest.raises(OutputError, match=r"sees another job than the run: .*the code of theirs:doubled"):
        work(store.root)
    (tmp_path / "theirs.py").unlink()
    fresh = _penstock("work", store.root)
    assert "there is no module 'theirs'" in fresh.communicate(timeout=60)[1]
    assert fresh.returncode == 2


def test_a_machine_that_is_smaller_than_a_task_is_refused_before_any_work(tmp_path):
    store = _begun(_job(tmp_path))
    with pytest.raises(PlanError, match="memory"):
        work(store.root, memory="60MB")
    small = _penstock("work", store.root, "--memory", "160MB", "--workers", "0")  # a process of its own is smaller
    assert "a single row may take 125 MB in this run" in small.communicate(timeout=60)[1]
    assert small.returncode != 0
    assert not list((tmp_path / "out" / ".penstock" / "tasks").glob("*"))


def test_tasks_are_the_same_whatever_a_machine_has(tmp_path):
    job = json.loads(_job(tmp_path).read_text())
    plans = []
    for memory, workers in (("1GB", 1), ("500MB", 2), ("2GB", 0)):
        config = Config({**job, "memory": memory, "workers": workers, "engine": "local"}, folder=str(tmp_path))
        plans.append(penstock.plan(config))
    assert len({tasks_of(plan) for plan in plans}) == len({plan.job for plan in plans}) == 1


def test_a_row_that_is_too_large_for_the_run_is_set_aside_on_a_machine_that_could_hold_it(tmp_path):
    job = _job(tmp_path, stages=[], memory="500MB", on_bad_input="set_aside", slice_size="64MB")
    with open(tmp_path / "in" / "2.jsonl", "a") as file:
        file.write(json.dumps({"key": "x" * 10_000_000, "time": 1, "value": 0.5, "note": "a"}) + "\n")
    penstock.run(
        {
            **json.loads(job.read_text()),
            "input": str(tmp_path / "in" / "*.jsonl"),
            "engine": "local",
            "output": str(tmp_path / "alone"),
        },
        progress=False,
    )
    store = _begun(job)
    work(store.root, memory="2GB", workers="0")
    made = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("out", "alone")]
    assert made[0] == made[1]
    assert sum(sum(step["set_aside"].values()) for step in made[0]["account"]) == 1


def test_functions_and_items_of_a_session_are_refused(tmp_path):
    def doubled(rows):
        return rows

    _job(tmp_path)
    job = {"input": str(tmp_path / "in" / "*.jsonl"), "output": str(tmp_path / "out"), "engine": "workers"}
    with pytest.raises(ConfigError, match="exists only in this session") as error:
        penstock.run({**job, "stages": [doubled]}, progress=False)
    assert "module:function" in str(error.value)


def test_an_error_that_no_worker_can_avoid_ends_the_run_everywhere_until_it_is_run_again(tmp_path):
    job = _job(tmp_path, stages=[], slice_size="30kB")
    bad = tmp_path / "in" / "2.jsonl"
    good = bad.read_text()
    lines = good.splitlines()
    lines[3000] = lines[3000].replace('"value": ', '"value": x')
    bad.write_text("\n".join(lines) + "\n")
    errors: list[BaseException] = []

    def watch() -> None:
        try:
            penstock.run(job, progress=False)
        except InputError as error:
            errors.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    while not (tmp_path / "out" / ".penstock" / "plan.json").exists():
        time.sleep(0.02)
    with pytest.raises(InputError) as here:
        work(str(tmp_path / "out"), workers="0")
    watcher.join(60)
    (there,) = errors
    assert there.what == here.value.what
    assert any("on worker" in note for note in there.notes)
    with pytest.raises(InputError) as later:  # one that joins now is told at once
        work(str(tmp_path / "out"), workers="0")
    assert later.value.what == here.value.what
    store = _begun(job)
    with pytest.raises(InputError):
        work(store.root, workers="0")  # it was cleared, and met again
