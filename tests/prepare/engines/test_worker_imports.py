"""Worker: it imports what its tasks need. What only the driver needs would take memory from every worker."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock

_DRIVERS = (
    *("pydantic", "yaml", "rich", "typer", "email", "importlib.metadata", "zipfile", "penstock.show"),
    *("penstock.prepare.job", "penstock.prepare.plan", "penstock.prepare.run", "penstock.prepare.survey.taking"),
)
_STAGE = """
import sys
from pathlib import Path

def told(batch):
    names = [name for name in {drivers!r} if name in sys.modules]
    Path({folder!r}, "told").write_text(" ".join(names))
    return batch
"""


@pytest.mark.proof
@pytest.mark.parametrize(
    "stages",
    [
        pytest.param([], id="map"),
        pytest.param([{"filter": "value > 1.5"}, {"split": {"by": "key", "test": 0.1}}], id="filter and split"),
        pytest.param([{"normalize": {"columns": ["value"]}}], id="fit"),
        pytest.param([{"group": {"by": "key", "order": "value"}}], id="exchange"),
        pytest.param([{"dedup": {"column": "key"}}], id="match"),
    ],
)
def test_a_worker_imports_nothing_that_only_the_driver_needs(tmp_path, monkeypatch, stages):
    module = f"telling_{tmp_path.name}"  # a module is imported once
    (tmp_path / f"{module}.py").write_text(_STAGE.format(drivers=_DRIVERS, folder=str(tmp_path)))
    monkeypatch.syspath_prepend(tmp_path)
    rows = pa.table({"key": [f"k{n % 7}" for n in range(100)], "value": [float(n) for n in range(100)]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    job = {"input": str(tmp_path / "rows.parquet"), "output": str(tmp_path / "out"), "workers": 1, "memory": "1GB"}
    penstock.run({**job, "stages": [*stages, f"{module}:told"]})
    assert (tmp_path / "told").read_text() == ""
