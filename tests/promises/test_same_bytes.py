"""Promise 2: the same bytes, whatever the machine."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import penstock
from tests.promises import workshop


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The input, and the bytes that one worker with a large budget writes."""
    folder = tmp_path_factory.mktemp("same")
    data = workshop.make_input(folder / "data")
    penstock.run(workshop.write_job(folder / "first" / "job.yaml", data, workers=1, memory="2GB"))
    return data, workshop.bytes_of(folder / "first" / "out")


def _written(job: Path, **environment: str) -> dict[str, str]:
    """By a process of its own: for its environment, and for a budget that has to hold no test run."""
    workshop.run_well(job, environment=environment)
    return workshop.bytes_of(job.parent / "out")


def _written_here(job: Path) -> dict[str, str]:
    """By this process, which is quicker."""
    penstock.run(job)
    return workshop.bytes_of(job.parent / "out")


@pytest.mark.core
@pytest.mark.parametrize("workers", [0, 2, 4])
def test_the_number_of_workers_does_not_show(expected, tmp_path, workers):
    data, first = expected
    assert _written_here(workshop.write_job(tmp_path / "job.yaml", data, workers=workers)) == first


@pytest.mark.parametrize("memory", ["150MB", "220MB"] if workshop.THOROUGH else ["150MB"])
def test_the_memory_budget_does_not_show(expected, tmp_path, memory):
    data, first = expected
    assert _written(workshop.write_job(tmp_path / "job.yaml", data, memory=memory)) == first


@pytest.mark.parametrize("format_name", ["parquet", "jsonl"])
def test_the_size_of_batches_does_not_show(tmp_path, format_name):
    """Batches of 16 kB to 4 MB cut the same row group or file in many places or in none."""
    data = tmp_path / "data"
    if format_name == "parquet":
        workshop.make_input(data, files=1, rows=40_000, group=40_000)
    else:
        _text_input(data, format_name)
    seen = []
    for size in (16_000, 256_000, 4_000_000):
        where = ["size > 900", "size < 1400"]  # rows fail one or the other, and both kinds are kept
        job = workshop.write_job(
            tmp_path / str(size) / "job.yaml",
            data,
            stages=[{"filter": {"where": where, "keep": True}}, {"split": {"test": 0.1}}, {"statistics": ["size"]}],
            workers=0,
            on_bad_input="set_aside",
            slice_size="10MB",
        )
        plan = penstock.plan(job)
        penstock.run(workshop.with_batches(plan, size))
        seen.append(workshop.bytes_of(job.parent / "out"))
    assert seen[0] == seen[1] == seen[2]
    assert "rejected/00000.jsonl" in seen[0]


def test_the_order_of_files_on_disk_does_not_show(expected, tmp_path):
    data, first = expected
    (tmp_path / "elsewhere").mkdir()
    for path in sorted(data.iterdir(), reverse=True):  # another directory, filled in another order
        shutil.copyfile(path, tmp_path / "elsewhere" / path.name)
    assert _written_here(workshop.write_job(tmp_path / "job.yaml", tmp_path / "elsewhere", workers=0)) == first


def test_the_way_the_input_is_written_does_not_show(expected, tmp_path):
    data, first = expected
    relative = os.path.relpath(data, tmp_path)
    assert _written_here(workshop.write_job(tmp_path / "job.yaml", f"{relative}/*.parquet", workers=0)) == first


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "2", "TZ": "Pacific/Chatham"},
        {"TZ": "America/St_Johns", "LC_ALL": "C", "PYTHONUTF8": "0"},
    ][0 if workshop.THOROUGH else 1 :],
)
def test_hash_seed_time_zone_and_locale_do_not_show(expected, tmp_path, environment):
    data, first = expected
    assert _written(workshop.write_job(tmp_path / "job.yaml", data), **environment) == first


@pytest.mark.thorough
@pytest.mark.parametrize("format_name", ["csv", "jsonl"])
def test_text_formats_give_the_same_bytes_for_any_budget_and_workers(tmp_path, format_name):
    """Chunks of another size meet lines, quotes and bad records elsewhere; the output must not know."""
    data = _text_input(tmp_path / "data", format_name)
    seen = []
    for number, (workers, memory) in enumerate([(1, "2GB"), (2, "200MB"), (0, "2GB")]):
        job = workshop.write_job(
            tmp_path / str(number) / "job.yaml",
            data,
            input={"path": str(data), "types": {"size": "int64"}},
            workers=workers,
            memory=memory,
            slice_size="100kB",
            on_bad_input="set_aside",
            stages=[{"filter": "size > 10"}, {"split": {"test": 0.2}}],
        )
        seen.append(_written(job) if memory == "200MB" else _written_here(job))
    assert seen[0] == seen[1] == seen[2]
    assert any(name.startswith("rejected/") for name in seen[0])


def _text_input(folder: Path, format_name: str) -> Path:
    folder.mkdir()
    rows = workshop.make_rows(8000, 7).select(["src", "size"]).to_pylist()
    if format_name == "csv":
        lines = ["src,size"] + [f'"{row["src"]}, é",{row["size"]}' for row in rows]
        lines[4000] = "only-one-column"
        lines[4001] = "x,not a number"
    else:
        lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        lines[4000] = '{"src": "x", "size": '
        lines[4001] = '{"src": "x", "size": "not a number"}'
    (folder / f"rows.{format_name}").write_text("\r\n".join(lines))
    return folder


def test_the_job_file_itself_may_lie_anywhere_and_be_spelled_otherwise(expected, tmp_path):
    data, first = expected
    job = workshop.write_job(tmp_path / "deep" / "er" / "job.yaml", data, workers=0)
    text = yaml.safe_load(job.read_text())
    text["input"] = [{"path": [text["input"]], "format": "auto"}]
    text["stages"][0] = {"filter": {"where": ["rtt > 1"]}}
    job.write_text(yaml.safe_dump(text, sort_keys=True, default_flow_style=True))
    assert _written_here(job) == first


# The same of a job with an exchange: rows of a key come from every file, through spills, into buckets.

EVENTS_OTHERWISE: dict[str, tuple[dict[str, object], dict[str, str]]] = {
    "inside the driver": ({"workers": 0}, {}),
    "little memory": ({"memory": "230MB"}, {}),
    "sequential": ({"strategy": "sequential", "workers": "auto"}, {}),
    "parallel": ({"strategy": "parallel"}, {}),
    "streaming": ({"strategy": "streaming", "memory": "300MB"}, {}),
    "another locale": ({}, {"PYTHONHASHSEED": "1", "TZ": "America/St_Johns", "LC_ALL": "C", "PYTHONUTF8": "0"}),
}
if workshop.THOROUGH:
    EVENTS_OTHERWISE["two workers"] = ({"workers": 2}, {})
    EVENTS_OTHERWISE["another hash seed and zone"] = ({}, {"PYTHONHASHSEED": "2", "TZ": "Pacific/Chatham"})


@pytest.fixture(scope="module")
def expected_events(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, str]]]:
    """The input, and the bytes that one worker with a large budget writes in each format."""
    folder = tmp_path_factory.mktemp("same-events")
    data = workshop.make_event_input(folder / "data")
    seen = {}
    for name in ("safetensors", "arrayrecord"):
        job = workshop.write_events_job(folder / name / "job.yaml", data, workers=1, memory="2GB", format=name)
        seen[name] = _written_here(job)
    return data, seen


@pytest.mark.parametrize("name", EVENTS_OTHERWISE)
def test_nothing_of_the_machine_shows_in_grouped_events(expected_events, tmp_path, name):
    data, first = expected_events
    keys, environment = EVENTS_OTHERWISE[name]
    assert (
        _written(workshop.write_events_job(tmp_path / "job.yaml", data, **keys), **environment) == first["safetensors"]
    )


@pytest.mark.parametrize("keys", [{"workers": 2}, {"workers": 0, "strategy": "streaming"}])
def test_nothing_of_the_machine_shows_in_an_arrayrecord_file(expected_events, tmp_path, keys):
    data, first = expected_events
    job = workshop.write_events_job(tmp_path / "job.yaml", data, format="arrayrecord", **keys)
    assert _written(job, PYTHONHASHSEED="3") == first["arrayrecord"]


def test_the_order_of_files_on_disk_does_not_show_in_grouped_events(expected_events, tmp_path):
    """Ties go by position, and a position is a path and a row, not a place in a directory."""
    data, first = expected_events
    (tmp_path / "elsewhere").mkdir()
    for path in sorted(data.iterdir(), reverse=True):
        shutil.copyfile(path, tmp_path / "elsewhere" / path.name)
        os.utime(tmp_path / "elsewhere" / path.name, (0, 0))
    job = workshop.write_events_job(tmp_path / "job.yaml", tmp_path / "elsewhere", workers=0)
    assert _written_here(job) == first["safetensors"]


AT_ONCE = [(5000, "safetensors"), (20_000, "arrayrecord"), (8_000_000, "safetensors")]
if workshop.THOROUGH:
    AT_ONCE += [(5000, "arrayrecord"), (20_000, "safetensors"), (8_000_000, "arrayrecord")]


@pytest.mark.thorough
@pytest.mark.parametrize(("batch_bytes", "format_name"), AT_ONCE)
def test_how_much_is_read_and_sorted_at_once_does_not_show(expected_events, tmp_path, batch_bytes, format_name):
    """From all of a bucket at once to buckets that are cut again and again, and every spill in hundreds of chunks."""
    data, first = expected_events
    job = workshop.write_events_job(tmp_path / "job.yaml", data, workers=0, format=format_name)
    penstock.run(workshop.with_batches(penstock.plan(job), batch_bytes))
    assert workshop.bytes_of(tmp_path / "out") == first[format_name]


@pytest.mark.thorough
def test_buckets_that_are_cut_in_worker_processes_do_not_show(expected_events, tmp_path):
    data, first = expected_events
    job = workshop.write_events_job(tmp_path / "job.yaml", data, workers=2)
    penstock.run(workshop.with_batches(penstock.plan(job), 6000))
    assert workshop.bytes_of(tmp_path / "out") == first["safetensors"]


def test_ties_everywhere_and_few_keys_give_the_same_bytes_however_they_are_cut(tmp_path):
    """All times equal: the order is that of positions alone, across files, slices, chunks and runs."""
    (tmp_path / "data").mkdir()
    for number in range(3):
        rows = range(number * 1000, number * 1000 + 1000)
        table = pa.table({"k": [f"{n % 2}" for n in rows], "t": [7] * 1000, "position": rows})
        pq.write_table(table, tmp_path / "data" / f"{number}.parquet", row_group_size=300)
    seen = []
    for batch_bytes in (0, 4000, 700):
        stages = [{"group": {"by": "k", "order": "t", "max_record": "3kB"}}]
        job = workshop.write_events_job(
            tmp_path / str(batch_bytes) / "job.yaml", tmp_path / "data", stages=stages, workers=0
        )
        plan = penstock.plan(job)
        penstock.run(workshop.with_batches(plan, batch_bytes) if batch_bytes else plan)
        seen.append(workshop.bytes_of(job.parent / "out"))
        positions: dict[str, list[int]] = {}
        for record in penstock.open(job.parent / "out")[:].to_pylist():
            positions.setdefault(record["k"], []).extend(record["position"])
        assert positions == {key: list(range(int(key), 3000, 2)) for key in ("0", "1")}
    assert seen[0] == seen[1] == seen[2]


# Keys that are one key in several spellings, and keys that look alike and are not.

_PAYLOADS = [0x7FF8_0000_0000_0000, 0x7FF8_0000_0000_0001, 0xFFF8_0000_0000_0000, 0x7FF8_DEAD_0000_BEEF]
_DOUBLES = np.append([-0.0, 0.0, 1.5], np.array(_PAYLOADS, "u8").view("f8"))
_SINGLES = np.append(
    np.array([-0.0, 0.0, 1.5], "f4"), np.array([0x7FC0_0000, 0x7FC0_0001, 0xFFC0_0000, 0x7FC0_BEEF], "u4").view("f4")
)
AWKWARD_KEYS: dict[str, tuple[pa.Array, int]] = {
    "zeros and NaNs": (pa.array(_DOUBLES), 3),
    "narrow zeros and NaNs": (pa.array(_SINGLES), 3),
    "only NaNs": (pa.array(_DOUBLES[3:]), 1),
    "only zeros": (pa.array(_DOUBLES[:2]), 1),
    "bytes and their escapes": (pa.array([b"\xff", b"\\xff"], pa.binary()), 2),
    "bytes, their escapes and null": (pa.array([b"\xff", b"\\xff", b"None", None], pa.binary()), 4),
    "numbers in text": (pa.array(["nan", "1.5", "-0.0", "0.0", "None", None]), 6),
}


# Every key with records of some events; records of one event, and of all of a key, with the most awkward.
SIZES_OF_KEYS = [(name, "3kB") for name in AWKWARD_KEYS]
SIZES_OF_KEYS += [
    (name, max_record)
    for name in (AWKWARD_KEYS if workshop.THOROUGH else ["bytes, their escapes and null"])
    for max_record in ("8MiB", "60")
]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "max_record"), SIZES_OF_KEYS)
def test_keys_spelled_in_several_ways_give_the_same_bytes_however_they_are_cut(tmp_path, name, max_record):
    """All in one bucket, so that keys that look alike meet at the edge of a run."""
    values, distinct = AWKWARD_KEYS[name]
    chance = np.random.default_rng(11)
    (tmp_path / "data").mkdir()
    for number in range(2):
        table = pa.table(
            {
                "k": values.take(pa.array(chance.integers(0, len(values), 400))),
                "t": chance.integers(0, 100, 400),
                "n": np.arange(400),
            }
        )
        pq.write_table(table, tmp_path / "data" / f"{number}.parquet", row_group_size=100, use_dictionary=False)
    stages = [{"group": {"by": "k", "order": "t", "max_record": max_record, "null_keys": "group"}}]
    stages += [{"split": {"by": "key", "test": 0.3}}]
    seen = []
    for batch_bytes in (700, 6000, 8_000_000):
        job = workshop.write_job(
            tmp_path / str(batch_bytes) / "job.yaml", tmp_path / "data", stages=stages, workers=0, slice_size="10MB"
        )
        penstock.run(workshop.with_batches(penstock.plan(job), batch_bytes))
        seen.append(workshop.bytes_of(job.parent / "out"))
        summary = json.loads((job.parent / "out" / "artifacts" / "group.json").read_text())
        assert summary["keys"] == len(summary["largest"]) == distinct
        assert summary["events"] == sum(each["events"] for each in summary["largest"]) == 800
    assert "manifest.json" in seen[0]
    assert seen[0] == seen[1] == seen[2]
