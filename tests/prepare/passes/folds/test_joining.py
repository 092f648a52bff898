"""Joining: rows of many small files go together, in their order, and each row still knows its file."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.prepare.passes.folds.from_slices import joined
from penstock.prepare.rows.rows import Rows, SetAside
from penstock.prepare.sources import Reading, SourceOptions
from tests.promises import workshop

SCHEMA = pa.schema([("x", pa.string())])


def reading(rows: int, size: int) -> Reading:
    return Reading(SCHEMA, ("x",), False, rows, size, ("text", "text"), (SourceOptions(), SourceOptions()))


def rows_of(source: int, name: str, texts: list[str]) -> Rows:
    batch = pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], schema=SCHEMA)
    return Rows(batch, source, (name,), np.arange(len(texts)) * 3, set_aside=(SetAside(name, 1),))


files = st.lists(st.tuples(st.integers(0, 1), st.lists(st.text("ab", max_size=9), max_size=5)), max_size=30)


@given(files=files, rows=st.integers(1, 40), size=st.integers(1, 400))
def test_the_same_rows_come_in_the_same_order_with_their_places(files, rows, size):
    every = [rows_of(source, f"{number}", texts) for number, (source, texts) in enumerate(files)]
    found = list(joined(iter(every), reading(rows, size)))
    assert [text for each in found for text in each.batch["x"].to_pylist()] == [t for _, texts in files for t in texts]
    places = [(each.source, each.path_of(n), int(each.ordinals[n])) for each in found for n in range(len(each))]
    assert places == [(each.source, each.paths[0], int(n)) for each in every for n in each.ordinals]
    assert [aside.reason for each in found for aside in each.set_aside] == [each.paths[0] for each in every]
    by_file = [(path, n) for each in found for path, own in each.by_file() for n in range(own.start, own.stop)]
    assert [path for path, _ in by_file] == [path for _, path, _ in places]


@given(files=files, rows=st.integers(1, 40), size=st.integers(1, 400))
def test_no_batch_is_larger_than_was_asked_for_unless_a_file_was(files, rows, size):
    every = [rows_of(source, f"{number}", texts) for number, (source, texts) in enumerate(files)]
    for each in joined(iter(every), reading(rows, size)):
        if len(each.paths) > 1:
            assert len(each) < 1.25 * rows + 1
            assert each.batch.nbytes < 1.25 * size + 16 * len(each)  # offsets


def test_what_is_left_of_joined_rows_keeps_its_files():
    (one,) = joined(iter([rows_of(0, name, ["a", "b", "c"]) for name in "pqr"]), reading(100, 1000))
    kept = one.keep(np.array([True, False, True, False, False, True, True, True, True]), "why")
    assert [kept.path_of(row) for row in range(len(kept))] == ["p", "p", "q", "r", "r", "r"]
    assert [(path, own.stop - own.start) for path, own in kept.by_file()] == [("p", 2), ("q", 1), ("r", 3)]
    assert one.line(4, "why")["file"] == "q"


def test_what_small_files_set_aside_is_written_in_the_order_of_files_and_rows(tmp_path: Path) -> None:
    """Also where a later step sets aside an earlier row, and however many files share a batch."""
    (tmp_path / "data").mkdir()
    for number in range(12):
        lines = [json.dumps({"n": row, "t": "x" * row}) for row in range(6)]
        lines.insert(number % 5, "{broken")
        (tmp_path / "data" / f"{number:02d}.jsonl").write_text("\n".join(lines) + "\n")
    filters = [{"filter": {"where": f"n != {n}", "keep": True}} for n in (4, 1)]
    job = {"input": str(tmp_path / "data"), "stages": [*filters, {"split": {"test": 0.3}}], "workers": 0}
    plan = penstock.plan({**job, "on_bad_input": "set_aside", "output": str(tmp_path / "out")})
    penstock.run(plan)
    written = workshop.bytes_of(tmp_path / "out")
    lines = [json.loads(line) for path in sorted((tmp_path / "out" / "rejected").iterdir()) for line in path.open()]
    assert len(lines) == 36
    assert all((one["file"], one["position"]) < (two["file"], two["position"]) for one, two in pairwise(lines))
    for size in (1, 100, 400):
        penstock.run(workshop.with_batches(plan, size), redo=True)
        assert workshop.bytes_of(tmp_path / "out") == written
