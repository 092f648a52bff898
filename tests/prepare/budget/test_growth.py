"""Growth: records of an exchange grow more slowly than its rows, and no faster than the points say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.prepare.budget.costs import SLICES, Measured, Point, assume, growth_of

SMALL = Point(batch_bytes=1000, grown=0, rows=100, given=50, written=100 * 8 + 50 * 20, seconds=0.1)
LARGE = replace(SMALL, rows=400, given=100, written=400 * 8 + 100 * 20)


def test_two_points_tell_the_bytes_per_row_and_per_record():
    found = growth_of([SMALL, LARGE])
    assert (found.row_bytes, found.record_bytes, found.exponents) == (8.0, 20.0, (0.5, 0.5))


def test_records_grow_on_as_they_did():
    found = growth_of([SMALL, LARGE])
    assert found.records_of(400) == 100
    assert found.records_of(1600) == pytest.approx(200)
    assert found.records_of(200) == 50  # fewer than were measured: in proportion


def test_records_that_grew_more_slowly_the_last_time_grow_still_more_slowly():
    last = replace(LARGE, rows=1600, given=110)
    found = growth_of([SMALL, LARGE, last])
    assert found.exponents[0] > found.exponents[1]
    assert 110 < found.records_of(6400) < 121


def test_there_are_never_more_records_than_rows():
    each = [replace(point, given=point.rows) for point in (SMALL, LARGE)]
    assert growth_of(each).records_of(10_000) == 10_000


def test_sizes_of_columns_tell_rows_and_dictionaries_apart_and_every_bucket_has_its_own():
    small = replace(SMALL, rows_bytes=800, dictionary_bytes=100)
    large = replace(LARGE, rows_bytes=3200, dictionary_bytes=200, written=3200 + 200 + 2000)
    found = growth_of([small, large])
    assert (found.row_bytes, found.record_bytes, found.dictionary_exponent) == (8.0, 20.0, 0.5)
    assert found.bytes_of(400, buckets=4) == pytest.approx(3200 + 2000 + 4 * 200 * 0.25**0.5)


def test_one_point_of_giants_is_enough():
    found = growth_of([SMALL])
    assert (found.row_bytes, found.record_bytes, found.exponents) == (18.0, 0.0, (1.0, 1.0))


def test_what_is_assumed_of_a_small_job_is_steep_and_says_so():
    found = assume(row_bytes=100.0, stage_bytes=1 << 20)
    assert (found.assumed, found.slices.fixed_bytes, found.output_bytes(1000, 4)) == (True, 33 << 20, 100_000)
    assert found.of("what nobody measured") == found.slices
    assert Measured({SLICES: found.slices}).output_bytes(1000, 4) == 0
