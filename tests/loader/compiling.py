"""Compiling: have every kernel compiled and kept, in a process that then ends.

A compiler leaves some 200 MB behind in its process, and tests of memory run in the processes that tests share.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import penstock
from tests.loader.making import FIELDS, Datasets


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        datasets = Datasets(Path(folder))
        kinds = [
            (datasets.pings, {"length": 100}),
            (datasets.pings, {"length": 100, "fill": "one_key"}),
            (datasets.events, {"length": 80, "fields": FIELDS}),
            (datasets.rows, {}),
            (datasets.ragged_rows, {"length": 60}),
            (datasets.kept_rows, {}),
            (datasets.kept_ragged_rows, {"length": 60}),
            (datasets.arrays, {"columns": ["features"]}),
        ]
        for path, options in kinds:
            for cache in (None, "disk"):
                with penstock.load(path, batch_size=8, cache=cache, **options) as loader:
                    next(loader)


if __name__ == "__main__":
    main()
