"""Make events: a seed -> heavy-tailed, unsorted network measurements as Parquet, the same bytes for the same options.

    python benchmarks/make_events.py --events 20_000_000 --output /scratch/events-20M

Columns: src_addr string, event_time timestamp[us], dst_addr string, ip_version int8, rtt float32. The share of a key
goes with 1/rank, and every key has at least one event; rows are in random order within and across files; one key in
five is IPv6; 3% of rtt are -1 (failed) and 1% null. Text is in canonical form. One file of rows is held at a time.

Compression is snappy, and a dictionary page ends at 1 MiB, as pyarrow writes by default: from about 60,000 keys in a
row group on, the rest of src_addr is plain text. `--dictionary-limit` of some MiB keeps it all in the dictionary.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

EVENTS_PER_FILE = 5_000_000
FIRST_TIME = 1_700_000_000 * 10**6
TIME_SPAN = 30 * 86_400 * 10**6
IPV6_SHARE = 0.2
SCHEMA = pa.schema(
    [
        ("src_addr", pa.string()),
        ("event_time", pa.timestamp("us")),
        ("dst_addr", pa.string()),
        ("ip_version", pa.int8()),
        ("rtt", pa.float32()),
    ]
)

Integers = npt.NDArray[np.integer]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    events: int
    keys: int
    files: int
    row_group: int = 1_000_000
    half_in_one_key: bool = False
    dictionary_limit: int = 1 << 20
    seed: int = 0


def make_recipe(events: int, keys: int | None = None, files: int | None = None, **others: Any) -> Recipe:
    keys = keys or max(2, events // 100)
    files = files or max(1, round(events / EVENTS_PER_FILE))
    if not 2 <= keys <= events // 2:
        raise SystemExit(f"--keys {keys:,} needs to be between 2 and half of --events {events:,}")
    return Recipe(events=events, keys=keys, files=files, **others)


def make_events(recipe: Recipe, folder: Path) -> None:
    """Write the files, then _recipe.json: where it stands and says the same, nothing is made again."""
    done = folder / "_recipe.json"
    if done.exists() and json.loads(done.read_text()) == asdict(recipe):
        return
    folder.mkdir(parents=True, exist_ok=True)
    done.unlink(missing_ok=True)
    for old in folder.glob("*.parquet"):
        old.unlink()
    rng = np.random.default_rng(recipe.seed)
    sources = Addresses(recipe.keys, rng)
    destinations = Addresses(min(max(recipe.keys // 10, 2_000), 50_000), rng)
    remaining = _events_per_key(recipe, rng)
    for number in range(recipe.files):
        size = int(remaining.sum()) // (recipe.files - number)
        # Dealt without replacement, so that the files add up to exactly the counts above.
        dealt = rng.multivariate_hypergeometric(remaining, size, method="marginals")
        remaining -= dealt
        _write_file(folder / f"{number:05d}.parquet", dealt, sources, destinations, recipe, number)
    done.write_text(json.dumps(asdict(recipe)))


class Addresses:
    """Distinct addresses as text, and of which family each is. Rank 0 is the most frequent one."""

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        self.is_ipv6 = rng.random(count) < IPV6_SHARE
        self.is_ipv6[:2] = False, True  # neither family is ever empty
        ipv6_count = int(self.is_ipv6.sum())
        self.texts = np.empty(count, dtype=object)
        self.texts[~self.is_ipv6] = _ipv4_texts(count - ipv6_count, rng)
        self.texts[self.is_ipv6] = _ipv6_texts(ipv6_count, rng)
        self.array = pa.array(self.texts, pa.string())
        self.ipv4_ranks = np.flatnonzero(~self.is_ipv6)
        self.ipv6_ranks = np.flatnonzero(self.is_ipv6)


def _ipv4_texts(count: int, rng: np.random.Generator) -> list[str]:
    packed = _distinct(count, 1 << 24, 224 << 24, rng).astype(">u4").tobytes()
    return [socket.inet_ntop(socket.AF_INET, packed[at : at + 4]) for at in range(0, len(packed), 4)]


def _ipv6_texts(count: int, rng: np.random.Generator) -> list[str]:
    """Distinct /48 networks; half of the hosts are a small number, whose zeros the text folds into `::`."""
    groups = np.zeros((count, 8), dtype=">u2")
    network = _distinct(count, 0, 1 << 32, rng)
    groups[:, 0] = rng.choice([0x2001, 0x2400, 0x2600, 0x2A00], count)
    groups[:, 1] = network >> 16
    groups[:, 2] = network & 0xFFFF
    wide = rng.random(count) < 0.5
    groups[wide, 3:] = rng.integers(0, 1 << 16, (int(wide.sum()), 5))
    groups[~wide, 7] = rng.integers(1, 1 << 8, int((~wide).sum()))
    packed = groups.tobytes()
    return [socket.inet_ntop(socket.AF_INET6, packed[at : at + 16]) for at in range(0, len(packed), 16)]


def _distinct(count: int, low: int, high: int, rng: np.random.Generator) -> Integers:
    found = np.unique(rng.integers(low, high, count + count // 10 + 100))
    while len(found) < count:
        found = np.unique(np.concatenate([found, rng.integers(low, high, count)]))
    return rng.permutation(found)[:count]


def _events_per_key(recipe: Recipe, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """One each, the rest by 1/rank. With `half_in_one_key` the first has half of all and is not in the draw."""
    counts = np.ones(recipe.keys, dtype=np.int64)
    weights = 1 / np.arange(1, recipe.keys + 1)
    if recipe.half_in_one_key:
        counts[0] = recipe.events // 2
        weights[0] = 0
    counts += rng.multinomial(recipe.events - int(counts.sum()), weights / weights.sum())
    return counts


def _write_file(
    path: Path, dealt: Integers, sources: Addresses, destinations: Addresses, recipe: Recipe, number: int
) -> None:
    rng = np.random.default_rng([recipe.seed, number])
    keys = np.repeat(np.arange(len(dealt), dtype=np.int32), dealt)
    rng.shuffle(keys)
    beside = path.with_suffix(".partial")
    with pq.ParquetWriter(
        beside, SCHEMA, compression="snappy", dictionary_pagesize_limit=recipe.dictionary_limit
    ) as writer:
        for start in range(0, len(keys), recipe.row_group):
            rows = _measurements(keys[start : start + recipe.row_group], sources, destinations, rng)
            writer.write_table(rows, row_group_size=recipe.row_group)
    os.replace(beside, path)


def _measurements(keys: Integers, sources: Addresses, destinations: Addresses, rng: np.random.Generator) -> pa.Table:
    count = len(keys)
    is_ipv6 = sources.is_ipv6[keys]
    targets = np.where(
        is_ipv6, _heavy_tail(destinations.ipv6_ranks, count, rng), _heavy_tail(destinations.ipv4_ranks, count, rng)
    )
    rtt = rng.gamma(2, 20, count).astype(np.float32)
    fate = rng.random(count)
    rtt[fate < 0.03] = -1
    columns = [
        sources.array.take(pa.array(keys)),
        pa.array(rng.integers(FIRST_TIME, FIRST_TIME + TIME_SPAN, count), pa.timestamp("us")),
        destinations.array.take(pa.array(targets)),
        pa.array(np.where(is_ipv6, 6, 4).astype(np.int8)),
        pa.array(rtt, mask=fate > 0.99),
    ]
    return pa.table(columns, schema=SCHEMA)


def _heavy_tail(ranks: Integers, count: int, rng: np.random.Generator) -> Integers:
    """`count` picks: log-uniform, so rank r has the share log(1 + 1/r), which is about 1/r."""
    picks = np.exp(rng.random(count) * np.log(len(ranks) + 1)).astype(np.int64) - 1
    return ranks[np.minimum(picks, len(ranks) - 1)]  # where rounding reached the upper end


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--output", required=True)
    options.add_argument("--events", type=int, required=True)
    options.add_argument("--keys", type=int, help="default: a hundredth of the events")
    options.add_argument("--files", type=int, help="default: about one for 5M events")
    options.add_argument("--row-group", type=int, default=1_000_000)
    options.add_argument("--half-in-one-key", action="store_true")
    options.add_argument("--dictionary-limit", type=int, default=1 << 20, metavar="BYTES")
    options.add_argument("--seed", type=int, default=0)
    given = vars(options.parse_args())
    folder = Path(given.pop("output"))
    recipe = make_recipe(given.pop("events"), **given)
    make_events(recipe, folder)
    size = sum(path.stat().st_size for path in folder.glob("*.parquet"))
    print(f"{recipe.events:,} events of {recipe.keys:,} keys in {recipe.files} files, {size / 1e6:.0f} MB: {folder}")


if __name__ == "__main__":
    main()
