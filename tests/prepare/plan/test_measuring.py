"""Measuring: one trial per word, and what a trial is too short to show is added to it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.memory import Budget
from penstock.prepare.budget.costs import SLICES, Measured, Measurement, assume
from penstock.prepare.job.config import Config
from penstock.prepare.passes import Need, Trial
from penstock.prepare.plan.measuring import driver_growth, is_small, trial_settings, trials_of, with_more
from penstock.prepare.plan.settings import strategy_of

MB = 1 << 20
COST = Measurement(50 * MB, 10 * MB, 3.0, row_seconds=2e-7, output_row_bytes=100.0)
MEASURED = Measured({SLICES: COST})


@dataclass(frozen=True)
class SomePass:
    trial: Trial | None = None
    held: int = 0
    task_count: int = 10
    states: Need | None = None

    def held_later(self, row_bytes: float) -> int:
        return int(self.held * row_bytes)


def trial(word: str, work: str) -> Trial:
    return Trial(word, work, lambda *_: None)


def survey(rows: int = 1000, **more: Any) -> Any:
    sample = pa.record_batch({"a": pa.array([1, 2], pa.int64())})
    slices, own = (
        ["a slice"],
        {"stored_row_bytes": 1.0, "decoded_bytes": 0, "stages": (), "sources": (), "sample": sample},
    )
    return SimpleNamespace(slices=slices, rows_of=lambda _: rows, **{**own, **more})


def config(**keys: Any) -> Any:
    return Config({"input": "in", "output": "out", **keys})


def job(**keys: Any) -> Any:
    return SimpleNamespace(config=config(**keys), survey=survey(), stages=(), allowed=800 * MB)


def test_the_first_pass_of_each_word_is_tried_in_the_order_of_the_passes():
    tried = [trial("slices", "first"), None, trial("buckets", "second"), trial("slices", "third")]
    assert [each.work for each in trials_of([SomePass(each) for each in tried])] == ["first", "second"]  # type: ignore[misc]


def test_a_trial_has_the_room_of_a_row_that_is_alone_and_one_thread_where_no_stage_has_more():
    found = trial_settings(job(), cores=8)
    assert (found.workers, found.batch_bytes, found.row_bytes, found.threads) == (0, 4 * MB, 8.0, 1)
    assert found.room.shared == found.room.alone == 100 * MB


def test_what_endings_hold_later_is_added_for_the_pass_that_holds_most():
    found = with_more(job(), [SomePass(held=2), SomePass(held=3)], 4, MEASURED)  # type: ignore[list-item]
    assert found.slices.fixed_bytes == 10 * MB + 3 * 8


@pytest.mark.parametrize(("declared", "expected"), [("1GB", 1_000_000_000), ("1MB", 10 * MB)])
def test_memory_that_is_declared_for_a_function_counts_if_it_is_more_than_was_seen(declared, expected):
    source = {"function": "json:loads", "path": "in", "function_memory": declared}
    assert with_more(job(input=source), [SomePass()], 4, MEASURED).slices.fixed_bytes == expected  # type: ignore[list-item]


def test_the_driver_grows_with_tasks_and_files_and_with_large_states():
    passes: Any = [SomePass(task_count=3), SomePass(task_count=4)]
    assert driver_growth(passes, files=100) == 8 * MB + 7 * 5 * 1024 + 100 * 1024
    assert driver_growth([*passes, SomePass(task_count=0, states=Need(5 * MB, ""))], 0) == 13 * MB + 7 * 5 * 1024


@pytest.mark.parametrize(
    ("rows", "allowed", "keys", "small"),
    [
        (1000, 16_000, {}, True),
        (17 * MB, 16_000, {}, False),  # of 8 bytes each: more than 128 MB
        (1000, 600, {}, True),
        (1000, 500, {}, False),
        (4 * MB, 800, {}, False),  # ten times 32 MB, and 512 MB
        (1000, 16_000, {"workers": 2}, False),
        (1000, 16_000, {"strategy": "streaming"}, False),
    ],
)
def test_a_job_is_small_with_little_data_much_memory_and_nothing_asked(rows, allowed, keys, small):
    assert is_small(config(**keys), survey(rows), Budget(allowed * MB, "a test")) == small


def test_a_job_with_the_users_own_code_is_never_small():
    sources = (SimpleNamespace(function="some.module:read"),)
    assert not is_small(config(), survey(sources=sources), Budget(16_000 * MB, "a test"))


def test_a_job_whose_lists_decode_to_much_is_not_small():
    assert not is_small(config(), survey(decoded_bytes=129 * MB), Budget(16_000 * MB, "a test"))


def test_nothing_is_added_for_engines_of_a_job_that_was_not_measured():
    passes: Any = [SomePass()]
    assumed = assume(8.0, 0)
    assert with_more(job(), passes, 4, assumed).slices == assumed.slices


@pytest.mark.parametrize(
    ("keys", "inside"),
    [({}, False), ({"workers": 0}, True), ({"strategy": "sequential"}, True), ({"workers": 1}, False)],
)
def test_a_job_without_workers_is_tried_inside_the_driver(keys, inside):
    assert strategy_of(config(**keys)).is_inside == inside
