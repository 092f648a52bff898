"""Evidence: removed documents of all slices, in the order of their positions, in files of bounded size."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from penstock.base.stores import open_store
from penstock.prepare.passes.near import evidence
from penstock.prepare.passes.near.evidence import write_evidence
from penstock.prepare.stages.dedup.near.removed import REMOVAL, REMOVED
from penstock.prepare.stages.dedup.parts import PartsWriter
from penstock.prepare.stages.dedup.runs import KEY, RunsWriter
from penstock.shards.columns import FileFacts
from penstock.shards.origins import HASH, Origins, Piece

ORIGINS = Origins(tuple(Piece(0, f"{number}.jsonl", 0) for number in range(4)))
DOCUMENTS = [20, 0, 1, 13]  # of each slice


def written(folder: Any, removed: list[tuple[int, int]]) -> FileFacts:
    """Removed documents, each a slice and a number in it, as `choose` leaves them. The first of a slice stays."""
    with ExitStack() as stack:
        runs = RunsWriter(open_store(str(folder)), "0.removed", stack, KEY, lasting=False)
        parts = PartsWriter(runs.file, REMOVED, REMOVAL, len(DOCUMENTS))
        for number, document in removed:
            first = number << ORIGINS.shift
            entry = (document, first + document, first, 0.75, document, 7)
            parts.add(np.array([number], "u8"), np.array([entry], REMOVAL))
        return runs.finish(parts.finish())


@pytest.mark.parametrize("most", [1, 3, 7, 1000])
def test_files_have_every_removed_document_once_and_in_order(tmp_path, monkeypatch, most):
    monkeypatch.setattr(evidence, "_ROWS_PER_FILE", most)
    removed = [(number, each) for number, count in enumerate(DOCUMENTS) for each in range(1, count)]
    file = written(tmp_path, [removed[each] for each in np.random.default_rng(1).permutation(len(removed))])
    survey: Any = SimpleNamespace(origins=ORIGINS, origin_columns=(HASH,))
    files = write_evidence(open_store(str(tmp_path)), [file], DOCUMENTS, survey)
    tables = [pq.read_table(tmp_path / each.file) for each in files]
    assert [table.num_rows for table in tables[:-1]] == [most] * (len(tables) - 1)
    lines = [line for table in tables for line in table.to_pylist()]
    assert [(line["file"], line["position"]) for line in lines] == [(f"{one}.jsonl", each) for one, each in removed]
    assert all(line["survivor_file"] == line["file"] and line["survivor_position"] == 0 for line in lines)
    assert [line["hash"] for line in lines] == [each for _, each in removed]
