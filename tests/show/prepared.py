"""Small datasets of every kind that a loader loads, prepared by a real run, and the events they were made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from penstock.prepare.job.presets import PRESETS

LONG = "2001:db8:1234:5678:9abc:def0:1234:1"  # as long as an address gets to be, nearly
TOKENS_IN_A_ROW, DOCUMENTS = 33, [0, 10, 25]


def prepare(folder: Path, columns: dict[str, Any], stages: list[Any], **keys: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "in.parquet")
    paths = {"input": str(folder / "in.parquet"), "output": str(folder / "out")}
    penstock.run({**paths, "stages": stages, "workers": 0, "memory": "1GB", **keys})
    return folder / "out"


def pings(count: int = 2000, keys: int = 40) -> dict[str, Any]:
    """Every third source has an IPv6 address, and every tenth ping failed."""
    rng = np.random.default_rng(1)
    source = rng.integers(0, keys, count)
    names = np.array([LONG[:-1] + f"{key:x}" if key % 3 == 0 else f"10.1.2.{key}" for key in range(keys)], object)
    rtt = np.where(np.arange(count) % 10, rng.gamma(2, 20, count), -1)
    return {
        "src_addr": pa.array(names[source], pa.string()),
        "event_time": pa.array(rng.integers(16 * 10**14, 17 * 10**14, count), pa.timestamp("us")),
        "dst_addr": pa.array([f"192.168.0.{each}" for each in rng.integers(0, 200, count)]),
        "ip_version": pa.array(np.where(source % 3, 4, 6), pa.int8()),
        "rtt": pa.array(rtt, pa.float32()),
    }


def make_pings(folder: Path, **keys: Any) -> Path:
    return prepare(folder, pings(), PRESETS["pings"].stages({"test": 0}), **keys)


def make_rows(folder: Path) -> Path:
    """Rows of tokens, packed before: three documents in each."""
    tokens = np.random.default_rng(2).integers(0, 50_000, (100, TOKENS_IN_A_ROW)).tolist()
    lists = {
        "tokens": pa.array(tokens, pa.list_(pa.int32(), TOKENS_IN_A_ROW)),
        "documents": pa.array([DOCUMENTS] * 100),
    }
    return prepare(folder, lists, [])


def make_uneven_rows(folder: Path) -> Path:
    tokens = [list(range(n % 30 + 2)) for n in range(100)]
    return prepare(folder, {"tokens": pa.array(tokens, pa.list_(pa.int32()))}, [])


def make_arrays(folder: Path) -> Path:
    x = np.random.default_rng(3).random((200, 4)).tolist()
    columns = {"x": pa.array(x, pa.list_(pa.float32(), 4)), "label": pa.array(range(200)), "name": ["a"] * 200}
    return prepare(folder, columns, [])


def make_requests(folder: Path) -> Path:
    """Events that are no pings."""
    count = 1000
    columns = {
        "who": pa.array([f"10.0.0.{each % 20}" for each in range(count)]),
        "at": pa.array([10**15 + 10**7 * each for each in range(count)], pa.timestamp("us")),
        "port": pa.array([8000 + each % 5 for each in range(count)], pa.int32()),
        "proto": pa.array([("tcp", "udp", "icmp")[each % 3] for each in range(count)]),
    }
    return prepare(folder, columns, [{"group": {"by": "who", "order": "at"}}])
