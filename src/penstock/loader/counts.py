"""Counts: what the encoding of rows took note of, so that nothing is changed in silence. Read by stats.py."""

from __future__ import annotations

# In the order of the kernel's counters.
COUNTED = (
    "events",
    "segments",
    "addresses_of_other_version",
    "addresses_unreadable",
    "values_not_a_number",
    "ints_out_of_range",
    "categories_other",
    "bytes_cut",
)
EVENTS, SEGMENTS, OTHER_VERSION, UNREADABLE, NOT_A_NUMBER, OUT_OF_RANGE, OTHER_CATEGORY, CUT = range(len(COUNTED))
