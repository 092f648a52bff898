"""How far, how fast, how long still: told from events alone, with the events' own times."""

from __future__ import annotations

from typing import Any

from penstock.show.running.progress import Tracker

START = {
    "event": "start",
    "time": 100.0,
    "tasks": 4,
    "tasks_kept": 0,
    "changes": [],
    "workers": 2,
    "allowed": 2_000_000_000,
    "projected": 300_000_000,
    "rows": 4000,
    "input_rows": 1000,
    "rows_are_estimated": False,
    "not_read": [],
    "unit": "documents",
    "bad_files": 0,
}


def fed(*events: dict[str, Any]) -> Tracker:
    tracker = Tracker()
    for event in events:
        tracker.take(event)
    return tracker


def sample(time: float, rows: int, memory: int = 150_000_000) -> dict[str, Any]:
    return {"event": "sample", "time": time, "memory": memory, "file": 0, "rows": rows, "busy": 2}


def test_speed_and_time_left_come_from_the_rows_of_the_last_seconds():
    tracker = fed(START, sample(101.0, 500), sample(102.0, 1000))
    assert tracker.share == 0.25
    assert tracker.rows_per_second == 500
    assert tracker.seconds_left == 6


def test_a_speed_of_long_ago_is_forgotten():
    slow = [sample(100.0 + second, 10 * second) for second in range(60)]
    fast = [sample(160.0 + second, 600 + 100 * second) for second in range(20)]
    assert fed(START, *slow, *fast).rows_per_second == 100


def test_tasks_kept_from_an_earlier_run_count_as_done_but_not_as_speed():
    tracker = fed({**START, "tasks_kept": 2}, sample(101.0, 500))
    assert tracker.share == 0.625
    assert tracker.rows_per_second == 500


def test_inside_the_driver_rows_come_with_the_tasks_that_end():
    tracker = fed(START, {"event": "task", "time": 101.0, "task": "0-map-00000", "rows": 1000}, sample(101.1, 0))
    assert tracker.rows == 1000


def test_a_total_that_was_estimated_too_small_never_shows_a_hundred_percent_before_the_end():
    tracker = fed(START, sample(101.0, 5000))
    assert tracker.share == 0.99
    tracker.take({"event": "done", "time": 102.0, "seconds": 2.0})
    assert tracker.share == 1.0


def test_before_the_first_row_nothing_is_promised():
    tracker = fed(START)
    assert tracker.seconds_left is None
    assert tracker.rows_per_second == 0
