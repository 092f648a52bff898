"""Promises 2 and 3, of `split: {test: 100}`: exactly so many, and the same ones after a kill, in a job of any shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.shards.packed import SUMMARY
from tests.promises import text_making, workshop
from tests.promises.killing import Clean, clean_run, kill_drivers

KILLS = 20 if workshop.THOROUGH else 3
EXACT = {"test": 100, "val": 50}


def _stages(*behind: Any) -> list[Any]:
    return [{"filter": "rtt > 1"}, {"split": EXACT}, *behind]


def _rows(folder: Path) -> Callable[..., Path]:
    data = workshop.make_input(folder / "data", files=3, rows=3000)
    return partial(workshop.write_job, data=data, stages=_stages({"normalize": ["size"]}))


def _keys(folder: Path) -> Callable[..., Path]:
    data = workshop.make_event_input(folder / "data", files=2, rows=1500)
    stages = [*workshop.EVENT_STAGES[:2], {"split": {"by": "key", "test": 30, "val": 9}}]
    return partial(workshop.write_events_job, data=data, stages=stages)


def _arrays(folder: Path) -> Callable[..., Path]:
    data = workshop.make_input(folder / "data", files=3, rows=3000)
    stages = [{"select": ["size", "time"]}, {"filter": "size > 10"}, {"split": EXACT}, {"normalize": ["size"]}]
    return partial(workshop.write_job, data=data, stages=stages, format="arrays")


def _text(folder: Path) -> Callable[..., Path]:
    data = text_making.write_documents(folder / "data", *text_making.files_of_documents(3, 60))
    clean, dedup, *others = text_making.stages()
    stages = [clean, dedup, {"split": {"test": 20, "val": 7}}, *others]
    return partial(text_making.write_job, data=data, stages=stages)


SHAPES = {"rows": _rows, "keys": _keys, "arrays": _arrays, "text": _text}


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Clean, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, clean_run(folder, SHAPES[request.param](folder)), folder


def test_exactly_so_many_are_in_each_split(shape):
    name, _, folder = shape
    if name == "keys":
        found = [set(penstock.open(folder / "out", split)[:]["src"].to_pylist()) for split in ("test", "val", "train")]
        assert [len(each) for each in found[:2]] == [30, 9]
        assert not found[0] & found[1]
        assert not found[2] & (found[0] | found[1])
    elif name == "text":
        counted = json.loads((folder / "out" / SUMMARY).read_text())  # the last rows of a split lack its tail
        assert [counted[split]["0"]["documents"] for split in ("test", "val")] == [20, 7]
    else:
        assert [len(penstock.open(folder / "out", split)) for split in ("test", "val")] == [100, 50]


@pytest.mark.thorough
def test_the_same_bytes_with_workers(shape, tmp_path):
    _, clean, _ = shape
    job = clean.job(tmp_path / "job.yaml", workers=2)
    clean.assert_recovers(job)


def test_a_run_that_died_while_it_counted_goes_on_and_takes_the_same(shape, die, tmp_path):
    name, clean, _ = shape
    job = clean.job(tmp_path / "job.yaml", workers=0)
    die(job, "task.after_shards")
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert any("-fit-" in each for each in clean.names), name
    clean.assert_recovers(job)


@pytest.mark.thorough
def test_sigkill_of_the_driver_at_random_moments_takes_the_same(shape, tmp_path):
    _, clean, _ = shape
    job = clean.job(tmp_path / "job.yaml", workers=1)
    kill_drivers(job, clean.tasks, KILLS, pause=0.05)
    clean.assert_recovers(job)


@pytest.mark.thorough
def test_a_run_whose_counting_was_done_counts_no_more(shape, tmp_path):
    """The states of the fit pass are in the ledger: what dies behind it is done without reading for it again."""
    _, clean, _ = shape
    job = clean.job(tmp_path / "job.yaml", workers=0)
    penstock.run(job, progress=False)
    out = tmp_path / "out"
    (out / "manifest.json").unlink()
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob(".penstock/tasks/*-fit-*")}
    assert kept
    clean.assert_recovers(job)
    assert kept == {path.name: path.stat().st_mtime_ns for path in out.glob(".penstock/tasks/*-fit-*")}
