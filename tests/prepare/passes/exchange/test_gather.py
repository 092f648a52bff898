"""Gather: a bucket comes in the same order, whether it is sorted at once or cut until it fits."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.base.errors import IntegrityError
from penstock.prepare.passes.exchange import merging as gather
from penstock.prepare.rows import order
from penstock.prepare.rows.order import Exchange
from tests.prepare.rows import making

ROWS = 1200
RNG = np.random.default_rng(7)
POSITION = {"position": np.arange(ROWS)}
LONG = "the same beginning of every text, longer than a word or two "

CASES: dict[str, tuple[dict[str, object], Exchange]] = {
    "many keys": (
        {"k": [f"key {n}" for n in RNG.integers(0, 600, ROWS)], "t": RNG.integers(0, 9, ROWS)},
        Exchange(("k",), ("t",)),
    ),
    "one giant key": ({"k": ["one"] * ROWS, "t": RNG.integers(0, 2**60, ROWS)}, Exchange(("k",), ("t",))),
    "one giant key among many": (
        {"k": [f"key {max(0, n)}" for n in RNG.integers(-300, 300, ROWS)], "t": RNG.integers(0, 500, ROWS)},
        Exchange(("k",), ("t",)),
    ),
    "all rows equal": ({"k": [5] * ROWS, "t": [1.5] * ROWS}, Exchange(("k",), ("t",))),
    "all keys null": ({"k": pa.nulls(ROWS, pa.string()), "t": RNG.integers(0, 99, ROWS)}, Exchange(("k",), ("t",))),
    "no order": ({"k": RNG.integers(0, 5, ROWS)}, Exchange(("k",))),
    "a text order column": (
        {"k": [1] * ROWS, "t": [LONG + str(n) * (n % 4) for n in RNG.integers(0, 2000, ROWS)]},
        Exchange(("k",), ("t",)),
    ),
    "several order columns": (
        {"k": RNG.integers(0, 2, ROWS), "a": RNG.integers(0, 3, ROWS), "b": [None, "x", "y"] * (ROWS // 3),
         "c": RNG.normal(size=ROWS)},
        Exchange(("k",), ("a", "b", "c")),
    ),
    "a composite key": (
        {"k": [f"{n}" for n in RNG.integers(0, 30, ROWS)], "j": RNG.integers(0, 30, ROWS), "t": [1, 2] * (ROWS // 2)},
        Exchange(("k", "j"), ("t",)),
    ),
    "times, the same but for a few": (
        {"k": ["one"] * ROWS, "t": np.where(RNG.random(ROWS) < 0.01, RNG.integers(0, 9, ROWS), 4)},
        Exchange(("k",), ("t",)),
    ),
    "floats with NaN and both zeros": (
        {"k": RNG.choice([0.0, -0.0, np.nan, 1.5], ROWS), "t": RNG.choice([0.0, -0.0, np.nan, -np.inf], ROWS)},
        Exchange(("k",), ("t",)),
    ),
}  # fmt: skip


def _tables(columns: dict[str, object], pieces: int) -> list[pa.Table]:
    table = pa.table({**columns, **POSITION})
    return [table.slice(n * ROWS // pieces, (n + 1) * ROWS // pieces - n * ROWS // pieces) for n in range(pieces)]


@pytest.mark.proof
@pytest.mark.parametrize("hashing", ["real", "constant"])
@pytest.mark.parametrize("name", CASES)
def test_a_bucket_that_is_cut_comes_in_the_same_order_as_one_that_is_not(tmp_path, monkeypatch, name, hashing):
    if hashing == "constant":
        monkeypatch.setattr(order, "hash_keys", lambda columns: np.full(len(columns[0]), 2**64 - 1, "u8"))
    columns, exchange = CASES[name]
    tables = _tables(columns, 3)
    names = making.spill(tmp_path, tables, exchange)
    whole = making.keys_and_rows(making.gathered(tmp_path, names, exchange, range(1), 1 << 30))
    table = pa.concat_tables(tables)
    assert whole[0] == making.values_of(table.take(making.in_order(table, exchange)))
    for sort_bytes in (12_000, 700):
        runs = making.gathered(tmp_path, names, exchange, range(1), sort_bytes)
        assert making.keys_and_rows(runs) == whole, f"sort_bytes {sort_bytes}"
        assert len(runs) > 1 or sort_bytes == 12_000
    assert not list(tmp_path.glob(".penstock/tmp/*")), "a scratch file is left"


def test_runs_hold_about_as_much_as_may_be_sorted_at_once(tmp_path):
    columns, exchange = CASES["many keys"]
    names = making.spill(tmp_path, _tables(columns, 3), exchange)
    total = sum(run.batch.num_rows for run in making.gathered(tmp_path, names, exchange, range(1), 1 << 30))
    runs = making.gathered(tmp_path, names, exchange, range(1), 5000)
    assert sum(run.batch.num_rows for run in runs) == total == ROWS
    assert len(runs) <= 60, "cut far finer than needed"
    assert max(run.batch.num_rows for run in runs) < ROWS / 2


def test_neighbouring_buckets_come_one_after_the_other_and_hold_every_row_once(tmp_path):
    columns, exchange = CASES["many keys"]
    names = making.spill(tmp_path, _tables(columns, 4), exchange, buckets=16, hold_bytes=4000)
    whole = making.keys_and_rows(making.gathered(tmp_path, names, exchange, range(16), 1 << 30))[0]
    one_by_one = [making.gathered(tmp_path, names, exchange, range(n, n + 1), 2000) for n in range(16)]
    assert [row for runs in one_by_one for row in making.keys_and_rows(runs)[0]] == whole
    assert len(whole) == len(set(whole)) == ROWS


def test_where_spills_are_cut_into_chunks_does_not_show(tmp_path):
    columns, exchange = CASES["one giant key among many"]
    seen = []
    for hold_bytes in (1, 5000, 1 << 20):
        names = making.spill(tmp_path / str(hold_bytes), _tables(columns, 2), exchange, hold_bytes=hold_bytes)
        seen.append(making.keys_and_rows(making.gathered(tmp_path / str(hold_bytes), names, exchange, range(1), 5000)))
    assert seen[0] == seen[1] == seen[2]


def test_a_bucket_that_no_row_fell_into_gives_nothing(tmp_path):
    exchange = Exchange(("k",))
    names = making.spill(tmp_path, [pa.table({"k": [1, 1, 1]})], exchange, buckets=64)
    filled = [n for n in range(64) if making.gathered(tmp_path, names, exchange, range(n, n + 1), 100)]
    assert len(filled) == 1


def test_few_samples_of_many_rows_still_cut_a_bucket(tmp_path, monkeypatch):
    """Edges come from a sample; where it misses the few rows that differ, the cut must still make progress."""
    monkeypatch.setattr(gather, "_SAMPLES_A_CHUNK", 1)
    columns, exchange = CASES["times, the same but for a few"]
    names = making.spill(tmp_path, _tables(columns, 3), exchange)
    whole = making.keys_and_rows(making.gathered(tmp_path, names, exchange, range(1), 1 << 30))
    assert making.keys_and_rows(making.gathered(tmp_path, names, exchange, range(1), 500)) == whole


def test_one_long_text_among_short_ones_does_not_cost_its_words_for_every_row(tmp_path):
    """A key of 40 kB has 5,000 words. Were each made for every row of its chunk, 1,000 rows would be 40 MB."""
    rows = 1000
    keys = [f"key {n % 100}" for n in range(rows)]
    keys[rows // 2] = "x" * 40_000
    exchange = Exchange(("k",), ("t",))
    names = making.spill(tmp_path, [pa.table({"k": keys, "t": range(rows)})], exchange)
    tracemalloc.start()
    try:
        runs = making.gathered(tmp_path, names, exchange, range(1), 20_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(run.batch.num_rows for run in runs) == rows
    assert peak < 10e6, f"{peak / 1e6:.0f} MB"


def test_progress_is_told_while_rows_are_read(tmp_path: Path):
    columns, exchange = CASES["many keys"]
    names = making.spill(tmp_path, _tables(columns, 2), exchange)
    told: list[int] = []
    making.gathered(tmp_path, names, exchange, range(1), 5000, told.append)
    assert sum(told) >= ROWS


def test_a_spill_that_is_whole_but_another_is_named(tmp_path: Path):
    columns, exchange = CASES["many keys"]
    first, second = making.spill(tmp_path, _tables(columns, 2), exchange)
    (tmp_path / first.file).write_bytes((tmp_path / second.file).read_bytes())
    with pytest.raises(IntegrityError, match=r"0\.spill"):
        making.gathered(tmp_path, [first, second], exchange, range(1), 1 << 30)
