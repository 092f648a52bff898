"""Pairing: documents that share a band, two by two, whether the band fits in memory or not."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.base.stores import open_store
from penstock.prepare.passes.near import pairing
from penstock.prepare.passes.near.pairing import Counted, pairs_in
from penstock.prepare.passes.near.ranges import NUMBER_BITS, pieces_of
from penstock.prepare.passes.near.sign import BLOCK, RANKED
from penstock.prepare.stages.dedup.runs import RunsFile, RunsWriter, open_runs

KEY = 12_345


def crowded(folder: Path, counts: list[int], run: int = 1000) -> list[RunsFile]:
    """A file per slice with so many documents, all of which share one band. Ranks repeat."""
    files = []
    for number, count in enumerate(counts):
        with ExitStack() as stack:
            writer = RunsWriter(open_store(str(folder)), f"{number}", stack, RANKED, lasting=False, block=BLOCK)
            entries = np.zeros(count, RANKED)
            entries["high"], entries["number"] = KEY, np.arange(count)
            entries["rank"] = np.random.default_rng(number).integers(0, 50, count)
            for start in range(0, count, run):
                writer.write(entries[start : start + run])
            facts = writer.finish({})
        files.append(open_runs(open_store(str(folder)), facts))
    return files


def found_in(files: list[RunsFile]) -> tuple[set[tuple[int, int]], int, int, list[int]]:
    """Pairs, entries, pairs that were left out, and how many pairs came at a time."""
    counted = Counted()
    runs: list[np.ndarray[Any, Any]] = list(pairs_in(pieces_of(files, pairing._AT_ONCE), counted))
    pairs = {pair for run in runs for pair in run.tolist()}
    return pairs, counted.entries, counted.not_compared, [len(run) for run in runs]


def expected(files: list[RunsFile]) -> set[tuple[int, int]]:
    """Each document with the eight that rank first, and these with each other; equal ranks by position."""
    ranked = []
    for number, file in enumerate(files):
        for entries in file.entries():
            ranked += [(rank, number << int(NUMBER_BITS) | document) for _, document, rank in entries.tolist()]
    order = [document for _, document in sorted(ranked)]
    return {(later, first) for at, later in enumerate(order) for first in order[: min(at, 8)]}


@pytest.mark.parametrize("counts", [[5000], [1, 4000, 0, 999], [10] * 300, [9], [10]], ids=str)
def test_a_band_that_does_not_fit_in_memory_has_the_pairs_of_one_that_does(tmp_path, monkeypatch, counts):
    files = crowded(tmp_path, counts)
    whole = found_in(files)
    monkeypatch.setattr(pairing, "_AT_ONCE", 500)
    parts = found_in(files)
    assert whole[:3] == parts[:3]
    assert parts[0] == expected(files)
    further = max(0, sum(counts) - 9)
    assert (parts[1], parts[2]) == (sum(counts), further * (further + 1) // 2)


def test_one_slice_with_many_documents_of_a_band_is_read_in_parts(tmp_path, monkeypatch):
    """Lines that are very short, or a row group of a million rows, are one slice."""
    files = crowded(tmp_path, [40_000])
    monkeypatch.setattr(pairing, "_AT_ONCE", 2000)
    sizes = []
    own = pairing._known
    monkeypatch.setattr(pairing, "_known", lambda piece: sizes.append(len(found := own(piece))) or found)
    *_, at_a_time = found_in(files)
    assert sum(sizes) == 2 * 40_000
    assert max(sizes) <= 2000 + 1024
    assert max(at_a_time) <= 2 * 2000 + 1024
