"""Ranges: the entries of many sorted runs come in order, in pieces of bounded size, however many runs there are."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.stores import open_store
from penstock.prepare.passes.near import ranges
from penstock.prepare.passes.near.pairing import PAIR
from penstock.prepare.passes.near.ranges import END, WORD, ordered_writer, pieces_of
from penstock.prepare.passes.near.sign import BAND
from penstock.prepare.stages.dedup.runs import RunsFile, RunsWriter, open_runs

WORDS = st.sampled_from([0, 1, 2, 2**32, 2**32 + 1, 2**63, 2**64 - 1])
RUNS = st.lists(st.lists(st.lists(st.tuples(WORDS, WORDS), max_size=12), max_size=3), max_size=4)


def ordered(folder: Path, runs: list[list[list[tuple[int, int]]]], block: int) -> list[RunsFile]:
    """Files of runs of entries with two words."""
    files = []
    for number, each in enumerate(runs):
        with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranges, "BLOCK", block)
            writer = ordered_writer(open_store(str(folder)), f"{number}", stack, PAIR)
            for run in each:
                writer.write(np.array(sorted(run), PAIR))
            facts = writer.finish({})
        files.append(open_runs(open_store(str(folder)), facts))
    return files


def banded(folder: Path, runs: list[np.ndarray[Any, Any]], block: int) -> list[RunsFile]:
    """Files of one run of keys each."""
    files = []
    for number, keys in enumerate(runs):
        with ExitStack() as stack:
            writer = RunsWriter(open_store(str(folder)), f"{number}", stack, BAND, lasting=False, block=block)
            entries = np.zeros(len(keys), BAND)
            entries["high"], entries["number"] = np.sort(keys), np.arange(len(keys))
            writer.write(entries)
            facts = writer.finish({})
        files.append(open_runs(open_store(str(folder)), facts))
    return files


@given(runs=RUNS, block=st.integers(1, 5), most=st.integers(1, 20), edges=st.tuples(WORDS, WORDS))
def test_pieces_have_every_entry_of_the_range_once_and_in_order(tmp_path_factory, runs, block, most, edges):
    files = ordered(tmp_path_factory.mktemp("runs"), runs, block)
    for low, high in ((0, END), (min(edges) * WORD, max(edges) * WORD)):
        found, end = [], low
        for piece in pieces_of(files, most, low, high):
            assert end <= piece.low < piece.high <= high
            end = piece.high
            entries, numbers = piece.read()
            assert len(entries) == len(numbers)
            assert len(entries) <= 2 * most or piece.high - piece.low == 1
            found += sorted(
                (int(first), int(second), int(number))
                for (first, second), number in zip(entries.tolist(), numbers, strict=True)
            )
        every = [(*entry, number) for number, each in enumerate(runs) for run in each for entry in run]
        assert found == sorted(entry for entry in every if low <= entry[0] * WORD + entry[1] < high)


@pytest.mark.parametrize("files", [1, 70, 300])
def test_pieces_are_bounded_and_few_however_many_runs_there_are(tmp_path, files):
    """A block of every run reaches over the end of every piece."""
    chance = np.random.default_rng(1)
    runs = [chance.integers(0, 2**64, 1200, "u8") for _ in range(files)]
    made = banded(tmp_path, runs, block=512)
    sizes = [len(piece.read()[0]) for piece in pieces_of(made, 4096)]
    assert sum(sizes) == 1200 * files
    assert max(sizes) <= 2 * 4096
    assert len(sizes) <= 2 + 4 * sum(sizes) // 4096


def test_a_key_of_many_entries_is_a_piece_by_itself_among_others_of_many_runs(tmp_path):
    """In every run it has most of a block, and other keys before and behind it."""
    chance = np.random.default_rng(2)
    runs = []
    for _ in range(80):
        keys = chance.integers(0, 2**64, 400, "u8")
        keys[:200] = 2**63 + 12345
        runs.append(keys)
    large = [piece for piece in pieces_of(banded(tmp_path, runs, block=512), 2048) if len(piece.read()[0]) > 2 * 2048]
    (piece,) = large
    assert piece.is_one_word
    assert set(piece.read()[0]["high"].tolist()) == {2**63 + 12345}
    for most in (1, 2048, 10**6):
        sizes = [len(each.read()[0]) for each in piece.parts(most)]
        assert sum(sizes) == 200 * 80
        assert max(sizes) <= most + 512


def test_few_blocks_are_read_twice(tmp_path, monkeypatch):
    """Where blocks are much smaller than pieces."""
    chance = np.random.default_rng(3)
    files = banded(tmp_path, [chance.integers(0, 2**64, 50_000, "u8") for _ in range(4)], block=64)
    read = []
    own = RunsFile.read
    monkeypatch.setattr(RunsFile, "read", lambda self, block: read.append(1) or own(self, block))
    assert sum(len(piece.read()[0]) for piece in pieces_of(files, 10_000)) == 200_000
    assert len(read) < 1.5 * sum(len(file.blocks) for file in files)


def test_pieces_of_a_range_hold_only_its_blocks(tmp_path):
    chance = np.random.default_rng(4)
    keys = [chance.integers(0, 2**64, 20_000, "u8") for _ in range(3)]
    files = banded(tmp_path, keys, block=64)
    low, high = 2**63, 2**63 + 2**59  # a part in 32
    (piece,) = pieces_of(files, 10**6, low * WORD, high * WORD)
    expected = sorted(key for each in keys for key in each.tolist() if low <= key < high)
    assert sorted(piece.read()[0]["high"].tolist()) == expected
    assert sum(len(file.blocks) for file in piece.files) <= len(expected) / 64 + 2 * len(files)
    assert sum(len(file.blocks) for file in files) == 3 * -(-20_000 // 64)
