"""Resume: an unfinished run of an earlier version says why its tasks are done again."""

from __future__ import annotations

import errno
import json
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import PenstockError
from penstock.base.faults import Sweep, sweeping
from penstock.base.stores import open_store
from penstock.prepare.ledger import read_rows, write_row
from penstock.prepare.rows.container import FORMAT
from penstock.prepare.run.resume import JOB


def test_another_format_of_the_files_between_passes_is_told(tmp_path):
    rows = pa.table({"key": [f"k{n % 7}" for n in range(100)], "value": range(100)})
    pq.write_table(rows, tmp_path / "rows.parquet")
    output = tmp_path / "out"
    job = {"input": str(tmp_path / "rows.parquet"), "output": str(output), "workers": 0, "memory": "2GB"}
    plan = penstock.plan({**job, "stages": [{"group": {"by": "key", "order": "value"}}]})
    with sweeping(Sweep()) as counted:
        penstock.run(plan, redo=True)
    with sweeping(Sweep(len(counted.operations) * 3 // 4, errno.EIO)), pytest.raises(PenstockError):
        penstock.run(plan, redo=True)
    known = json.loads((output / JOB).read_text())
    assert known.pop("container") == FORMAT
    (output / JOB).write_text(json.dumps(known))
    store = open_store(output)
    rows_left = read_rows(store).values()
    assert rows_left
    for row in rows_left:
        write_row(store, replace(row, fingerprint="of before"))
    told: list[str] = []
    penstock.run(plan, observe=lambda event: told.extend(event.get("changes", ())))
    assert told == [f"format of the files between passes 1 -> {FORMAT}"]
