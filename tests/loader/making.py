"""Small real datasets of every kind that a loader takes, prepared through `penstock.run`, once a session."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.prepare.job.presets import PRESETS

TOKEN_NAMES = [name + part for name in ("inputs", "targets") for part in ("_position", "_segmentation", "")]
FIELDS = {
    "number": {"int": 4},
    "at": "time",
    "big": "int",
    "protocol": {"category": ["tcp", "udp"]},
    "flags": {"category": [1, 0, 7]},
    "payload": {"bytes": 5},
    "delay": "float11",
    "peer": "ip",
}


def make_pings(count: int, keys: int, seed: int) -> pa.Table:
    """Pings as they come: two families of addresses, some missing or unreadable, failed and missing round trips."""
    rng = np.random.default_rng(seed)
    names = [f"10.{seed}.{key >> 8}.{key & 255}" if key % 5 else f"2001:db8:{seed}::{key:x}" for key in range(keys)]
    others = np.array([*names, "no address", "1.2.3"], object)
    sources = rng.zipf(1.5, count) % keys
    rtt = rng.gamma(2, 20, count).astype(np.float32)
    rtt[rng.random(count) < 0.05] = -1
    rtt[rng.random(count) < 0.01] = np.nan
    return pa.table(
        {
            "src_addr": pa.array(np.array(names, object)[sources], pa.string()),
            "event_time": pa.array(16 * 10**14 + rng.integers(0, 10**12, count), pa.timestamp("us")),
            "dst_addr": pa.array(
                others[rng.integers(0, len(others), count)], pa.string(), mask=rng.random(count) < 0.02
            ),
            "ip_version": pa.array(np.where(sources % 5, 4, 6), pa.int8(), mask=rng.random(count) < 0.02),
            "rtt": pa.array(rtt, pa.float32(), mask=rng.random(count) < 0.01),
        }
    )


def make_events(count: int, keys: int, seed: int) -> pa.Table:
    """Events of other columns: FIELDS says how they are encoded."""
    rng = np.random.default_rng(seed)

    def nulls() -> np.ndarray:
        return rng.random(count) < 0.05

    return pa.table(
        {
            "peer": pa.array([f"10.9.0.{key}" for key in rng.integers(0, keys, count)], pa.string()),
            "at": pa.array(rng.integers(0, 10**9, count), pa.timestamp("s"), mask=nulls()),
            "number": pa.array(np.arange(count), pa.int32()),
            "big": pa.array(rng.integers(0, 2**64 - 1, count, dtype="u8"), pa.uint64(), mask=nulls()),
            "protocol": pa.array(rng.choice(["tcp", "udp", "icmp"], count), pa.string(), mask=nulls()),
            "flags": pa.array(rng.integers(0, 4, count), pa.uint8(), mask=nulls()),
            "payload": pa.array(
                [bytes(rng.integers(0, 256, rng.integers(0, 9), "u1")) for _ in range(count)], pa.binary()
            ),
            "delay": pa.array(rng.normal(5, 9, count), pa.float64(), mask=nulls()),
        }
    )


def make_token_rows(rows: int, width: int, seed: int, documents: bool = True) -> pa.Table:
    """Rows of `width` tokens as uint16; with `documents`, where the documents of each begin."""
    rng = np.random.default_rng(seed)
    tokens = pa.array(rng.integers(0, 50_000, rows * width).astype("u2"))
    columns: dict[str, Any] = {"tokens": pa.FixedSizeListArray.from_arrays(tokens, width)}
    if documents:
        starts = [sorted(rng.choice(width, rng.integers(0, 4), replace=False).tolist()) for _ in range(rows)]
        columns["documents"] = pa.array(starts, pa.list_(pa.int32()))
    return pa.table(columns)


def make_ragged_rows(rows: int, most: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(0, 2**31 - 1, rng.integers(0, most)).tolist() for _ in range(rows)]
    return pa.table({"tokens": pa.array(tokens, pa.list_(pa.int32()))})


def make_kept_documents(count: int, most: int, seed: int) -> pa.Table:
    """Documents of tokens that are all different, each with an id of its source, a weight, and a mask of its tokens."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, most, count).tolist()
    ends = np.cumsum(sizes).tolist()
    tokens = [list(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
    return pa.table(
        {
            "tokens": pa.array(tokens, pa.list_(pa.int32())),
            "source": pa.array(rng.integers(1, 200, count), pa.uint8()),
            "weight": pa.array(rng.normal(size=count), pa.float64()),
            "mask": pa.array([(rng.random(size) < 0.5).tolist() for size in sizes], pa.list_(pa.bool_())),
            "score": pa.array([rng.normal(size=size).astype("f4") for size in sizes], pa.list_(pa.float32())),
        }
    )


KEPT = ["source", "weight", "mask", "score"]


def make_arrays(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    features = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=rows * 7).astype("f4")), 7)
    mask = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * 3) < 0.5), 3)
    return pa.table(
        {
            "features": features,
            "mask": mask,
            "label": pa.array(rng.integers(-5, 5, rows), pa.int16()),
            "weight": pa.array(rng.random(rows), pa.float64()),
            "is_won": pa.array(rng.random(rows) < 0.5),
            "name": pa.array([f"game {row}" for row in range(rows)]),
        }
    )


def make_visits(count: int, users: int, seed: int) -> pa.Table:
    """Visits of numbers alone: some users have few and some have many, and some values are null."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "user": pa.array(rng.zipf(1.4, count) % users, pa.int64()),
            "at": pa.array(rng.permutation(count), pa.timestamp("ms")),
            "seconds": pa.array(rng.gamma(2, 20, count).astype("f4"), pa.float32(), mask=rng.random(count) < 0.1),
            "page": pa.array(rng.integers(0, 900, count), pa.int16()),
            "bought": pa.array(rng.random(count) < 0.2),
        }
    )


def make_records(count: int, users: int, seed: int) -> pa.Table:
    """Visits as one record per user, with a vector for each visit."""
    visits = make_visits(count, users, seed).sort_by([("user", "ascending"), ("at", "ascending")])
    names, sizes = np.unique(visits["user"].to_numpy(), return_counts=True)
    offsets = pa.array(np.cumsum([0, *sizes]), pa.int32())
    points = np.random.default_rng(seed).normal(size=3 * count).astype("f4")
    lists = {name: visits[name].combine_chunks() for name in visits.column_names[1:]}
    lists["point"] = pa.FixedSizeListArray.from_arrays(pa.array(points), 3)
    columns = {name: pa.ListArray.from_arrays(offsets, values) for name, values in lists.items()}
    return pa.table({"user": names, **columns})


def prepare(folder: Path, table: pa.Table, stages: list[Any], **keys: Any) -> Path:
    """The table through a job; where it lies."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "input.parquet", row_group_size=max(1, table.num_rows // 3))
    job = {"input": str(folder / "input.parquet"), "output": str(folder / "out"), "stages": stages}
    penstock.run({**job, "workers": 0, "memory": "1GB", "slice_size": "40kB", **keys})
    return folder / "out"


def prepare_pings(folder: Path, count: int = 4000, keys: int = 150, seed: int = 5, **keys_of_job: Any) -> Path:
    """Records of at most 4 kB, so that keys with many events have several, and a handful of shards."""
    stages = PRESETS["pings"].stages({"max_record": "4kB"})
    return prepare(folder, make_pings(count, keys, seed), stages, **keys_of_job)


def prepare_events(folder: Path) -> Path:
    return prepare(folder, make_events(1500, 40, 6), PRESETS["events"].stages({"by": "peer", "order": "at", "test": 0}))


GROUP_BY_USER: list[Any] = [{"group": {"by": "user", "order": "at"}}]


def _packed(length: int, **options: Any) -> list[Any]:
    return [{"pack": {"length": length, "keep": KEPT, **options}}]


SPLIT_ROWS: list[Any] = [{"split": {"test": 0.1}}]


class Datasets:
    """Paths of datasets by name, each prepared when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> Path:
        made = {
            "pings": prepare_pings,
            "more_pings": lambda folder: prepare_pings(folder, count=1500, keys=60, seed=8),
            "events": prepare_events,
            "rows": lambda folder: prepare(folder, make_token_rows(700, 65, 1), []),
            "more_rows": lambda folder: prepare(folder, make_token_rows(300, 65, 2), []),
            "plain_rows": lambda folder: prepare(folder, make_token_rows(200, 33, 3, documents=False), []),
            "ragged_rows": lambda folder: prepare(folder, make_ragged_rows(200, 60, 4), []),
            "kept_rows": lambda folder: prepare(folder, make_kept_documents(300, 90, 9), _packed(33)),
            "kept_ragged_rows": lambda folder: prepare(
                folder, make_kept_documents(300, 30, 9), _packed(33, method="best_fit")
            ),
            "visits": lambda folder: prepare(folder, make_records(4000, 90, 3), [], slice_size="10kB"),
            "more_visits": lambda folder: prepare(folder, make_records(1500, 40, 4), []),
            "grouped_visits": lambda folder: prepare(folder, make_visits(4000, 90, 3), GROUP_BY_USER),
            "arrays": lambda folder: prepare(folder, make_arrays(500, 7), []),
        }[name]
        path = made(self._folder / name)
        setattr(self, name, path)
        return path


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Datasets:
    return Datasets(tmp_path_factory.mktemp("datasets"))


def copied(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in batch.items()}


def hash_of(batch: Mapping[str, np.ndarray]) -> str:
    """Names, types, shapes and bytes."""
    found = hashlib.sha256()
    for name, array in batch.items():
        found.update(f"{name} {array.dtype.str} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> bool:
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    return True
