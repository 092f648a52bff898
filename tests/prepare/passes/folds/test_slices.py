"""Slices: the order in which workers are given them."""

from __future__ import annotations

import gzip
from pathlib import Path
from random import Random

import penstock
from penstock.base.events import Event


def test_a_large_file_that_cannot_be_cut_is_read_first(tmp_path: Path) -> None:
    """At the end of a pass, it would leave the other workers idle. The output has the order of the files."""
    random = Random(0)
    for name, count in (("a", 100), ("b", 300), ("c", 100), ("d", 5_000)):
        lines = "".join(f'{{"name": "{random.randbytes(16).hex()}"}}\n' for _ in range(count))
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), 1))
    seen: list[Event] = []
    job = {"input": f"{tmp_path}/*.gz", "output": str(tmp_path / "out"), "slice_size": "1KB", "workers": 1}
    manifest = penstock.run(job, observe=seen.append)
    assert [each["rows"] for each in seen if each["event"] == "task"] == [5_000, 100, 300, 100]
    assert [shard.records for shard in manifest.splits["train"]] == [100, 300, 100, 5_000]
