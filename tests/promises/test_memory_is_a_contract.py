"""Promise 1: the whole process tree stays within `memory:`; a plan that cannot fit is refused before it starts."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.base.machine import cgroup_folders
from penstock.base.memory import tree_memory
from tests.promises import workshop

JOBS: dict[str, list[Any]] = {
    "no stage": [],
    "select": [{"select": ["src", "time", "rtt"]}],
    "filter": [{"filter": ["rtt > 1", "size > 100"]}],
    "split": [{"split": {"by": "src", "val": 0.1, "test": 0.1}}],
    "statistics": [{"statistics": ["rtt", "size"]}],
    "normalize": [{"split": {"test": 0.1}}, {"normalize": ["rtt", "size"]}],
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same rows as one copy, ten copies, one giant row group, CSV and JSONL."""
    folder = tmp_path_factory.mktemp("memory")
    table = workshop.make_rows(600_000, 1)
    (folder / "1x").mkdir()
    for number in range(4):
        pq.write_table(table, folder / "1x" / f"{number}.parquet", row_group_size=200_000)
    (folder / "10x").mkdir()
    for number in range(40):
        os.link(folder / "1x" / f"{number % 4}.parquet", folder / "10x" / f"{number:02d}.parquet")
    (folder / "giant").mkdir()
    for number in range(4):  # a whole file in one row group, many times a batch
        pq.write_table(table, folder / "giant" / f"{number}.parquet", row_group_size=600_000)
    _write_text(folder, table.slice(0, 300_000))
    return {path.name: path for path in folder.iterdir()}


def _write_text(folder: Path, table: Any) -> None:
    import pyarrow.csv as csv

    for name in ("csv", "jsonl"):
        (folder / name).mkdir()
    plain = table.drop_columns(["time"]).set_column(3, "kind", table["kind"].cast("string"))
    rows = "\n".join(map(json.dumps, plain.slice(0, 50_000).drop_columns(["rtt"]).to_pylist())) + "\n"
    for number in range(4):
        csv.write_csv(plain, folder / "csv" / f"{number}.csv")
        (folder / "jsonl" / f"{number}.jsonl").write_text(rows * 4)


@contextmanager
def watching(process: subprocess.Popen[str]) -> Iterator[list[int]]:
    """The highest Pss_Anon + Shmem of the process and everything below it, as the one entry of a list."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], tree_memory(process.pid).counted)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _watched_run(job: Path) -> tuple[int, dict[str, Any]]:
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with watching(process) as peak:
        output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, output + errors
    run = json.loads((job.parent / "out" / ".penstock" / "run.json").read_text())
    return max(peak[0], run["peak_memory_bytes"]), run  # a busy machine may keep one of the two watchers waiting


def _assert_kept(peak: int, run: dict[str, Any], budget: int) -> None:
    projected = run["projected_memory_bytes"]
    told = f"measured {peak / 1e6:.0f} MB, projected {projected / 1e6:.0f} MB, allowed {budget / 1e6:.0f} MB"
    print(told)
    assert peak <= projected <= budget, told
    assert projected <= 1.5 * peak, told


# Ten times the data with the stage that goes over them twice, and then writes them as they come like the others.
SIZES_OF_JOBS = [(name, "1x") for name in JOBS]
SIZES_OF_JOBS += [(name, "10x") for name in (JOBS if workshop.THOROUGH else ["normalize"])]


@pytest.mark.parametrize(("name", "size"), SIZES_OF_JOBS)
def test_every_built_in_stage_stays_below_its_projection_and_near_it(data, tmp_path, name, size):
    job = workshop.write_job(
        tmp_path / "job.yaml", data[size], stages=JOBS[name], memory="600MB", slice_size="8MB", workers=2
    )
    _assert_kept(*_watched_run(job), 600_000_000)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["giant", "csv", "jsonl"])
def test_giant_row_groups_and_text_stay_below_their_projection(data, tmp_path, name):
    job = workshop.write_job(
        tmp_path / "job.yaml",
        data[name],
        stages=[{"filter": "size > 100"}, {"split": {"test": 0.1}}],
        memory="600MB",
        slice_size="8MB",
        workers=2,
    )
    _assert_kept(*_watched_run(job), 600_000_000)


# The most data with the least memory; the next test has a cgroup of 250 MB and the least data.
BUDGETS = [("10x", 180), *([("1x", 180), ("1x", 300), ("10x", 300)] if workshop.THOROUGH else [])]


@pytest.mark.parametrize(("size", "budget_mb"), BUDGETS)
def test_the_run_survives_a_cgroup_that_kills_at_the_budget(data, tmp_path, size, budget_mb):
    with cgroup(budget_mb * 10**6) as (enter, kills):
        job = workshop.write_job(tmp_path / "job.yaml", data[size], memory=f"{budget_mb}MB", slice_size="8MB")
        done = subprocess.run(
            workshop.command(job), preexec_fn=enter, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert kills() == 0


def test_a_limit_of_the_container_is_the_budget_even_if_more_is_asked_for(data, tmp_path):
    with cgroup(250 * 10**6) as (enter, kills):
        job = workshop.write_job(tmp_path / "job.yaml", data["1x"], memory="100GB", slice_size="8MB")
        done = subprocess.run(
            workshop.command(job), preexec_fn=enter, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert kills() == 0
    run = json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())
    assert run["allowed_memory_bytes"] <= 250 * 10**6


@contextmanager
def cgroup(limit: int) -> Iterator[tuple[Any, Any]]:
    """A child cgroup that really kills at `limit`: (a function that enters it, a function that counts kills)."""
    own = [(version, folder) for version, folder in cgroup_folders("memory")][:1]
    if os.geteuid() != 0 or not own:
        pytest.skip("creating a cgroup with a memory limit takes root and a memory controller")
    version, parent = own[0]
    folder = parent / f"penstock-{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    try:
        (folder / ("memory.max" if version == "v2" else "memory.limit_in_bytes")).write_text(str(limit))
        yield lambda: (folder / "cgroup.procs").write_text(str(os.getpid())), lambda: _kills(folder, version)
    finally:
        deadline = time.monotonic() + 20
        while (folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        folder.rmdir()


def _kills(folder: Path, version: str) -> int:
    text = (folder / ("memory.events" if version == "v2" else "memory.oom_control")).read_text()
    return int(dict(line.split() for line in text.splitlines())["oom_kill"])


def test_the_cgroup_of_these_tests_really_kills():
    with cgroup(60 * 10**6) as (enter, kills):
        eater = "x = bytearray(200_000_000)"
        done = subprocess.run(["python3", "-c", eater], preexec_fn=enter, check=False)
        assert done.returncode == -9
        assert kills() == 1


@pytest.mark.core
def test_a_budget_that_cannot_hold_the_job_is_refused_before_it_starts(data, tmp_path):
    job = workshop.write_job(tmp_path / "job.yaml", data["1x"], memory="60MB")
    done = workshop.run(job)
    assert done.returncode == 3, done.stderr
    error = json.loads(done.stdout)
    assert "MB for the driver" in error["what"]
    assert error["next_step"].startswith("memory: ")
    assert not (tmp_path / "out").exists()
    suggested = error["next_step"].split(",")[0].removeprefix("memory: ")
    workshop.run_well(workshop.write_job(tmp_path / "job.yaml", data["1x"], memory=suggested, slice_size="8MB"))


def test_a_disk_that_cannot_hold_the_output_is_refused_before_it_starts(data, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(small)]
    if (mounted := subprocess.run(mount, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr}")
    try:
        done = workshop.run(workshop.write_job(tmp_path / "job.yaml", data["1x"], output=str(small / "out")))
        assert done.returncode == 3, done.stderr
        assert "is free" in json.loads(done.stdout)["what"]
        assert not (small / "out").exists()
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


# Events: a heavy tail, half of all rows in one key, a whole file in one row group, texts that do not repeat.

GROUP: list[Any] = [{"group": {"by": "src", "order": "time"}}, {"split": {"by": "key", "test": 0.1}}]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("events")
    for name, skew, group in (("tail", 0.0, 100_000), ("skew", 0.5, 100_000), ("giant", 0.5, 10**9)):
        (folder / name).mkdir()
        for number in range(2):
            table = workshop.make_events(500_000, number, keys=20_000, skew=skew)
            pq.write_table(table, folder / name / f"{number}.parquet", row_group_size=group)
    (folder / "texts").mkdir()
    table = workshop.make_events(400_000, 5, keys=20_000, skew=0.5)
    texts = pa.array([f"a text of its own, number {n}" for n in range(400_000)])
    pq.write_table(table.append_column("note", texts), folder / "texts" / "0.parquet", row_group_size=100_000)
    return {path.name: path for path in folder.iterdir()}


# "giant" has the hot key of "skew", in row groups that are harder to read, and half the memory.
GROUPED = [("tail", 400), ("giant", 200), ("texts", 250), *([("skew", 400)] if workshop.THOROUGH else [])]


@pytest.mark.parametrize(("name", "budget_mb"), GROUPED)
def test_grouped_events_stay_below_their_projection(events, tmp_path, name, budget_mb):
    job = workshop.write_job(
        tmp_path / "job.yaml", events[name], stages=GROUP, memory=f"{budget_mb}MB", slice_size="4MB", workers=2
    )
    peak, run = _watched_run(job)
    projected = run["projected_memory_bytes"]
    told = f"measured {peak / 1e6:.0f} MB, projected {projected / 1e6:.0f} MB, allowed {budget_mb} MB"
    print(told)
    assert peak <= projected <= budget_mb * 10**6, told


# A record of 8 MiB is held as rows, as streams and as the file's own buffers: ArrayRecord needs more for it.
TIGHT = [("giant", "safetensors", 200), ("skew", "arrayrecord", 300)]
TIGHT += [("skew", "safetensors", 200), ("giant", "arrayrecord", 300)] if workshop.THOROUGH else []


@pytest.mark.parametrize(("name", "format_name", "budget_mb"), TIGHT)
def test_grouping_events_survives_a_cgroup_that_kills_at_the_budget(events, tmp_path, name, format_name, budget_mb):
    with cgroup(budget_mb * 10**6) as (enter, kills):
        job = workshop.write_job(
            tmp_path / "job.yaml",
            events[name],
            stages=GROUP,
            memory=f"{budget_mb}MB",
            slice_size="4MB",
            format=format_name,
        )
        done = subprocess.run(
            workshop.command(job), preexec_fn=enter, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert kills() == 0


@pytest.mark.thorough
def test_a_budget_that_cannot_hold_a_grouping_is_refused_with_one_that_can(events, tmp_path):
    job = workshop.write_job(tmp_path / "job.yaml", events["skew"], stages=GROUP, memory="60MB", slice_size="4MB")
    done = workshop.run(job)
    assert done.returncode == 3, done.stderr
    error = json.loads(done.stdout)
    assert not (tmp_path / "out").exists()
    suggested = error["next_step"].split(",")[0].removeprefix("memory: ")
    job = workshop.write_job(tmp_path / "job.yaml", events["skew"], stages=GROUP, memory=suggested, slice_size="4MB")
    peak, run = _watched_run(job)
    assert peak <= run["projected_memory_bytes"] <= run["allowed_memory_bytes"], f"{peak / 1e6:.0f} MB with {suggested}"


# Data whose first rows tell little of the rest, and jobs whose pieces are very many or very large.


def _assert_within(job: Path, budget_mb: int) -> dict[str, Any]:
    """The job ends well, no task of it was tried twice, and the whole tree stayed within its budget."""
    peak, run = _watched_run(job)
    print(f"measured {peak / 1e6:.0f} MB, projected {run['projected_memory_bytes'] / 1e6:.0f} MB of {budget_mb} MB")
    retries = workshop.events_named(job.parent / "out", "retry")
    assert not retries, retries
    assert peak <= budget_mb * 10**6, f"measured {peak / 1e6:.0f} MB, allowed {budget_mb} MB"
    return run


@pytest.fixture(scope="module")
def late_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """200 rows of empty text, then 6,000 of 36 kB, no two alike."""
    folder = tmp_path_factory.mktemp("late-texts")
    chance = np.random.default_rng(3)
    texts = [""] * 200 + [chance.bytes(18_000).hex() for _ in range(6000)]
    rows = range(len(texts))
    table = pa.table({"key": pa.array([row % 20 for row in rows], pa.int32()), "time": rows, "text": texts})
    pq.write_table(table, folder / "0.parquet", row_group_size=6000, use_dictionary=False)
    return folder


@pytest.mark.thorough
@pytest.mark.parametrize("stages", [[{"group": {"by": "key", "order": "time"}}], []], ids=["group", "map"])
def test_rows_that_are_large_only_later_stay_within_memory(late_texts, tmp_path, stages):
    """All defaults: what the first rows look like must not decide how the others are read."""
    job = tmp_path / "job.yaml"
    job.write_text(json.dumps({"input": str(late_texts), "output": "out", "stages": stages, "memory": "540MB"}))
    _assert_within(job, 540)


@pytest.mark.thorough
def test_null_keys_that_come_late_are_set_aside_within_memory(tmp_path):
    """Rows of 12 bytes, whose lines are far larger than they, in a row group of them all."""
    count, first_null = 1_300_000, 1_100_000
    rows = np.arange(count)
    table = pa.table({"key": pa.array(rows % 5000, pa.int32(), mask=rows >= first_null), "time": rows})
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "0.parquet", row_group_size=count)
    stages = [{"group": {"by": "key", "order": "time", "null_keys": "set_aside"}}]
    options = {"stages": stages, "memory": "200MB", "slice_size": "64MB", "workers": 1}
    _assert_within(workshop.write_job(tmp_path / "job.yaml", tmp_path / "data", **options), 200)
    found = []
    for path in sorted((tmp_path / "out" / "rejected").iterdir()):
        with path.open() as lines:
            found += [json.loads(line)["position"] for line in lines]
    assert found == list(range(first_null, count))


@pytest.mark.thorough
def test_long_texts_that_repeat_stay_within_memory_in_hundreds_of_buckets(tmp_path):
    """Every bucket has most of the texts, each a few times: codes are small, dictionaries are not."""
    chance = np.random.default_rng(4)
    texts = pa.array([chance.bytes(1000).hex() for _ in range(1000)])
    count = 120_000
    codes = pa.array(chance.integers(0, len(texts), count), pa.int32())
    table = pa.table(
        {
            "key": chance.integers(0, 20_000, count),
            "time": chance.integers(0, 10**9, count),
            "text": pa.DictionaryArray.from_arrays(codes, texts),
        }
    )
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "0.parquet", row_group_size=count)
    slice_bytes = (tmp_path / "data" / "0.parquet").stat().st_size // 80
    stages = [{"group": {"by": "key", "order": "time"}}]
    options = {"stages": stages, "memory": "300MB", "slice_size": slice_bytes, "workers": 1}
    run = _assert_within(workshop.write_job(tmp_path / "job.yaml", tmp_path / "data", **options), 300)
    assert run["tasks_done"] > 600


@pytest.mark.thorough
def test_a_hot_key_with_a_huge_max_record_is_refused_or_stays_within_memory(tmp_path):
    """A record of most of the rows has to be held as a whole: the plan must know, or the run must cope."""
    (tmp_path / "data").mkdir()
    table = workshop.make_events(900_000, 8, keys=5000, skew=0.9)
    table = table.append_column("note", pa.array([f"a text of its own, number {row}" for row in range(900_000)]))
    pq.write_table(table, tmp_path / "data" / "0.parquet", row_group_size=100_000)
    stages = [{"group": {"by": "src", "order": "time", "max_record": "1GB"}}]
    options = {"stages": stages, "memory": "160MB", "slice_size": "1MB", "strategy": "streaming"}
    job = workshop.write_job(tmp_path / "job.yaml", tmp_path / "data", **options)
    planned = subprocess.run(workshop.command(job, do="plan"), capture_output=True, text=True, check=False)
    if planned.returncode == 0:
        _assert_within(job, 160)
        return
    assert planned.returncode == 3, planned.stderr
    assert "max_record" in json.loads(planned.stdout)["next_step"]
    refused = workshop.run(job)
    assert refused.returncode == 3, refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
def test_a_job_with_more_slices_than_open_files_are_allowed_succeeds(tmp_path):
    """A bucket has rows in every spill: it cannot keep them all open."""
    slices, limit = 150, 128
    (tmp_path / "data").mkdir()
    table = workshop.make_events(slices * 50, 9, keys=100)
    pq.write_table(table, tmp_path / "data" / "0.parquet", row_group_size=50, compression="none")
    footer = pq.read_metadata(tmp_path / "data" / "0.parquet")
    slice_bytes = int(1.9 * min(footer.row_group(number).total_byte_size for number in range(slices)))  # one in each
    job = workshop.write_events_job(tmp_path / "job.yaml", tmp_path / "data", slice_size=slice_bytes)
    done = subprocess.run(
        workshop.command(job),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    scattered = list((tmp_path / "out" / ".penstock" / "tasks").glob("0-scatter-*.json"))
    assert len(scattered) > limit
    assert not workshop.events_named(tmp_path / "out", "retry")


@pytest.mark.thorough  # 25,000 files take a while
def test_many_small_files_are_counted_or_refused_before_the_kernel_kills(tmp_path):
    """What the driver holds of each file is part of the plan: too little memory is a refusal, with numbers."""
    for number in range(25_000):
        folder = tmp_path / "data" / f"{number // 1000:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:05d}.txt").write_text(f"document {number}")
    job = tmp_path / "job.yaml"
    keys = {"input": "data", "output": "out", "stages": [], "slice_size": "1MB"}
    job.write_text(json.dumps(keys))
    with cgroup(181 << 20) as (enter, kills):
        command = workshop.command(job, do="plan")
        done = subprocess.run(command, preexec_fn=enter, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 3, done.stdout + done.stderr
        assert kills() == 0
    error = json.loads(done.stdout)
    assert "each of 25,000 files" in error["where"]
    suggested = error["next_step"].split(",")[0].removeprefix("memory: ")
    job.write_text(json.dumps({**keys, "memory": suggested}))
    with cgroup(int(suggested.removesuffix("MB")) * 10**6) as (enter, kills):
        command = workshop.command(job)
        done = subprocess.run(command, preexec_fn=enter, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert kills() == 0
    run = json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())
    assert run["peak_memory_bytes"] <= run["projected_memory_bytes"] <= run["allowed_memory_bytes"]
