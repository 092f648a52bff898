"""Points: the line through short runs tells what a larger batch takes, and when there is enough to draw it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.prepare.budget.costs import RECORD_ROWS, SECONDS, STEEP, Point, is_enough, line, measurement_of, slope

KB, MB = 1 << 10, 1 << 20
SMALL = Point(64 * KB, grown=10 * MB + 3 * 64 * KB, rows=100, given=90, written=900, seconds=0.1, busy_seconds=0.04)
MIDDLE = replace(SMALL, batch_bytes=512 * KB, grown=10 * MB + 3 * 512 * KB, rows=800, given=720, written=7200)
LARGE = replace(SMALL, batch_bytes=4 * MB, grown=10 * MB + 3 * 4 * MB, rows=6400, given=5760, written=57600)


def test_the_line_goes_through_the_last_two_points():
    assert slope([SMALL, MIDDLE, LARGE]) == 3.0
    assert line([SMALL, MIDDLE], 4 * MB) == LARGE.grown
    bent = replace(LARGE, grown=LARGE.grown + 7 * MB)
    assert slope([SMALL, MIDDLE, bent]) == 5.0


def test_a_measurement_is_the_line_and_what_the_last_point_did():
    found = measurement_of([SMALL, MIDDLE, LARGE], reserved=50 * MB)
    assert (found.worker_bytes, found.fixed_bytes, found.bytes_per_batch_byte) == (50 * MB, 10 * MB, 3.0)
    assert (found.output_row_bytes, found.given_per_row) == (9.0, 0.9)
    assert found.task_bytes(2 * MB) == 16 * MB


def test_a_row_costs_what_the_largest_batch_takes_more_than_the_least():
    large = replace(LARGE, busy_seconds=0.04 + 6300 * 1e-5)
    found = measurement_of([SMALL, MIDDLE, large], reserved=0)
    assert found.seconds(1_000_000) == pytest.approx(10.0)


def test_a_record_made_of_rows_costs_as_much_as_some_rows():
    few = replace(LARGE, given=0, busy_seconds=1.0)
    found = measurement_of([replace(SMALL, given=0, busy_seconds=0.0), few], reserved=0)
    assert found.seconds(1000, 0) + RECORD_ROWS * found.seconds(100, 0) == pytest.approx(found.seconds(1000, 100))


@pytest.mark.parametrize("points", [[SMALL], [SMALL, replace(SMALL, batch_bytes=MB)], [LARGE, SMALL]])
def test_where_batches_tell_no_more_a_row_costs_its_share_of_the_last(points):
    last = points[-1]
    assert measurement_of(points, reserved=0).seconds(last.rows) == pytest.approx(last.busy_seconds)


def test_a_line_that_starts_below_zero_has_no_fixed_part():
    steep = replace(MIDDLE, grown=SMALL.grown + 100 * MB)
    assert measurement_of([SMALL, steep], reserved=0).fixed_bytes == 0


def test_with_little_data_batches_of_any_size_hold_all_of_it_and_the_slope_is_assumed():
    same = [replace(SMALL, batch_bytes=size) for size in (1000, 1500, 2000)]
    assert slope(same[:2]) == STEEP
    assert slope([replace(SMALL, batch_bytes=100), *same]) == 0.0  # the last of those alike stands for them


def test_no_rows_at_all_are_no_division_by_zero():
    nothing = Point(64 * KB, grown=0, rows=0, given=0, written=0, seconds=0.001)
    found = measurement_of([nothing], reserved=MB)
    assert (found.bytes_per_batch_byte, found.output_row_bytes, found.fixed_bytes) == (STEEP, 0.0, 0)


@pytest.mark.parametrize(
    ("points", "room", "enough"),
    [
        ([], 0, False),
        ([SMALL], 0, False),
        ([SMALL, MIDDLE], LARGE.grown, False),
        ([SMALL, MIDDLE], LARGE.grown - 1, True),
        ([SMALL, replace(MIDDLE, seconds=SECONDS * 0.6)], LARGE.grown, True),
        ([replace(SMALL, is_of_giants=True)], LARGE.grown, True),
    ],
)
def test_two_points_are_enough_where_a_third_would_not_fit_or_take_too_long(points, room, enough):
    assert is_enough(points, LARGE.batch_bytes, room) == enough


def test_giants_count_as_rows_of_the_usual_size_but_as_no_more_than_there_are():
    giants = replace(SMALL, rows=2, given=1)
    assert giants.of_giants(usual_rows=500.0, every_row=1000.0) == replace(
        giants, rows=500, given=250, is_of_giants=True
    )
    assert giants.of_giants(usual_rows=500.0, every_row=40.0).rows == 40
    assert giants.of_giants(usual_rows=0.5, every_row=40.0).rows == 2
