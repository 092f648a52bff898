"""Promises 2 to 4, of datasets of other trainers: Megatron's and MDS as input give the same bytes, killed or not."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from tests.prepare.sources.mds_files import write_texts
from tests.promises import killing, workshop
from tests.shards.foreign.megatron_files import write_pair

DOCUMENTS = 600
TOKENS: list[Any] = [{"filter": "length(tokens) > 10"}, {"split": {"test": 0.2}}, {"pack": 64}]
TEXTS: list[Any] = [{"filter": "characters(text) > 10"}, {"split": {"test": 0.2}}]
POINTS = ["commit.before_rename", "task.after_shards", "task.before_ledger", "run.before_manifest"]


def make_pairs(folder: Path) -> Path:
    rng = np.random.default_rng(4)
    for name in ("a", "b"):
        sizes = rng.integers(0, 60, DOCUMENTS // 2)
        write_pair(folder / name, [[rng.integers(0, 50_000, size).tolist()] for size in sizes], "uint16")
    return folder


def make_shards(folder: Path) -> Path:
    rng = np.random.default_rng(4)
    texts = ["wörd " * int(count) for count in rng.integers(0, 12, DOCUMENTS)]
    return write_texts(folder, texts, 50, sha256=lambda data: hashlib.sha256(data).hexdigest())


KINDS = {"megatron": (make_pairs, TOKENS, "2kB"), "mds": (make_shards, TEXTS, "4kB")}


def write_job(path: Path, data: Path, stages: list[Any], slice_size: str, **keys: Any) -> Path:
    return workshop.write_job(path, data, stages=stages, slice_size=slice_size, **keys)


@pytest.fixture(scope="module", params=list(KINDS))
def clean(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> killing.Clean:
    folder = tmp_path_factory.mktemp(request.param)
    make, stages, slice_size = KINDS[request.param]
    job: Callable[..., Path] = partial(write_job, data=make(folder / "data"), stages=stages, slice_size=slice_size)
    return killing.clean_run(folder, job)


def test_every_document_is_accounted_for(clean, tmp_path):
    manifest = penstock.run(clean.job(tmp_path / "job.yaml", workers=0))
    assert all(step.balances for step in (*manifest.account, *manifest.tokens))
    assert next(step for step in manifest.account if step.step == "read").taken == DOCUMENTS
    assert clean.tasks > 5


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_number_of_workers_does_not_show(clean, tmp_path, workers):
    job = clean.job(tmp_path / "job.yaml", workers=workers)
    penstock.run(job)
    clean.assert_is_there(job)


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_is_recovered_from_with_the_same_bytes(clean, die, tmp_path, point):
    job = clean.job(tmp_path / "job.yaml", workers=0)
    die(job, point)
    clean.assert_recovers(job)


def test_sigkill_of_the_driver_is_recovered_from_with_the_same_bytes(clean, tmp_path):
    job = clean.job(tmp_path / "job.yaml", workers=1)
    killing.kill_drivers(job, clean.tasks, 2, pause=0.1)
    clean.assert_recovers(job)
