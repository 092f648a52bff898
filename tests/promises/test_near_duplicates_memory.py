"""Promise 1, of near-duplicates: giant documents, and thousands that are alike, stay within `memory:`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.promises import near_making, text_making, workshop
from tests.promises.near_making import SURE
from tests.promises.test_memory_is_a_contract import _watched_run, cgroup

BUDGET_MB = 400


def _assert_survives(job: Path, budget_mb: int = BUDGET_MB) -> None:
    with cgroup(budget_mb * 10**6) as (enter, kills):
        done = subprocess.run(
            workshop.command(job), preexec_fn=enter, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert kills() == 0
    assert not workshop.events_named(job.parent / "out", "retry")


def _write(path: Path, texts: Sequence[str], group: int = 10**9) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": range(len(texts)), "text": texts})
    pq.write_table(table, path, row_group_size=group, use_dictionary=False)
    return str(path.parent)


def _job(path: Path, data: str, near: dict[str, Any], budget_mb: int, **keys: Any) -> Path:
    usual = {"memory": f"{budget_mb}MB", "slice_size": "1MB", "workers": 2}
    return near_making.write_job(path, data, near, **{**usual, **keys})


def _giant(seed: int, megabytes: int, spaces: bool = True) -> bytearray:
    """Random letters, in words of two to nine."""
    chance = np.random.default_rng(seed)
    letters = chance.integers(ord("a"), ord("z") + 1, megabytes * 10**6, dtype="u1")
    if spaces:
        letters[np.cumsum(chance.integers(3, 11, len(letters) // 10))] = ord(" ")
        letters[-len(letters) // 3 :][::7] = ord(" ")
    letters[0] = letters[-1] = ord("x")
    return bytearray(letters.tobytes())


def _giants(megabytes: int, spaces: bool = True) -> list[str]:
    """Two that differ in a hundred places, and one of its own, among small ones."""
    one, other = _giant(1, megabytes, spaces), _giant(2, megabytes, spaces)
    copy = one[:]
    for place in range(0, len(copy), len(copy) // 100):
        copy[place] = ord("Z")
    small = [f"small document number {number} among giants" for number in range(60)]
    return [*small[:20], one.decode(), *small[20:40], other.decode(), copy.decode(), *small[40:]]


GIANT_IDS = [each for each in range(63) if each != 42]  # the copy is gone


@pytest.mark.parametrize("workers", [0, 2] if workshop.THOROUGH else [2])
def test_documents_of_many_megabytes_are_compared_within_a_cgroup_that_kills_at_the_budget(tmp_path, workers):
    """Ten megabytes are ten portions."""
    data = _write(tmp_path / "data" / "a.parquet", _giants(10), group=10)
    job = _job(tmp_path / "job.yaml", data, {}, BUDGET_MB, workers=workers)
    _assert_survives(job)
    _assert_giant_found(tmp_path / "out")


def _assert_giant_found(output: Path) -> None:
    assert near_making.ids_of(output) == GIANT_IDS
    (line,) = near_making.evidence_of(output)
    assert (line[2], line[5]) == (42, 20)
    assert 0.99 < line[6] < 1


@pytest.mark.thorough  # minutes
@pytest.mark.parametrize("workers", [0, 2])
def test_documents_of_a_hundred_megabytes_are_compared_within_a_cgroup_that_kills_at_the_budget(tmp_path, workers):
    """Two nearly equal ones and one of its own, in memory of twelve times one of them."""
    data = _write(tmp_path / "data" / "a.parquet", _giants(100), group=1)
    _assert_survives(_job(tmp_path / "job.yaml", data, {}, 1200, workers=workers), 1200)
    _assert_giant_found(tmp_path / "out")


@pytest.mark.thorough
@pytest.mark.parametrize("near", [{"words": 5}, {"characters": 8}], ids=str)
def test_giant_documents_without_white_space_are_compared_within_memory(tmp_path, near):
    """By words each is one word of 40 MB, and stays; by characters they have 40 million shingles."""
    data = _write(tmp_path / "data" / "a.parquet", _giants(40, spaces=False), group=1)
    _assert_survives(_job(tmp_path / "job.yaml", data, near, 1000), 1000)
    if "characters" in near:
        _assert_giant_found(tmp_path / "out")
    else:
        assert near_making.ids_of(tmp_path / "out") == list(range(63))


@pytest.mark.thorough
def test_giant_documents_in_lines_of_json_are_compared_within_memory(tmp_path):
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "a.jsonl").open("w") as file:
        for number, text in enumerate(_giants(40)):
            print(json.dumps({"id": number, "text": text}), file=file)
    _assert_survives(_job(tmp_path / "job.yaml", str(tmp_path / "data"), {}, 1200), 1200)
    assert near_making.ids_of(tmp_path / "out") == GIANT_IDS


ALIKE = 200_000 if workshop.THOROUGH else 20_000
FILLER, MORE = (" ".join(f"word{number}" for number in numbers) for numbers in (range(30), range(30, 60)))


@pytest.mark.parametrize("near", [{}, SURE] if workshop.THOROUGH else [{}], ids=str)
def test_many_short_documents_that_differ_in_one_number_are_compared_within_a_cgroup_that_kills(tmp_path, near):
    """All pairs are similar (0.84), 20 billion of them in a thorough run, and few are compared."""
    texts = [f"{FILLER} item {number} {MORE}" for number in range(ALIKE)]
    data = _write(tmp_path / "data" / "a.parquet", texts, group=5000)
    _assert_survives(_job(tmp_path / "job.yaml", data, near, 300), 300)
    counts = near_making.counts_of(tmp_path / "out")
    assert counts["not_compared"] > 0
    assert len(near_making.evidence_of(tmp_path / "out")) == counts["removed"] > 0.99 * ALIKE
    assert text_making.steps_of(tmp_path / "out")["near_dedup"]["given"] == ALIKE - counts["removed"]


@pytest.mark.thorough
def test_identical_documents_are_compared_within_a_cgroup_that_kills(tmp_path):
    """Every band has one key, and every key all documents."""
    data = _write(tmp_path / "data" / "a.parquet", [FILLER] * 300_000, group=50_000)
    _assert_survives(_job(tmp_path / "job.yaml", data, {}, 300), 300)
    assert near_making.ids_of(tmp_path / "out") == [0]


def test_no_near_duplicates_at_all_cost_little(tmp_path):
    """Distinct documents: no pass behind the first two has much to do, and memory stays below the projection."""
    chance = np.random.default_rng(1)
    texts = [" ".join(map(str, row)) for row in chance.integers(0, 10**6, (20_000 * (1 + 9 * workshop.THOROUGH), 30))]
    data = _write(tmp_path / "data" / "a.parquet", texts, group=5000)
    peak, run = _watched_run(_job(tmp_path / "job.yaml", data, {}, BUDGET_MB))
    told = f"measured {peak / 1e6:.0f} MB, projected {run['projected_memory_bytes'] / 1e6:.0f} MB"
    assert peak <= run["projected_memory_bytes"] <= BUDGET_MB * 10**6, told
    assert near_making.counts_of(tmp_path / "out")["removed"] == 0


def test_near_duplicates_of_all_kinds_stay_below_the_projection(tmp_path):
    """With everything that a job of text has before and behind it."""
    texts = [*near_making.planted(1, 1500), *text_making.documents(3000, 3)]
    data = _write(tmp_path / "data" / "a.parquet", texts, group=500)
    text_making.write_tokenizer(tmp_path / "tokenizer")
    clean, dedup, tokenize, pack = text_making.stages(pack={"length": 1024})
    stages = [clean, dedup, "near_dedup", tokenize, pack]
    peak, run = _watched_run(_job(tmp_path / "job.yaml", data, {}, 500, stages=stages))
    told = f"measured {peak / 1e6:.0f} MB, projected {run['projected_memory_bytes'] / 1e6:.0f} MB"
    assert peak <= run["projected_memory_bytes"] <= 500_000_000, told


def test_a_budget_that_cannot_hold_it_is_refused_with_one_that_can(tmp_path):
    data = _write(tmp_path / "data" / "a.parquet", near_making.planted(2, 200), group=50)
    refused = workshop.run(_job(tmp_path / "job.yaml", data, {}, 60))
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert not (tmp_path / "out").exists()
    suggested = json.loads(refused.stdout)["next_step"].split(",")[0].removeprefix("memory: ")
    workshop.run_well(near_making.write_job(tmp_path / "job.yaml", data, {}, memory=suggested, slice_size="1MB"))
