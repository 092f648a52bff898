"""Members: a run that several processes do by a plan file: one short job, and whoever cannot take part is told why."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Config
from penstock.base.errors import ConfigError, InputError, IntegrityError, OutputError, PenstockError, PlanError
from penstock.base.events.log import EventLog
from penstock.base.faults import CRASH_EXIT_CODE, CRASH_VARIABLE, Sweep, sweeping
from penstock.base.stores.leases import Leases
from penstock.base.stores.local import LocalStore
from penstock.prepare.engines.hired import nursery
from penstock.prepare.engines.workers.board import Board
from penstock.prepare.engines.workers.member_log import Heard
from penstock.prepare.ledger import LedgerRow, encode_row
from penstock.prepare.planning import plan_of
from penstock.prepare.run.members.beginning import begin
from penstock.prepare.run.members.ended import conclude
from penstock.prepare.run.members.joining import Joining, join
from penstock.prepare.run.members.leaving import leaving
from penstock.prepare.run.members.plan_file import read_plan_file, tasks_of, write_plan_file
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

SAMPLES = """
def words(item):
    yield {"said": repr(item)}
"""


def _job(folder: Path, **keys: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "in").mkdir(exist_ok=True)
    for number in range(3):
        lines = [json.dumps({**row, "time": 3 * row["time"] + number}) for row in ROWS]
        (folder / "in" / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    return _job_of(folder, **keys)


def _job_of(folder: Path, **keys: Any) -> Path:
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
    file = read_plan_file(store)
    assert file
    write_plan_file(store, replace(file, versions={**file.versions, "penstock": "0.0.9"}))
    with pytest.raises(OutputError, match=r"other versions than the run: penstock \d.* here, 0\.0\.9 there") as error:
        work(store.root)
    ((_, told),) = Heard(store, file.token).new()
    assert (told["event"], told["what"]) == ("worker_left", error.value.what), "the watcher hears of it"


@pytest.mark.parametrize("damage", [{"token": "../../x"}, {"lease": -1}, {"rooms": [1]}, {"job_file": "stages: ["}, []])
def test_a_damaged_plan_file_is_named_and_written_again_by_the_next_run(tmp_path, damage):
    job = _job(tmp_path)
    store = _begun(job)
    plan = tmp_path / "out" / ".penstock" / "plan.json"
    plan.write_text(json.dumps({**json.loads(plan.read_text()), **damage} if damage else damage))
    with pytest.raises(OutputError, match="plan file of this run cannot be read") as error:
        work(store.root)
    assert str(plan) in str(error.value)
    _begun(job)
    assert read_plan_file(store)


def test_a_damaged_status_or_log_of_a_worker_ends_no_run(tmp_path):
    store = _begun(_job(tmp_path))
    (members,) = (tmp_path / "out" / ".penstock" / "tmp").glob("run-*/members")
    for name, text in {"a.json": "[]", "b.json": "{}", "c.json": ""}.items():
        (members / name).write_text(text)
    (members / "d.jsonl").write_text(
        '5\n\0\0\n{"event": "task"}\n{"event": "retry", "name": "x"}\n{"event": "worker_left", "what": 1}\n'
    )
    work(store.root, workers="0")
    run = json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())
    assert [each["tasks"] for each in run["members"]] == [run["tasks_done"]]


@pytest.mark.parametrize("text", ["", "[]", '{"error": "Any", "what": 1}'])
def test_a_damaged_failure_is_named(tmp_path, text):
    store = _begun(_job(tmp_path))
    (failures,) = (tmp_path / "out" / ".penstock" / "tmp").glob("run-*/failures")
    (failures / "other.json").write_text(text)
    with pytest.raises(PenstockError, match="the file that says why is damaged"):
        work(store.root, workers="0")


def test_folders_whose_names_are_no_utf_8_serve_and_their_errors_arrive(tmp_path):
    folder = tmp_path / os.fsdecode(b"\xfe")
    job = _job(folder, stages=[])
    work(_begun(job).root, workers="0")
    assert (folder / "out" / "manifest.json").exists()
    bad = folder / "in" / "2.jsonl"
    lines = bad.read_text().splitlines()
    lines[3000] = lines[3000].replace('"value": ', '"value": x')
    bad.write_text("\n".join(lines) + "\n")
    store = _begun(_job_of(folder, stages=[], output="more", slice_size="30kB"))
    for _ in range(2):  # who meets it, and who is told
        with pytest.raises(InputError) as error:
            work(store.root, workers="0")
        assert str(error.value.where).startswith(str(bad))
    with EventLog(store, None) as log:  # of who watches
        log.say("no_worker", waits_for=store.root)
    *_, line = (folder / "more" / ".penstock" / "events.jsonl").read_bytes().splitlines()
    assert json.loads(line)["waits_for"] == store.root


def _die_at(point: str, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker does all tasks, and dies while it finishes the dataset."""
    token = output.parent / "token"
    token.touch()
    monkeypatch.setenv(CRASH_VARIABLE, f"{point}:{token}")
    worker = _penstock("work", str(output), "--workers", "0", "--lease", "0.1")
    worker.communicate(timeout=60)
    assert worker.returncode == CRASH_EXIT_CODE
    monkeypatch.delenv(CRASH_VARIABLE)
    time.sleep(0.3)  # its claim expires


@pytest.mark.parametrize("point", ["run.before_clean_up", "run.after_manifest"])
def test_what_is_gone_when_the_job_is_run_again_is_made_again(tmp_path, monkeypatch, point):
    job = _job(tmp_path)
    store = _begun(job)
    _die_at(point, tmp_path / "out", monkeypatch)
    shard = next((tmp_path / "out" / "train").iterdir())
    written = shard.read_bytes()
    shard.unlink()
    _begun(job)
    work(store.root, workers="0")
    assert shard.read_bytes() == written
    assert not list((tmp_path / "out" / ".penstock").glob("tmp/*"))


@pytest.mark.proof
def test_a_worker_needs_no_spill_of_a_pass_that_is_finished(tmp_path, monkeypatch):
    store = _begun(_job(tmp_path))
    _die_at("run.before_clean_up", tmp_path / "out", monkeypatch)
    for spill in (tmp_path / "out" / ".penstock" / "spill").iterdir():
        spill.unlink()
    _begun(tmp_path / "job.yaml")
    work(store.root, workers="0")
    assert store.exists("manifest.json")


def test_a_run_that_workers_are_in_is_not_begun_anew(tmp_path):
    job = _job(tmp_path)
    store = _begun(job)
    before = read_plan_file(store)
    (tmp_path / "out" / ".penstock" / "tasks").mkdir()
    (tmp_path / "out" / ".penstock" / "tasks" / "gone.json").write_bytes(encode_row(LedgerRow("gone", "0")))
    assert before
    Leases(before.store(store.root, "other"), 60).claim("0-00000")
    _begun(job)
    assert read_plan_file(store) == before
    store.remove(f".penstock/tmp/run-{before.token}/leases/0-00000.1")
    _begun(job)
    assert read_plan_file(store) != before


def test_a_worker_that_was_stopped_does_not_take_the_dataset_of_another_job_for_its_own(tmp_path):
    job = _job(tmp_path, slice_size="10kB")
    store = _begun(job)
    worker = _penstock("work", store.root, "--workers", "0")
    claims = tmp_path / "out" / ".penstock" / "tmp"
    while not list(claims.glob("run-*/leases/*.1")):
        assert worker.poll() is None, worker.communicate()
    worker.send_signal(signal.SIGSTOP)
    _job(tmp_path, stages=[], engine="local")
    penstock.run(job, progress=False)
    worker.send_signal(signal.SIGCONT)
    assert "another run has taken the output" in worker.communicate(timeout=60)[1]
    assert worker.returncode == 5


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
    job = _job(tmp_path, stages=[], memory="800MB", on_bad_input="set_aside", slice_size="64MB")  # tests fill a process
    with open(tmp_path / "in" / "2.jsonl", "a") as file:
        file.write(json.dumps({"key": "x" * 36_000_000, "time": 1, "value": 0.5, "note": "a"}) + "\n")
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


def test_functions_of_a_session_are_refused(tmp_path):
    def doubled(rows):
        return rows

    _job(tmp_path)
    job = {"input": str(tmp_path / "in" / "*.jsonl"), "output": str(tmp_path / "out"), "engine": "workers"}
    with pytest.raises(ConfigError, match="cannot import doubled") as error:
        penstock.run({**job, "stages": [doubled]}, progress=False)
    assert "module:function" in str(error.value)


@pytest.mark.parametrize("items", [range(5, 10), [(1, 2)], [Path("a")], [Decimal("0.1")]])
def test_items_that_a_job_file_cannot_hold_are_refused(tmp_path, items):
    (tmp_path / "samples_that_stay.py").write_text(SAMPLES)
    job = {"input": {"items": items, "function": "samples_that_stay:words"}, "engine": "workers", "stages": []}
    with pytest.raises(ConfigError, match="cannot read these items") as error:
        penstock.run(Config(job, output=str(tmp_path / "out"), folder=str(tmp_path)), progress=False)
    assert "or a list" in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.proof
@pytest.mark.parametrize("items", [40, ["3", "5"], [{"from": 1, "to": [2, 0.5]}, None]])
def test_workers_make_samples_of_the_items_of_a_job_file(tmp_path, items):
    (tmp_path / "own_samples.py").write_text(SAMPLES)
    keys = {"input": {"items": items, "function": "own_samples:words"}, "stages": [], "memory": "1GB"}
    (tmp_path / "job.yaml").write_text(json.dumps({**keys, "output": "out"}))
    for command in (["run", "job.yaml", "-o", "alone"], ["work", "out", "--job", "job.yaml"]):
        called = [sys.executable, "-m", "penstock", *command]
        subprocess.run(called, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    made = [(tmp_path / name / "manifest.json").read_bytes() for name in ("out", "alone")]
    assert made[0] == made[1]


@pytest.mark.proof
def test_the_record_of_a_run_shorter_than_a_sample_names_its_worker(tmp_path):
    store = _begun(_job(tmp_path))
    worked = work(store.root, memory="2GB", workers="0")
    run = json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())
    (member,) = run["members"]
    assert (member["member"], member["tasks"]) == (worked.member, worked.tasks)
    assert (member["host"], member["process"]) == (socket.gethostname(), os.getpid())
    assert member["cpu_seconds"] > 0


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(OutputError, match="no such folder") as error:
        work(str(tmp_path / "typo"))
    assert "--job" in str(error.value)
    assert not (tmp_path / "typo").exists()


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


def test_an_error_that_the_others_cannot_be_told_is_raised_all_the_same(tmp_path):
    store = _begun(_job(tmp_path))
    file = read_plan_file(store)
    assert file
    members = file.store(store.root, "one")
    (failures,) = (tmp_path / "out" / ".penstock" / "tmp").glob("run-*/failures")
    failures.rmdir()
    failures.touch()
    with pytest.raises(InputError, match="what counts"), leaving(members, Board(members)):
        raise InputError("what counts")


@pytest.mark.proof
def test_a_run_is_over_before_what_its_workers_have_left_is_removed(tmp_path, monkeypatch):
    job = _job(tmp_path)
    store = _begun(job)
    _die_at("run.after_manifest", tmp_path / "out", monkeypatch)
    with sweeping(Sweep()) as sweep:
        conclude(store, penstock.plan(job))
    removed = [path for kind, path in sweep.operations if kind == "remove"]
    first = [next(number for number, path in enumerate(removed) if word in path) for word in ("/run-", "/spill")]
    assert first == sorted(first)


def test_a_shard_that_another_machine_has_replaced_is_never_in_a_dataset(tmp_path):
    """Machines write the same bytes, but one may leave out a file in which a function hangs."""
    store = _begun(_job(tmp_path, stages=[], on_bad_input="set_aside"))
    shards: list[Path] = []

    def replace_first(event: Any) -> None:
        if event["event"] == "task" and len(found := sorted((tmp_path / "out" / "train").iterdir())) > len(shards):
            shards[:] = found
            if len(found) > 1:
                found[0].write_bytes(found[1].read_bytes())

    with nursery() as processes, pytest.raises(IntegrityError, match="left other files than the ledger names"):
        join(Joining(plan_of, processes, print, replace_first), store.root, workers="0")
    assert not store.exists("manifest.json")
    _begun(tmp_path / "job.yaml")
    work(store.root, workers="0")
    assert penstock.verify(store.root)


def test_who_finishes_waits_for_a_folder_that_a_worker_holds_which_was_stopped(tmp_path):
    texts = [{"text": f"document {number}"} for number in range(50)]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(each) + "\n" for each in texts))
    keys = {"input": "texts.jsonl", "stages": [{"dedup": {"remember": "known"}}]}
    store = _begun(_job_of(tmp_path, **keys))
    with ExitStack() as stack:
        stack.enter_context(LocalStore(str(tmp_path / "known")).hold(b"a worker that was stopped"))
        threading.Timer(1.0, stack.pop_all().close).start()
        work(store.root, workers="0")
    assert store.exists("manifest.json")
