"""Spill: rows put down in parts come back part by part, in order; damage is named."""

from __future__ import annotations

import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.errors import IntegrityError, PenstockError
from penstock.base.files import ReadFile
from penstock.base.stores import open_store
from penstock.base.stores.local import LocalStore
from penstock.prepare.rows import spill as spill_module
from penstock.prepare.rows.container import ContainerWriter, Stored
from penstock.prepare.rows.spill import SpillWriter, read_chunks, read_table, with_codes
from tests.prepare.rows import making


def _write(root: Path, batches: list[pa.RecordBatch], numbers: list[np.ndarray], parts: int, hold_bytes: int) -> Path:
    folder = open_store(str(root))
    with folder.commit("a.spill") as file:
        writer = SpillWriter(ContainerWriter(file), parts, hold_bytes)
        for batch, number in zip(batches, numbers, strict=True):
            writer.write(with_codes(batch), number.astype("u2"))
        writer.finish()
    return root / "a.spill"


@st.composite
def cases(draw: Any) -> tuple[list[pa.RecordBatch], list[np.ndarray], int]:
    kinds = draw(st.lists(st.sampled_from(sorted(making.VALUES)), min_size=1, max_size=3))
    parts = draw(st.integers(1, 5))
    batches, numbers = [], []
    for _ in range(draw(st.integers(0, 3))):
        rows = draw(st.integers(1, 12))
        arrays = [draw(making.columns(rows, kind)) for kind in kinds]
        batches.append(pa.RecordBatch.from_arrays(arrays, names=[f"c{n}" for n in range(len(kinds))]))
        numbers.append(np.array(draw(st.lists(st.integers(0, parts - 1), min_size=rows, max_size=rows)), "u2"))
    return batches, numbers, parts


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    case=cases(),
    hold_bytes=st.sampled_from([0, 200, 1 << 20]),
    chunk_bytes=st.sampled_from([1, 60, 1 << 20]),
    places=st.sampled_from([1, 20, 1 << 18]),
)
def test_rows_come_back_by_part_and_in_the_order_they_were_written(
    tmp_path_factory, monkeypatch, case, hold_bytes, chunk_bytes, places
):
    batches, numbers, parts = case
    monkeypatch.setattr(spill_module, "_CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(spill_module, "_PLACES", places)
    path = _write(tmp_path_factory.mktemp("spill"), batches, numbers, parts, hold_bytes)
    rows = [(int(part), row) for batch, of in zip(batches, numbers, strict=True)
            for part, row in zip(of, making.values_of(batch), strict=True)]  # fmt: skip
    for part in range(parts):
        found = [row for batch in making.rows_of_parts(path, range(part, part + 1)) for row in making.values_of(batch)]
        assert found == [row for of, row in rows if of == part]
    file = Stored(open_store(path.parent), path.name)
    entries, bounds = read_table(file, "")
    counted = [int(entries["count"][first:last].sum()) for first, last in itertools.pairwise(bounds.tolist())]
    found = [int(read_chunks(file, part).entries["count"].sum()) for part in range(parts)]
    assert counted == found == [sum(1 for of, _ in rows if of == part) for part in range(parts)]


def test_a_part_with_nothing_but_nulls_comes_back(tmp_path):
    batch = pa.record_batch({"text": pa.array([None, None], pa.string()), "n": [1, 2]})
    path = _write(tmp_path, [batch], [np.zeros(2, "u2")], 1, 1 << 20)
    assert making.values_of(next(making.rows_of_parts(path, range(1)))) == ["(None, 1)", "(None, 2)"]


def test_a_dictionary_with_nulls_among_its_values_comes_back(tmp_path):
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.int8()), pa.array(["a", None]))
    path = _write(tmp_path, [pa.record_batch({"d": codes})], [np.zeros(3, "u2")], 1, 1 << 20)
    assert making.values_of(next(making.rows_of_parts(path, range(1)))) == ["('a',)", "(None,)", "(None,)"]


def test_columns_of_every_shape_come_back_as_they_were(tmp_path):
    rows = 40
    columns = {
        "list": pa.array([["a", "b"], [], None, [None]] * 10),
        "struct": pa.array([{"x": n, "y": str(n % 3)} for n in range(rows)]),
        "map": pa.array([[("k", 1)]] * rows, pa.map_(pa.string(), pa.int64())),
        "fixed list": pa.array([[1, 2], None] * 20, pa.list_(pa.int32(), 2)),
        "decimal": pa.array([Decimal("1.50"), None] * 20),
        "null": pa.nulls(rows),
        "empty text": pa.array([""] * rows),
        "extension": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(range(16))] * rows, pa.binary(16))),
        "half": pa.array(np.arange(rows).astype("f2")),
        "codes": pa.array(["x", None, "yy", ""] * 10).dictionary_encode(),
        "codes of numbers": pa.array([5, 7] * 20).dictionary_encode(),
    }
    batch, numbers = pa.record_batch(columns), np.arange(rows) % 3
    path = _write(tmp_path, [batch, batch], [numbers, numbers], 3, 1 << 20)
    for part in range(3):
        found = list(making.rows_of_parts(path, range(part, part + 1)))
        mine = batch.take(pa.array(np.flatnonzero(numbers == part))).to_pylist()
        assert [row for each in found for row in each.to_pylist()] == mine * 2
        assert {each.schema for each in found} == {with_codes(batch).schema}


def test_a_part_of_many_chunks_is_read_with_two_openings_of_its_file(tmp_path):
    class Counting(LocalStore):
        def open(self, name: str) -> ReadFile:
            opened.append(name)
            return super().open(name)

    batch, opened = pa.record_batch({"n": np.arange(1000)}), []
    _write(tmp_path, [batch] * 20, [np.zeros(1000, "u2")] * 20, 1, 0)
    chunks = read_chunks(Stored(Counting(str(tmp_path)), "a.spill"), 0)
    assert len(list(chunks.read())) == 20
    assert len(opened) == 2, "for the index, and for the chunks"


def test_a_sliced_batch_is_written_as_the_rows_it_shows(tmp_path):
    batch = pa.record_batch({"text": pa.array([f"t{n % 7}" for n in range(1000)]), "n": range(1000)}).slice(300, 5)
    path = _write(tmp_path, [batch], [np.array([1, 0, 1, 0, 1])], 2, 0)
    assert making.values_of(next(making.rows_of_parts(path, range(1, 2)))) == making.values_of(batch.take([0, 2, 4]))
    assert path.stat().st_size < 4000, "what the slice does not show is written too"


def test_a_spill_of_no_rows_has_parts_of_no_rows(tmp_path):
    path = _write(tmp_path, [], [], 3, 100)
    assert list(making.rows_of_parts(path, range(3))) == []


def test_one_chunk_holds_about_a_mebibyte_however_many_rows_a_part_has(tmp_path):
    batch = pa.record_batch({"n": np.arange(1_000_000)})
    path = _write(tmp_path, [batch], [np.zeros(1_000_000, "u2")], 1, 1 << 30)
    sizes = [chunk.nbytes for chunk in making.rows_of_parts(path, range(1))]
    assert len(sizes) >= 8
    assert max(sizes) <= 1.01 * (1 << 20)


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    rng = np.random.default_rng(5)
    batches = [pa.record_batch({"k": [f"key {n}" for n in rng.integers(0, 40, 300)], "t": rng.integers(0, 99, 300)})
               for _ in range(3)]  # fmt: skip
    return _write(tmp_path_factory.mktemp("written"), batches, [rng.integers(0, 8, 300) for _ in range(3)], 8, 1)


def _everything(path: Path) -> list[str]:
    found = []
    for part in range(8):
        for batch in making.rows_of_parts(path, range(part, part + 1)):
            found += [f"{part} {row}" for row in making.values_of(batch)]
    return found


def _flip(path: Path, position: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def test_a_flipped_bit_anywhere_in_a_spill_is_named_or_changes_nothing_that_is_read(written, tmp_path):
    """Also in the index, where a flip could hand a chunk to the part next to it and no count would differ."""
    expected = _everything(written)
    path = tmp_path / "copy.spill"
    path.write_bytes(written.read_bytes())
    size = path.stat().st_size
    spots = {*range(0, size, max(1, size // 100)), *range(size - 8 * 9 - 24 - 40 * 30, size, 3), size - 1}
    silent, unnamed = [], []
    for position in sorted(spots):
        bit = position % 8
        _flip(path, position, bit)
        try:
            if _everything(path) != expected:
                silent.append((position, bit))
        except IntegrityError as error:
            assert path.name in str(error)
        except Exception as error:  # the test is that there is none
            unnamed.append((position, bit, repr(error)[:80]))
        _flip(path, position, bit)
    told = f"of {len(spots)} bits, in a file of {size} bytes: silent {silent[:5]}, unnamed {unnamed[:5]}"
    assert (len(silent), len(unnamed)) == (0, 0), told


@pytest.mark.parametrize("left", [0, 1, 23, 24, 100, 5000])
def test_a_spill_that_breaks_off_is_named(written, tmp_path, left):
    path = tmp_path / "short.spill"
    path.write_bytes(written.read_bytes()[:left])
    with pytest.raises(PenstockError, match=r"short\.spill"):
        _everything(path)


def test_a_file_that_is_no_spill_is_named(tmp_path):
    path = tmp_path / "notes.spill"
    path.write_text("years of work " * 100)
    with pytest.raises(IntegrityError, match=r"notes\.spill"):
        _everything(path)
