"""The history in a report comes from a file that anybody may have written: whatever it says, there is a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.stores import open_store
from penstock.show.report.drawing.charts import ticks_to
from penstock.show.report.drawing.page import page
from penstock.show.report.gathering.history import MOST_POINTS, history, thinned
from penstock.show.report.run_sections import machine_section, memory_section, passes_section, slowest_section
from tests.golden import FINISHED
from tests.show.report.reading import Read, assert_harmless, read

NUMBERS = st.integers() | st.just(10**400) | st.floats() | st.none() | st.booleans() | st.just(0)
VALUES = st.recursive(
    NUMBERS | st.text(max_size=8),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=4), each, max_size=3),
    max_leaves=6,
)
MEMORY = st.fixed_dictionaries(dict.fromkeys(("start", "peak", "end", "increase"), NUMBERS)) | VALUES
PASSES = st.fixed_dictionaries(
    {"number": NUMBERS, "kind": VALUES, "stages": VALUES, "seconds": NUMBERS, "rows": NUMBERS, "memory": MEMORY}
)
UNREAD = st.fixed_dictionaries({"what": VALUES, "count": NUMBERS, "first": VALUES})
RUNS = st.fixed_dictionaries(
    {},
    optional={
        "passes": st.lists(PASSES | VALUES, max_size=3),
        "timeline": st.lists(st.lists(NUMBERS, max_size=4) | VALUES, max_size=4) | VALUES,
        "slowest": st.lists(st.fixed_dictionaries({"task": VALUES, "seconds": NUMBERS}) | VALUES, max_size=3),
        "not_read": st.lists(UNREAD | VALUES, max_size=3),
        "machine": VALUES,
        "versions": VALUES,
        "input": VALUES,
        "started": VALUES,
        **dict.fromkeys(("seconds", "workers", "tasks_done", "tasks_kept", "peak_memory_bytes"), NUMBERS | VALUES),
        **dict.fromkeys(("allowed_memory_bytes", "projected_memory_bytes", "spill_bytes"), NUMBERS | VALUES),
    },
)


@pytest.fixture(scope="module")
def state(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("history") / ".penstock"
    folder.mkdir()
    return folder


@given(RUNS)
def test_whatever_a_run_left_there_is_a_report(state, run: dict[str, Any]):
    (state / "run.json").write_text(json.dumps(run))
    facts = history(open_store(state.parent))
    drawn = Read()
    sections = [make(facts) for make in (memory_section, passes_section, slowest_section, machine_section)]
    drawn.feed(page("x", [], sections))
    assert_harmless(drawn)


@pytest.mark.parametrize("top", [5e-324, 2e-323, 1e-308, 3.0, 1e18])
def test_an_axis_of_any_length_has_ticks(top):
    ticks = ticks_to(top)
    assert ticks[0] == 0
    assert ticks[-1] <= top


def test_a_long_timeline_keeps_its_peaks():
    points = [[float(n), float(n % 1000 == 777), 0.0] for n in range(100_000)]
    kept = thinned(points)
    assert len(kept) == MOST_POINTS
    assert sum(point[1] for point in kept) == 100
    assert kept == sorted(kept)


@pytest.mark.parametrize("name", sorted(each.parent.name for each in FINISHED.glob("*/manifest.json")))
def test_datasets_of_earlier_versions_have_a_report(name, tmp_path):
    drawn = read(penstock.report(FINISHED / name, tmp_path / "report.html"))
    assert_harmless(drawn)
    assert "in = out + set aside, in every step" in drawn.text
