"""Leftovers: what killed writers have left is gone when a dataset is finished, whoever left it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

import penstock


def test_an_unfinished_file_of_another_machine_is_gone_when_the_dataset_is_finished(tmp_path):
    pq.write_table(pa.table({"value": range(10)}), tmp_path / "rows.parquet")
    left = tmp_path / "out" / ".penstock" / "tmp" / "0123456789ab-0011223344556677-x"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half of a shard")
    penstock.run({"input": str(tmp_path / "rows.parquet"), "output": str(tmp_path / "out"), "workers": 0})
    assert not left.parent.exists()
