"""Promises 2 and 3, of near-duplicates: the same bytes and evidence, however a job was run and whatever killed it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import IntegrityError, OutputError
from penstock.base.memory import process_tree
from tests.promises import killing, near_making, text_making, workshop
from tests.promises.killing import assert_no_leftovers, points_of
from tests.promises.near_making import SURE, Corpus

NEAR = {"threshold": 0.6, "words": 3, "keep": {"column": "quality"}, **SURE}
pytestmark = pytest.mark.thorough
PASSES = ("sign", "pair", "shingle", "verify", "choose")
KILLS = 30 if workshop.THOROUGH else 2


def _texts(seed: int, families: int) -> list[str | None]:
    """Similar ones of all sizes, identical ones, empty ones, other scripts, and many that differ in one number."""
    chance = random.Random(seed)
    texts: list[str | None] = [*near_making.graded(seed, families), *text_making.documents(5 * families, seed)]
    texts += [f"Page {number} of the catalogue " + "and so on, to the end " * 3 for number in range(5 * families)]
    texts += [None, "", "水力発電所の水は力になる" * 4, "水力発電所の水は力になる" * 5]
    chance.shuffle(texts)
    return texts


def _corpus(families: int = 10, seed: int = 1) -> Corpus:
    """Two sources of two files each; the second source repeats some of the first."""
    first, second = _texts(seed, families), _texts(seed + 1, families)
    second += first[::7]
    quality = pa.array([random.Random(str(text)).randrange(5) for text in [*first, *second]], pa.int32())
    halves = [[texts[: len(texts) // 2], texts[len(texts) // 2 :]] for texts in (first, second)]
    return Corpus(halves, {"quality": quality})


def _stages(**near: Any) -> list[Any]:
    return ["clean", {"dedup": {"keep": True}}, {"near_dedup": {**NEAR, **near}}, {"split": {"by": "id", "test": 0.3}}]


def _job(path: Path, data: Any, **keys: Any) -> Path:
    return near_making.write_job(path, data, {}, **{"stages": _stages(), "slice_size": "3kB", **keys})


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The input, and the bytes that a run inside the driver writes."""
    folder = tmp_path_factory.mktemp("near-same")
    data = _corpus().write(folder / "data")
    job = _job(folder / "first" / "job.yaml", data)
    penstock.run(job)
    written = workshop.bytes_of(folder / "first" / "out")
    kinds = [each.pass_.kind for each in penstock.plan(job).passes]
    assert [kind for kind in kinds if kind in PASSES] == list(PASSES)
    assert max(len(each.tasks) for each in penstock.plan(job).passes if each.pass_.kind == "sign") > 10
    assert any(name.startswith("duplicates/") for name in written)
    assert len(near_making.evidence_of(folder / "first" / "out")) > 40
    return data, written


def _written(job: Path, environment: dict[str, str]) -> dict[str, str]:
    workshop.run_well(job, environment=environment)
    assert_no_leftovers(job.parent / "out")
    return workshop.bytes_of(job.parent / "out")


@pytest.mark.parametrize(
    ("keys", "environment"),
    [
        ({"workers": 2}, {"PYTHONHASHSEED": "1", "TZ": "Pacific/Chatham"}),
        ({"workers": 1, "memory": "300MB"}, {"PYTHONHASHSEED": "2", "LC_ALL": "C", "PYTHONUTF8": "0"}),
        ({"workers": 4}, {"PYTHONHASHSEED": "3"}),
        ({"workers": 0, "memory": "300MB"}, {"OMP_NUM_THREADS": "1"}),
        ({"workers": 0, "memory": "20GB"}, {}),
        ({}, {}),
    ][: None if workshop.THOROUGH else 3],
    ids=str,
)
def test_workers_memory_and_environment_do_not_show(first, tmp_path, keys, environment):
    data, written = first
    assert _written(_job(tmp_path / "job.yaml", data, **keys), environment) == written


@pytest.mark.parametrize("batch_bytes", [1, 3000, 10_000_000] if workshop.THOROUGH else [1])
def test_the_size_of_batches_does_not_show(first, tmp_path, batch_bytes):
    data, written = first
    plan = penstock.plan(_job(tmp_path / "job.yaml", data))
    penstock.run(workshop.with_batches(plan, batch_bytes))
    assert workshop.bytes_of(tmp_path / "out") == written


def test_the_order_of_files_on_disk_and_where_they_lie_do_not_show(tmp_path):
    """Many small files, which a listing gives in the order in which they were made, or by hash."""
    texts = [text for text in _texts(5, 8) if text]
    corpora = [texts[number : number + 3] for number in range(0, len(texts), 3)]
    data = Corpus([corpora]).write(tmp_path / "data")
    (tmp_path / "elsewhere").mkdir()
    paths = sorted(Path(data[0]["path"]).iterdir())
    random.Random(1).shuffle(paths)
    for path in paths:
        shutil.copyfile(path, tmp_path / "elsewhere" / path.name)
    stages = _stages(keep="longest")
    outputs = []
    for name, place in (("one", data), ("other", [{"path": str(tmp_path / "elsewhere")}])):
        penstock.run(_job(tmp_path / name / "job.yaml", place, stages=stages))
        outputs.append(workshop.bytes_of(tmp_path / name / "out"))
    assert outputs[0] == outputs[1]
    assert len(paths) > 30


def test_how_documents_are_cut_into_slices_changes_neither_what_stays_nor_the_evidence(first, tmp_path):
    """Slices are part of the job, and shards are cut elsewhere; what is said of documents is the same."""
    data, _ = first
    output = Path(data[0]["path"]).parent.parent / "first" / "out"
    evidence, ids = near_making.evidence_of(output), near_making.ids_of(output)
    counts = near_making.counts_of(output)
    for size in ("1kB", "1MB"):
        penstock.run(_job(tmp_path / size / "job.yaml", data, slice_size=size))
        assert near_making.ids_of(tmp_path / size / "out") == ids
        assert near_making.evidence_of(tmp_path / size / "out") == evidence
        assert near_making.counts_of(tmp_path / size / "out") == counts


def test_a_run_that_is_done_again_writes_the_same_bytes(first, tmp_path):
    data, written = first
    job = _job(tmp_path / "job.yaml", data)
    penstock.run(job)
    penstock.run(job, redo=True)
    assert workshop.bytes_of(tmp_path / "out") == written
    assert_no_leftovers(tmp_path / "out")
    before = (tmp_path / "out" / "manifest.json").stat().st_mtime_ns
    penstock.run(job)
    assert (tmp_path / "out" / "manifest.json").stat().st_mtime_ns == before


CHANGES: dict[str, dict[str, Any]] = {
    "threshold": {"threshold": 0.9},
    "keep": {"keep": "longest"},
    "act": {"act": "mark"},
    "words": {"words": 2},
    "bands": {"bands": 50},
}


@pytest.mark.parametrize("name", CHANGES if workshop.THOROUGH else ["threshold", "act"])
def test_a_changed_option_is_noticed_and_done_again_leaves_nothing_of_before(first, tmp_path, name):
    """Whether the run before had ended well, or died when it had written all its evidence."""
    data, written = first
    changed = _stages(**CHANGES[name])
    penstock.run(_job(tmp_path / "fresh" / "job.yaml", data, stages=changed))
    fresh = workshop.bytes_of(tmp_path / "fresh" / "out")
    assert fresh != written
    penstock.run(_job(tmp_path / "job.yaml", data))
    job = _job(tmp_path / "job.yaml", data, stages=changed)
    with pytest.raises(OutputError, match="made from something else"):
        penstock.run(job)
    assert workshop.bytes_of(tmp_path / "out") == written
    penstock.run(job, redo=True)
    assert workshop.bytes_of(tmp_path / "out") == fresh
    assert_no_leftovers(tmp_path / "out")


def test_a_warning_limit_decides_no_byte_of_what_stays(first, tmp_path):
    data, written = first
    penstock.run(_job(tmp_path / "job.yaml", data, stages=_stages(warn_above="1%")))
    found = workshop.bytes_of(tmp_path / "out")
    same = [name for name in written if name.startswith(("train/", "test/", "duplicates/"))]
    assert same
    assert {name: found[name] for name in same} == {name: written[name] for name in same}


def test_evidence_that_was_lost_is_written_again(first, tmp_path):
    data, written = first
    job = _job(tmp_path / "job.yaml", data)
    penstock.run(job)
    shutil.rmtree(tmp_path / "out" / "duplicates")
    penstock.run(job)
    assert workshop.bytes_of(tmp_path / "out") == written


# Killed.


def _clean(folder: Path, families: int) -> killing.Clean:
    """With stages that an earlier pass has bound, and a text column in the output."""
    data = _corpus(families, seed=3).write(folder / "data")
    clean = killing.clean_run(folder, partial(_job, data=data, slice_size="4kB" if families > 2 else "1MB"))
    kinds = {name.partition("tasks/")[2].split("-")[1] for name in clean.names if "/tasks/" in name}
    assert kinds == {"hash", "match", *PASSES, "map"}
    assert any(name.startswith("duplicates/") for name in clean.written)
    return clean


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> killing.Clean:
    return _clean(tmp_path_factory.mktemp("near-clean"), 6)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> killing.Clean:
    """A slice per file: enough to meet every kind of operation."""
    return _clean(tmp_path_factory.mktemp("near-few"), 2)


ALL_POINTS = POINTS = points_of("near-duplicates")
if not workshop.THOROUGH:  # those of near-duplicates, and one of each kind that test_kill_it_any_time.py walks whole
    chosen = ("pair.", "verify.", "choose.", "commit.before_rename", "run.before_clean_up", "run.before_manifest")
    POINTS = [point for point in POINTS if point.startswith(chosen)]


def test_a_job_of_near_duplicates_passes_its_crash_points_and_no_others(clean):
    assert clean.points == set(ALL_POINTS)
    assert {"pair.before_ledger", "verify.before_ledger", "choose.before_ledger"} <= clean.points


@pytest.mark.parametrize("point", POINTS if workshop.THOROUGH else POINTS[::4])
def test_a_crash_at_every_named_point_is_recovered_from(clean, die, tmp_path, point):
    job = clean.job(tmp_path / "job.yaml")
    die(job, point)
    clean.assert_recovers(job)


@pytest.mark.thorough
def test_one_crash_after_the_other_is_recovered_from(few, die, tmp_path):
    """Before and just behind each task's row in the ledger, until all passes are through."""
    job = few.job(tmp_path / "job.yaml")
    for crash in range(2 * few.tasks):
        with contextlib.suppress(AssertionError):
            die(job, ("task.before_ledger", "task.after_ledger")[crash % 2])
        if (tmp_path / "out" / "manifest.json").exists():
            break
    few.assert_recovers(job)


@pytest.mark.parametrize("point", POINTS if workshop.THOROUGH else POINTS[-1:])
def test_a_worker_that_dies_at_a_named_point_changes_nothing(clean, tmp_path, point):
    killing.crash_with_workers(clean.job(tmp_path / "job.yaml", workers=2), point, clean)


BEGUN = [(kind, who) for kind in (*PASSES, "map") for who in ("driver", "worker")]
BEGUN = BEGUN if workshop.THOROUGH else [(kind, ("driver", "worker")[at % 2]) for at, kind in enumerate(PASSES)]


@pytest.mark.parametrize(("kind", "who"), BEGUN)
def test_sigkill_when_a_pass_has_begun_is_recovered_from(clean, tmp_path, kind, who):
    """Killed as soon as the pass before has its last row in the ledger, or the first of this one is there."""
    chance = random.Random(f"{kind} {who}")
    job = clean.job(tmp_path / "job.yaml", workers=2)
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    workshop.wait_for(lambda: _has_begun(tmp_path / "out", kind) or process.poll() is not None)
    time.sleep(chance.random() * 0.03)
    below = process_tree(process.pid)[1:]
    with contextlib.suppress(ProcessLookupError):  # it was over already
        os.kill(process.pid if who == "driver" or not below else chance.choice(below), signal.SIGKILL)
    output, errors = process.communicate(timeout=120)
    assert process.returncode in (0, 7, -signal.SIGKILL), output + errors
    killing.wait_for_the_end_of(below)
    clean.assert_recovers(job)


def _has_begun(output: Path, kind: str) -> bool:
    log = output / ".penstock" / "events.jsonl"
    return log.exists() and f'"kind": "{kind}"' in log.read_text()


def test_sigkill_of_the_driver_at_random_moments_is_recovered_from(clean, tmp_path):
    job = clean.job(tmp_path / "job.yaml", workers=1)
    killing.kill_drivers(job, clean.tasks, KILLS, pause=0.1)
    clean.assert_recovers(job)


@pytest.mark.thorough
def test_sigkill_of_workers_at_random_moments_is_recovered_from(clean, tmp_path):
    job = clean.job(tmp_path / "job.yaml", workers=2)
    output = tmp_path / "out"
    at_least: Callable[[int], bool] = lambda killed: workshop.ledger_rows(output) > killed * clean.tasks // KILLS  # noqa: E731
    killing.shoot_workers(job, KILLS, at_least)
    clean.assert_recovers(job)


@pytest.mark.parametrize("kind", PASSES if workshop.THOROUGH else ["pair", "choose"])
def test_a_lost_ledger_row_of_a_pass_costs_no_byte(clean, die, tmp_path, kind):
    """Its task is done again, from what the passes before it left, and so are those behind it if they must."""
    job = clean.job(tmp_path / "job.yaml")
    die(job, "run.before_manifest")
    rows = sorted((tmp_path / "out" / ".penstock" / "tasks").glob(f"*-{kind}-*.json"))
    rows[len(rows) // 2].unlink()
    clean.assert_recovers(job)


LEFT = {"bands": "pair", "pairs": "verify", "sets": "verify", "similar": "choose"}  # and the pass that reads it first


@pytest.mark.parametrize("kind", [*LEFT, "removed"])
def test_a_flipped_byte_between_the_passes_is_named_or_decides_nothing(few, die, tmp_path, kind):
    job = few.job(tmp_path / "job.yaml")
    die(job, f"{LEFT[kind]}.before_ledger" if kind in LEFT else "run.before_manifest")
    path = min((tmp_path / "out" / ".penstock" / "near").glob(f"*.{kind}"))
    whole, named = path.read_bytes(), 0
    shutil.copytree(tmp_path / "out", tmp_path / "before")
    for position in (0, len(whole) // 3, len(whole) // 2, len(whole) - 30, len(whole) - 1):
        shutil.rmtree(tmp_path / "out")
        shutil.copytree(tmp_path / "before", tmp_path / "out")
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            penstock.run(job)
        except IntegrityError as error:
            assert path.name in f"{error.what} {error.where}", position
            named += 1
        else:
            few.assert_is_there(job)
    assert named


@pytest.mark.thorough
def test_every_operation_of_a_run_may_fail(few, tmp_path):
    """The first of each kind on each kind of file that only near-duplicates have; all of them in a thorough run."""
    plan = penstock.plan(few.job(tmp_path / "job.yaml"))
    for failing, fault, where in killing.failures(plan, tmp_path, _kind_of_file, ("duplicates", "near")):
        killing.fail_once(failing, fault, few.written, where)


def _kind_of_file(path: str) -> str:
    known = ("near", "keys", "parts", "tasks", "manifest", "artifacts", "rejected")
    found = next((each for each in known if f"/.penstock/{each}" in path or f"out/{each}" in path), "")
    return "duplicates" if "/duplicates/" in path else found or ("train" if "train" in path else "")


def test_the_account_of_a_resumed_run_is_that_of_one_that_was_never_stopped(clean, die, tmp_path):
    job = clean.job(tmp_path / "job.yaml")
    for point in ("task.after_ledger", "run.before_manifest"):
        die(job, point)
    penstock.run(job)
    account = json.loads((tmp_path / "out" / "manifest.json").read_text())["account"]
    step = next(each for each in account if each["step"] == "near_dedup")
    counts = near_making.counts_of(tmp_path / "out")
    assert step["taken"] == counts["documents"]
    assert step["taken"] - step["given"] == counts["removed"] == len(near_making.evidence_of(tmp_path / "out"))
