"""Rows of Parquet and Arrow with more text than memory has room for."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.prepare.sources.reading import large_rows
from penstock.prepare.sources.reading.large_rows import apart
from penstock.prepare.sources.slices import Segment
from tests.prepare.sources.reader import read
from tests.prepare.stages.rows import make_rows
from tests.promises import workshop

_TEXTS = ["short", "x" * 5000, "short too"]


def _parquet(path, rows_a_group):
    pq.write_table(pa.table({"n": [0, 1, 2], "text": _TEXTS}), path, row_group_size=rows_a_group)


def _arrow(path, rows_a_batch):
    table = pa.table({"n": [0, 1, 2], "text": _TEXTS})
    with pa.ipc.new_file(path, table.schema) as file:
        file.write_table(table, rows_a_batch)


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize(("name", "write"), [("a.parquet", _parquet), ("a.arrow", _arrow)])
def test_a_row_that_memory_has_no_room_for_is_set_aside_by_its_place_and_size(tmp_path, name, write, together):
    write(tmp_path / name, together)
    found = read(tmp_path / name, most_row_bytes=4000)
    assert [row["n"] for row in found.rows] == [0, 2]
    (aside,) = found.aside
    assert (aside["reason"], aside["position"]) == ("record too large for this memory", 1)
    assert "its text has 5," in aside["detail"]
    assert aside["detail"].endswith("and this memory allows a row of 4,000")
    assert [row["n"] for row in read(tmp_path / name, most_row_bytes=6000).rows] == [0, 1, 2]


def test_large_rows_have_batches_of_their_own_and_keep_their_places(monkeypatch):
    monkeypatch.setattr(large_rows, "LARGE_ROW", 10)
    texts = ["a", "b" * 20, "c" * 30, "d", "e" * 99, None, "f" * 11]
    rows = make_rows({"n": list(range(7)), "text": texts})
    segment = Segment(0, "a.parquet", "/a.parquet", "", 0, 1, 0, 7, 1)
    found = list(apart(rows, segment, most_bytes=50))
    assert [part.batch.column("n").to_pylist() for part in found] == [[0], [1], [2], [3], [], [5], [6]]
    assert [part.ordinals.tolist() for part in found] == [[0], [1], [2], [3], [], [5], [6]]
    assert [aside.kept[0]["position"] for part in found for aside in part.set_aside] == [4]


@pytest.mark.proof
def test_a_document_larger_than_a_quarter_of_memory_is_refused_by_name_without_being_read(tmp_path):
    """A footer tells how large a row is that has a row group of its own."""
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"text": ["x" * 110_000_000]}), tmp_path / "data" / "a.parquet", compression="zstd")
    job = workshop.write_job(tmp_path / "job.yaml", tmp_path / "data", stages=[], memory="400MB", workers=0)
    assert "and this memory allows a row of 100,000,000" in workshop.run(job).stdout
    workshop.run_well(job, "--set", "on_bad_input=set_aside")
    assert len(penstock.open(tmp_path / "out", "train")) == 0


_IN_LITTLE_MEMORY = """
import resource, sys
import subprocess
import sys

import pyarrow as pa
from tests.prepare.sources.reader import read, survey

survey(sys.argv[1])
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (64 << 20),) * 2)
try:
    print(len(read(sys.argv[1]).rows), "rows")
except MemoryError:
    print("out of memory")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of address space is Linux's")
@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl"])
def test_a_row_that_a_worker_has_no_memory_for_is_no_damage(tmp_path, name):
    """With `on_bad_input: set_aside` the row group would be missing, in a dataset that depends on memory."""
    text = "x" * (120 << 20)
    if name == "a.parquet":
        pq.write_table(pa.table({"text": ["short", text]}), tmp_path / name, compression="zstd")
    else:
        (tmp_path / name).write_text(f'{{"text": "short"}}\n{{"text": "{text}"}}\n')
    command = [sys.executable, "-c", _IN_LITTLE_MEMORY, str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == ["out of memory"], done.stderr
