"""Settings: the most workers with good batches that fit, and a refusal with numbers where nothing does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.errors import PlanError
from penstock.base.memory import Budget
from penstock.prepare.budget.costs import SLICES, Measured, Measurement
from penstock.prepare.budget.means import MARGIN, SLACK_BYTES, Means, Settings, memory_of
from penstock.prepare.job.config import Config
from penstock.prepare.passes import Batches, Holds, Need
from penstock.prepare.plan.settings import choose_settings, refuse_without_memory, threads_of

MB = 1 << 20
COST = Measurement(
    worker_bytes=50 * MB, fixed_bytes=10 * MB, bytes_per_batch_byte=3.0, row_seconds=2e-7, output_row_bytes=100.0
)


@dataclass(frozen=True)
class SomePass:
    """What settings ask of a pass."""

    holding: Holds
    task_count: int = 100
    number: int = 0
    states: Need | None = None

    def holds(self, means: Means) -> Holds:  # noqa: ARG002
        return self.holding


@dataclass(frozen=True)
class SomeSurvey:
    stored_row_bytes: float = 64.0
    files: int = 1
    stages: tuple[Any, ...] = ()

    @property
    def sample(self) -> pa.RecordBatch:
        return pa.record_batch({"a": pa.array([1, 2], pa.int64())})


BATCHES = Batches(wanted=8 * MB, good=2 * MB, least=MB)
PASS: Any = SomePass(Holds(COST, BATCHES))
SURVEY: Any = SomeSurvey()


def means(allowed: int, cores: int = 4) -> Means:
    return Means(Budget(allowed, "a test"), cores, 1 << 40, 60 * MB, Measured({SLICES: COST}))


def config(**keys: Any) -> Config:
    return Config({"input": "in", "output": "out", **keys})


def chosen(allowed: int, some: Any = PASS, **keys: Any) -> Settings:
    return choose_settings(some, config(**keys), SURVEY, means(allowed))


def test_with_plenty_of_memory_every_core_has_the_batches_that_are_wanted():
    assert (chosen(10_000 * MB).workers, chosen(10_000 * MB).batch_bytes) == (4, 8 * MB)


def test_batches_become_smaller_before_workers_become_fewer():
    seen = [chosen(size * MB) for size in range(1200, 250, -10)]
    assert [each.workers for each in seen] == sorted((each.workers for each in seen), reverse=True)
    fewer = next(each for each in seen if each.workers == 3)
    assert fewer.batch_bytes > min(each.batch_bytes for each in seen if each.workers == 4) >= BATCHES.good


@pytest.mark.parametrize("allowed", [200, 300, 500, 1000, 5000])
def test_what_is_chosen_fits_into_what_is_allowed(allowed):
    found = chosen(allowed * MB)
    assert memory_of(found.workers, found.batch_bytes, found.hold_bytes, COST, means(allowed * MB)) <= allowed * MB


def test_one_worker_takes_the_least_batch_and_below_that_the_job_is_refused():
    least = 60 * MB + 50 * MB + int((10 * MB + 3 * MB) * MARGIN) + SLACK_BYTES
    assert chosen(least + 1).workers == 1
    refuse_without_memory([PASS], config(), SURVEY, means(least + 1))
    with pytest.raises(PlanError, match=r"the job needs .*: 62.9 MB for the driver, 52.4 MB for one worker and"):
        refuse_without_memory([PASS], config(), SURVEY, means(least - MB))


def test_the_pass_that_needs_most_says_how_much():
    costly = SomePass(Holds(replace(COST, fixed_bytes=400 * MB), BATCHES), number=1)
    with pytest.raises(PlanError, match="532 MB for the smallest batch"):
        refuse_without_memory([PASS, costly], config(), SURVEY, means(300 * MB))


def test_strategies_are_rules_for_the_same_choice():
    assert chosen(10_000 * MB, strategy="streaming").batch_bytes == BATCHES.good
    assert chosen(10_000 * MB, strategy="parallel").batch_bytes == BATCHES.wanted
    assert chosen(10_000 * MB, strategy="sequential").workers == 0
    assert chosen(10_000 * MB, workers=2).workers == 2


def test_there_are_no_more_workers_than_tasks():
    assert chosen(10_000 * MB, replace(PASS, task_count=3)).workers == 3


def test_output_is_held_as_far_as_it_is_worth_it_and_fits():
    holding = replace(PASS, holding=Holds(COST, BATCHES, output=100.0 * MB))
    assert chosen(10_000 * MB, holding).hold_bytes == 100 * MB
    assert 0 <= chosen(450 * MB, holding).hold_bytes < 100 * MB
    assert chosen(10_000 * MB, holding, strategy="streaming").hold_bytes == 0


def test_a_known_need_decides_the_workers_and_is_refused_in_its_own_words():
    known: Any = SomePass(Holds(COST, known=Need(200 * MB, "weaving needs {needed}; {budget} is allowed")))
    assert chosen(60 * MB + 3 * 250 * MB, known).workers == 3
    with pytest.raises(PlanError, match=r"weaving needs 325 MB; 315 MB \(a test\) is allowed") as refused:
        refuse_without_memory([known], config(), SURVEY, means(300 * MB))
    assert refused.value.next_step == "memory: 360MB"


def test_what_the_driver_needs_at_the_end_is_refused_too():
    need = Need(500 * MB, "knotting needs {needed} at the end; only {budget} is allowed", "guessed", "use less yarn")
    some: Any = SomePass(Holds(COST, BATCHES, driver=need))
    with pytest.raises(PlanError, match="knotting needs 524 MB at the end") as refused:
        refuse_without_memory([some], config(), SURVEY, means(400 * MB))
    assert (refused.value.where, refused.value.next_step) == ("guessed", "memory: 580MB, or use less yarn")


def test_threads_of_a_stage_leave_fewer_processes():
    threaded = replace(PASS, holding=Holds(COST, BATCHES, threads=4))
    found = chosen(10_000 * MB, threaded)
    assert (found.workers, found.threads) == (1, 4)
    assert [threads_of(4, cores, 1) for cores in (1, 2, 8)] == [1, 2, 5]
    assert threads_of(0, 8, 1) == 1
