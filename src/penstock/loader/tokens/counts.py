"""Counts: values that the tokens of an event cannot represent, so that nothing is changed in silence. Read by stats.py.

A value is counted once, each time that an event with it is written.
"""

# In the order of the kernel's counters.
COUNTED = (
    "events",
    "segments",
    "nulls",  # in any field
    "addresses_of_other_version",
    "addresses_unreadable",
    "times_going_back",
    "values_not_a_number",
    "values_negative",
    "values_too_small",
    "values_too_large",
    "ints_out_of_range",
    "categories_other",
    "bytes_cut",
)
EVENTS, SEGMENTS, NULLS, OTHER_VERSION, UNREADABLE, GOING_BACK = range(6)
NOT_A_NUMBER, NEGATIVE, TOO_SMALL, TOO_LARGE, OUT_OF_RANGE, OTHER_CATEGORY, CUT = range(6, len(COUNTED))
ODD = COUNTED[NULLS:]  # the names of what could not be represented
