"""Run ranges: what all tasks find in one catalogue is what the tables of the files say, and these are read once."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.faults import Sweep, sweeping
from penstock.base.stores import open_store
from penstock.prepare.passes import run_ranges
from penstock.prepare.passes.run_ranges import RunRanges, equal_edges
from penstock.prepare.rows.kept import forget_kept
from penstock.prepare.stages.dedup.runs import END_OF_KEYS, KEY, RunsFile, RunsWriter, open_runs
from penstock.shards.columns import FileFacts

WORDS = st.sampled_from([0, 1, 2**32, 2**62, 2**63, 2**63 + 1, 2**64 - 1])
FILES = st.lists(st.lists(st.lists(st.tuples(WORDS, WORDS), max_size=12), max_size=3), max_size=4)


def written(folder: Path, files: list[list[list[tuple[int, int]]]], ordered: bool) -> tuple[FileFacts, ...]:
    """Files of runs, in blocks of two entries."""
    found = []
    for number, runs in enumerate(files):
        with ExitStack() as stack:
            name = f"{number}.runs"
            writer = RunsWriter(open_store(str(folder)), name, stack, KEY, lasting=False, block=2, ordered=ordered)
            for run in runs:
                writer.write(np.array(sorted(run), KEY))
            found.append(writer.finish({}))
    return tuple(found)


@given(
    files=FILES,
    edges=st.one_of(st.integers(1, 9).map(equal_edges), st.sets(WORDS).map(lambda each: (*sorted({0, *each}),))),
    ordered=st.booleans(),
    at_once=st.integers(1, 9),
)
def test_each_range_has_the_blocks_that_reach_into_it(tmp_path_factory, files, edges, ordered, at_once):
    folder = tmp_path_factory.mktemp("runs")
    store, facts = open_store(str(folder)), written(folder, files, ordered)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_ranges, "_AT_ONCE", at_once)
        ranges = RunRanges("places", facts, edges).ready(store)
    whole = [open_runs(store, each) for each in facts]
    assert ranges.keys(store, []) == sum(each.keys for each in whole)
    assert RunRanges("none", facts).keys(store, whole) == ranges.keys(store, [])
    for number in range(len(edges)):
        low, high = ranges.ends(number)
        for own, found in zip(whole, ranges.of_range(store, number), strict=True):
            inside = [low <= each["last"] and each["first"] < high for each in own.blocks]
            assert found.blocks[list(own.blocks.dtype.names)].tolist() == own.blocks[inside].tolist()
            assert found.is_ordered == own.is_ordered or not len(own.blocks)
            assert [each.tolist() for each in found.entries()] == [
                each.tolist() for each in RunsFile(own.file, own.dtype, own.blocks[inside]).entries()
            ]
    forget_kept()


def test_the_tables_of_files_are_read_once_and_each_range_reads_the_catalogue_and_its_blocks(tmp_path):
    draw, slices, count = np.random.default_rng(3), 12, 20
    keys = [[[(int(each), 0) for each in draw.integers(0, END_OF_KEYS, 400, "u8")]] for _ in range(slices)]
    facts, store = written(tmp_path, keys, ordered=True), open_store(str(tmp_path))
    ranges = RunRanges("places", facts, equal_edges(count))
    with sweeping(Sweep()) as seen:
        ranges = ranges.ready(store)
    assert set(Counter(path for kind, path in seen.operations if kind == "open").values()) == {1}
    forget_kept()
    with sweeping(Sweep()) as seen:
        for number in range(count):
            for file in ranges.of_range(store, number):
                list(file.entries())
    done = Counter((kind, Path(path).suffix) for kind, path in seen.operations)
    assert done["open", ".runs"] == slices
    assert done["read", ".runs"] == slices * count, "neighbouring blocks are read at once, and no table"
    assert done["read", ""] <= 2 + 2 * count
    forget_kept()
