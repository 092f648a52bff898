"""A small dataset of pings and loaders of it, for tests with the real torch, jax and grain (`make test-all`)."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.prepare.job.presets import PRESETS

# Before jax is imported, anywhere: four devices where there is one CPU.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

# Without the libraries, plain `pytest` passes by these tests; where CI forbids skipping, they fail.
_MISSING = [
    name
    for name in (
        "datasets",
        "grain",
        "jax",
        "megatron",
        "ray",
        "torch",
        "torchdata",
        "transformers",
        "trl",
        "zarr",
    )
    if importlib.util.find_spec(name) is None
]
collect_ignore_glob = ["test_*.py"] if _MISSING and not os.environ.get("PENSTOCK_NO_SKIPS") else []

Load = Callable[..., Any]


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """5,000 pings of 200 sources, some of them IPv6, some failed, grouped by source."""
    folder = tmp_path_factory.mktemp("pings")
    rng = np.random.default_rng(5)
    count, keys = 5000, 200
    names = np.array([f"10.1.{key >> 4}.{key}" if key % 5 else f"2001:db8::{key:x}" for key in range(keys)], object)
    sources = rng.integers(0, keys, count)
    rtt = rng.gamma(2, 20, count).astype(np.float32)
    rtt[rng.random(count) < 0.05] = -1
    pings = pa.table(
        {
            "src_addr": pa.array(names[sources], pa.string()),
            "event_time": pa.array(rng.integers(16 * 10**14, 17 * 10**14, count), pa.timestamp("us")),
            "dst_addr": pa.array(names[rng.integers(0, keys, count)], pa.string()),
            "ip_version": pa.array(np.where(sources % 5, 4, 6), pa.int8()),
            "rtt": pa.array(rtt, pa.float32()),
        }
    )
    pq.write_table(pings, folder / "pings.parquet")
    paths = {"input": str(folder / "pings.parquet"), "output": str(folder / "rows")}
    penstock.run({**paths, "stages": PRESETS["pings"].stages({}), "workers": 0, "memory": "1GB"})
    return folder / "rows"


@pytest.fixture
def load(dataset: Path) -> Iterator[Load]:
    """`penstock.load` of that dataset in small batches; what a test opens is closed after it."""
    opened = []

    def load(**options: Any) -> Any:
        opened.append(penstock.load(dataset, **{"batch_size": 8, "length": 128, "seed": 7, "workers": 2, **options}))
        return opened[-1]

    yield load
    for loader in opened:
        loader.close()


@pytest.fixture
def expected(load: Load) -> Callable[..., dict[str, np.ndarray]]:
    """Batch k as the loader computes it, alone."""
    loader = load(workers=0)
    return lambda number: {name: np.array(array) for name, array in loader.batch(number).items()}
