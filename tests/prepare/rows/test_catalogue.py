"""Catalogue: the tables of many spills in the order of parts; each part's chunks come back, and damage is named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.base.errors import IntegrityError
from penstock.base.faults import Sweep, sweeping
from penstock.base.stores import open_store
from penstock.prepare.rows import catalogue
from penstock.prepare.rows.catalogue import count_by_part
from penstock.prepare.rows.container import Stored
from penstock.prepare.rows.kept import forget_kept
from penstock.prepare.rows.order import Exchange
from penstock.prepare.rows.spill import read_chunks
from penstock.prepare.rows.spills import chunks_of_part, write_places
from penstock.shards.columns import FileFacts
from tests.prepare.rows import making

PARTS, SPILLS = 30, 12


@pytest.fixture
def spills(tmp_path: Path) -> list[FileFacts]:
    draw = np.random.default_rng(7)
    tables = [pa.table({"k": draw.integers(0, 90, size), "v": np.arange(size)}) for size in [0, *range(1, SPILLS)] * 7]
    return making.spill(tmp_path, tables, Exchange(("k",)), PARTS, hold_bytes=100)


@pytest.mark.parametrize("group_bytes", [1, 2000, 1 << 20])
def test_each_part_has_the_chunks_that_the_spills_own_indexes_name(tmp_path, monkeypatch, spills, group_bytes):
    monkeypatch.setattr(catalogue, "_GROUP_BYTES", group_bytes)
    store = open_store(str(tmp_path))
    written = write_places(store, "places", spills, PARTS)
    counted = count_by_part(store, "places").tolist()
    for part in range(PARTS):
        own = [read_chunks(Stored(store, each.file), part, each.digest) for each in spills]
        expected = [(chunks.file.source.name, batch.to_pylist()) for chunks in own for batch in chunks.read()]
        found = chunks_of_part(store, written, spills, part)
        assert expected == [(chunks.file.source.name, batch.to_pylist()) for chunks in found for batch in chunks.read()]
        assert counted[part] == sum(len(rows) for _, rows in expected)
        assert sum(each.decoded_bytes for each in own) == sum(each.decoded_bytes for each in found)


def test_its_bytes_are_the_same_whoever_writes_it(tmp_path, spills):
    store = open_store(str(tmp_path))
    for name in ("one", "other"):
        write_places(store, name, spills, PARTS)
    assert store.read("one") == store.read("other")


def test_a_job_without_rows_has_a_catalogue_too(tmp_path):
    store = open_store(str(tmp_path))
    written = write_places(store, "places", [], 3)
    assert (chunks_of_part(store, written, [], 2), count_by_part(store, "places").tolist()) == ([], [0, 0, 0])


def test_a_flipped_byte_in_it_is_named_or_decides_nothing(tmp_path, spills):
    store = open_store(str(tmp_path))
    written = write_places(store, "places", spills, PARTS)
    expected = [_rows(store, written, spills, part) for part in range(PARTS)]
    path, named = tmp_path / "places", 0
    whole = path.read_bytes()
    for position in range(0, len(whole), 97):
        forget_kept()  # as in a process of its own
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        try:
            assert [_rows(store, written, spills, part) for part in range(PARTS)] == expected, position
        except IntegrityError as error:
            assert str(path) in error.where
            named += 1
    assert named > len(whole) / 97 / 2


def _rows(store, written, spills, part):
    return [batch.to_pylist() for chunks in chunks_of_part(store, written, spills, part) for batch in chunks.read()]


def test_a_spill_is_opened_once_by_all_tasks_of_a_process_and_its_index_is_not_read(tmp_path, spills):
    store = open_store(str(tmp_path))
    written = write_places(store, "places", spills, PARTS)
    with sweeping(Sweep()) as seen:
        rows = [_rows(store, written, spills, part) for part in range(PARTS)]
    opened = Counter(path for kind, path in seen.operations if kind == "open")
    assert set(opened.values()) == {1}
    chunks = sum(len(part) for part in rows)
    reads = sum(kind == "read" and path.endswith(".spill") for kind, path in seen.operations)
    assert reads == chunks
    forget_kept()


@pytest.mark.parametrize("most", [0, 5])
def test_further_files_than_may_be_open_are_opened_for_each_use(tmp_path, monkeypatch, spills, most):
    monkeypatch.setattr("penstock.prepare.rows.kept._MOST_FILES", most)
    store = open_store(str(tmp_path))
    written = write_places(store, "places", spills, PARTS)
    with sweeping(Sweep()) as seen:
        few = [_rows(store, written, spills, part) for part in range(PARTS)]
    opened = Counter(path for kind, path in seen.operations if kind == "open")
    assert sum(count == 1 for count in opened.values()) >= most
    assert max(opened.values()) > 5
    monkeypatch.undo()
    forget_kept()
    assert few == [_rows(store, written, spills, part) for part in range(PARTS)]
    forget_kept()
