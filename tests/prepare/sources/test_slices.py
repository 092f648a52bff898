"""Slices: cut from the input alone, every piece once, in order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.prepare.sources.slices import Segment, cut_slices


def piece(path: str, first: int, last: int, size: int, rows: int = 10, ordinal: int = 0) -> Segment:
    return Segment(0, path, f"/data/{path}", "id", first, last, ordinal, rows, size)


FILES = st.lists(st.lists(st.integers(0, 100), min_size=1, max_size=8), max_size=8)


@given(FILES, st.integers(1, 250))
def test_every_piece_is_in_one_slice_and_none_is_larger_than_it_must_be(files, slice_bytes):
    pieces = [piece(f"{n}", i, i + 1, size) for n, sizes in enumerate(files) for i, size in enumerate(sizes)]
    slices = cut_slices(pieces, slice_bytes)
    covered = [(each.path, group) for cut in slices for each in cut.segments for group in range(each.first, each.last)]
    assert covered == [(each.path, each.first) for each in pieces]
    assert [cut.number for cut in slices] == list(range(len(slices)))
    assert sum(cut.bytes for cut in slices) == sum(each.bytes for each in pieces)
    assert sum(cut.rows for cut in slices) == 10 * len(pieces)
    for cut in slices:
        parts = sum(each.last - each.first for each in cut.segments)
        assert cut.bytes <= slice_bytes or parts == 1


def test_neighbours_of_one_file_are_joined_and_others_are_not():
    pieces = [piece("a", 0, 1, 5), piece("a", 1, 2, 5, ordinal=10), piece("b", 2, 3, 5), piece("b", 5, 6, 5)]
    (cut,) = cut_slices(pieces, 100)
    assert [(each.path, each.first, each.last, each.rows, each.ordinal) for each in cut.segments] == [
        ("a", 0, 2, 20, 0),
        ("b", 2, 3, 10, 0),
        ("b", 5, 6, 10, 0),
    ]


def test_rows_that_only_reading_would_tell_stay_unknown():
    (cut,) = cut_slices([piece("a", 0, 1, 5, rows=-1), piece("a", 1, 2, 5)], 100)
    assert cut.rows == -1
    assert cut.segments[0].rows == -1


def test_nothing_is_no_slices():
    assert cut_slices([], 100) == ()


def test_a_segment_is_the_same_wherever_it_lies():
    here, there = piece("a", 0, 1, 5), Segment(0, "a", "/elsewhere/a", "id", 0, 1, 0, 10, 5)
    assert here.describe() == there.describe()
    assert here.describe() != piece("a", 0, 2, 5).describe()


def test_a_slice_names_its_first_segment():
    (cut,) = cut_slices([piece("a", 0, 1, 5), piece("b", 0, 1, 5), piece("c", 0, 1, 5)], 100)
    assert str(cut) == "slice 0: a [0:1] and 2 more files"
    assert str(replace(cut, segments=cut.segments[:2])) == "slice 0: a [0:1] and 1 more file"


@given(FILES, st.integers(1, 250), st.integers(1, 4))
def test_a_slice_has_no_more_segments_than_it_may(files, slice_bytes, most):
    pieces = [piece(f"{n}", i, i + 1, size) for n, sizes in enumerate(files) for i, size in enumerate(sizes)]
    slices = cut_slices(pieces, slice_bytes, most)
    assert all(len(cut.segments) <= most for cut in slices)
    covered = [(each.path, group) for cut in slices for each in cut.segments for group in range(each.first, each.last)]
    assert covered == [(each.path, each.first) for each in pieces]


def test_small_files_fill_a_slice_up_to_its_number_of_them():
    pieces = [piece(f"{number}", 0, 1, 1) for number in range(7)]
    assert [len(cut.segments) for cut in cut_slices(pieces, 100, 3)] == [3, 3, 1]
    assert [len(cut.segments) for cut in cut_slices(pieces, 2, 3)] == [2, 2, 2, 1]
    assert [len(cut.segments) for cut in cut_slices(pieces, 100)] == [7]
