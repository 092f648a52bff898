"""How far, how fast, how long still: told from events alone, with the events' own times."""

from __future__ import annotations

from tests.show.running.saying import PASSES, START, begun, fed, over, sample, task

FIRST = [task(101.0 + number, 0) for number in range(4)]


def test_a_document_counts_once_however_many_passes_read_it():
    first = fed(START, begun(0), *FIRST, over(0, 110.0))
    assert (first.input_read, first.input_rows, first.share) == (1000, 1000, 0.25)
    again = [task(125.0, 2), task(126.0, 2)]
    later = fed(START, begun(0), *FIRST, over(0, 110.0), begun(1, 110.0), over(1, 120.0), begun(2, 120.0), *again)
    assert (later.input_read, later.share) == (1000, 0.625)
    assert [each.state for each in later.passes.values()] == ["done", "done", "now", "waiting"]


def test_the_share_of_all_work_weighs_passes_by_their_projected_time():
    start = {**START, "passes": [{**PASSES[0], "seconds": 30.0}, {**PASSES[1], "seconds": 10.0}]}
    assert fed(start, begun(0), *FIRST, over(0, 110.0)).share == 0.75


def test_speed_and_time_left_come_from_the_last_seconds_and_the_passes_still_to_come():
    start = {**START, "passes": PASSES[:1]}
    tracker = fed(start, begun(0), sample(101.0, 100), sample(102.0, 200))
    assert tracker.rows_per_second == 100
    assert tracker.bytes_per_second == 400_000
    assert tracker.seconds_left == 8
    # Two seconds for a fifth of a pass that was projected to take ten: as projected, so the others take ten each.
    assert fed(START, begun(0), sample(101.0, 100), sample(102.0, 200)).seconds_left == 38


def test_a_speed_of_long_ago_is_forgotten():
    slow = [sample(100.0 + second, second) for second in range(60)]
    fast = [sample(160.0 + second, 60 + 10 * second) for second in range(20)]
    assert fed(START, begun(0), *slow, *fast).rows_per_second == 10


def test_tasks_kept_from_an_earlier_run_count_as_done_but_not_as_speed():
    kept = {**PASSES[0], "tasks_kept": 2, "rows_kept": 500, "rows_set_aside": {"empty": 3}}
    tracker = fed({**START, "tasks_kept": 2, "passes": [kept]}, begun(0), sample(101.0, 125))
    assert tracker.share == 0.625
    assert tracker.rows_per_second == 125
    assert tracker.input_read == 625
    assert tracker.set_aside == {"empty": 3}


def test_rows_that_tasks_set_aside_are_added_up_by_reason():
    told = [task(101.0, set_aside={"empty": 2, "too short": 1}), task(102.0, set_aside={"empty": 5})]
    assert fed(START, begun(0), *told).set_aside == {"empty": 7, "too short": 1}


def test_a_total_that_was_estimated_too_small_never_shows_a_hundred_percent_before_the_end():
    tracker = fed({**START, "passes": PASSES[:1]}, begun(0), sample(101.0, 5000))
    assert tracker.share == 0.99
    tracker.take({"event": "done", "time": 102.0, "seconds": 2.0})
    assert tracker.share == 1.0


def test_an_estimate_that_is_passed_grows_with_the_tasks_that_are_done():
    start = {**START, "rows_are_estimated": True, "passes": PASSES[:1]}
    tracker = fed(start, begun(0), *[task(101.0 + number, 0, rows=400) for number in range(3)])
    assert (tracker.input_read, tracker.input_expected, tracker.is_input_known) == (1200, 1600, False)
    assert tracker.share == 0.75
    tracker.take(over(0, 110.0, rows=1600))
    tracker.take(task(109.0, 0, rows=400))
    assert (tracker.input_read, tracker.input_expected, tracker.is_input_known) == (1600, 1600, True)


def test_rows_that_were_counted_in_advance_stay_the_total():
    tracker = fed(START, begun(0), task(101.0, 0, rows=700))
    assert (tracker.input_expected, tracker.share) == (1000, 0.7 / 4)


def test_before_the_first_row_nothing_is_promised():
    tracker = fed(START, begun(0))
    assert tracker.seconds_left is None
    assert tracker.rows_per_second == 0


def test_a_run_that_failed_has_ended_and_is_not_done():
    tracker = fed(
        START, begun(0), {"event": "failed", "time": 105.0, "error": "TaskError", "what": "x", "seconds": 5.0}
    )
    assert tracker.ended
    assert tracker.failed == "TaskError: x"
    assert tracker.share < 1
