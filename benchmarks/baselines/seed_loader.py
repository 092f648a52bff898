"""Seed loader: train.arrayrecord -> batches of tokens as the older system made them, in Python code inside Grain.

    python -m benchmarks.baselines.seed_loader --input '/scratch/probe_rows/train.arrayrecord' --workers 2 --seconds 30

Our own words for two described designs, slow in the places where they were: Python objects for every measurement of a
row, and one measurement encoded at a time. `--fan-out none` is the real pipeline: a `random_map` makes one context of a
row, then come `to_iter_dataset`, `batch` and `mp_prefetch`. The others are the later design: a flat-map that reads and
decodes a row again for each of its 16 places. Tokens, sampling and time modes are those of
docs/reference/tokens.md (`one_key`), drawn from numpy's generator.

`--fan-out contexts` samples before the flat-map, so that all K contexts of a row are made 16 times: 16 made for each
one delivered, as was counted in the seed. `--fan-out rows` is kinder: the row is decoded 16 times, a context made once.

With mp_prefetch each of W workers takes every W-th place. In the flat-map only the first place of a row always has a
context, so one worker of two finds most of them, and the stream goes at the pace of the other. That too is the design's
own.
"""

from __future__ import annotations

import argparse
import glob
import ipaddress
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import grain
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from absl import flags

from benchmarks.loading import measure

Measurement = dict[str, Any]
Tokens = list[int]
Batch = dict[str, npt.NDArray[np.int32]]

EVENTS_PER_CONTEXT = 30
MAX_FAN_OUT = 16
START, ABSOLUTE_TIME, SHORT_DELTA, LONG_DELTA, RTT, FAILED, BYTE = 0, 5, 6, 7, 8, 10, 11
SOURCE_MARKERS = {4: 1, 6: 2}
DESTINATION_MARKERS = {4: 3, 6: 4}
FULL_TIME, PARTIAL_TIME = 0.4, 0.7  # of a uniform draw: below the first full, below the second partial, else none
BATCHES_PER_WORKER = 8  # the seed's grain_per_worker_buffer_size


def create_probe_chunk_dataset(
    *,
    data_file_pattern: str,
    batch_size: int,
    length: int = 1024,
    seed: int = 0,
    workers: int = 0,
    threads: int = 16,
    fan_out: str = "contexts",
) -> Iterable[Batch]:
    """Endless batches of the six MaxText keys, each int32 of (batch_size, length). `workers` are Grain's processes.

    With workers, call it below `if __name__ == "__main__"`: they are spawned, and import the main module again.
    """
    paths = sorted(glob.glob(data_file_pattern))
    if not paths:
        raise SystemExit(f"no file matches {data_file_pattern!r}")
    rows = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(paths)).shuffle(seed=seed).repeat()
    options = grain.ReadOptions(num_threads=threads)
    contexts = FAN_OUTS[fan_out](rows, length, seed).map(Shift(length)).to_iter_dataset(options)
    batches = contexts.batch(batch_size, drop_remainder=True)
    if not workers:
        return batches
    if not flags.FLAGS.is_parsed():  # Grain's processes hand the flags on, and a program without absl never read any
        flags.FLAGS.mark_as_parsed()
    return batches.mp_prefetch(
        grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=BATCHES_PER_WORKER)
    )


def fan_out_nothing(rows: grain.MapDataset[bytes], length: int, seed: int) -> grain.MapDataset[Tokens]:
    return rows.random_map(OneContext(length), seed=seed)


def fan_out_rows(rows: grain.MapDataset[bytes], length: int, seed: int) -> grain.MapDataset[Tokens]:
    return grain.experimental.FlatMapMapDataset(rows, RowCopies()).random_map(ContextSampler(length), seed=seed)


def fan_out_contexts(rows: grain.MapDataset[bytes], length: int, seed: int) -> grain.MapDataset[Tokens]:
    return grain.experimental.FlatMapMapDataset(rows.random_map(RowSampler(length), seed=seed), Contexts())


FAN_OUTS = {"none": fan_out_nothing, "rows": fan_out_rows, "contexts": fan_out_contexts}


class RowCopies(grain.experimental.FlatMapTransform):
    """A record -> its row, once for each of its contexts."""

    max_fan_out = MAX_FAN_OUT

    def flat_map(self, element: bytes) -> Sequence[list[Measurement]]:
        row = decode_row(element)
        return [row] * context_count(len(row))


class Contexts(grain.experimental.FlatMapTransform):
    """The contexts of a row, already made -> each of them."""

    max_fan_out = MAX_FAN_OUT

    def flat_map(self, element: Sequence[Tokens]) -> Sequence[Tokens]:
        return element


@dataclass(frozen=True)
class ContextSampler(grain.transforms.RandomMap):
    length: int

    def random_map(self, element: list[Measurement], rng: np.random.Generator) -> Tokens:
        return make_context(element, self.length, rng)


@dataclass(frozen=True)
class OneContext(grain.transforms.RandomMap):
    length: int

    def random_map(self, element: bytes, rng: np.random.Generator) -> Tokens:
        return make_context(decode_row(element), self.length, rng)


@dataclass(frozen=True)
class RowSampler(grain.transforms.RandomMap):
    length: int

    def random_map(self, element: bytes, rng: np.random.Generator) -> Sequence[Tokens]:
        row = decode_row(element)
        return [make_context(row, self.length, rng) for _ in range(context_count(len(row)))]


@dataclass(frozen=True)
class Shift(grain.transforms.Map):
    """Tokens -> padded or cut to length + 1, then inputs and the targets one place later."""

    length: int

    def map(self, element: Tokens) -> Batch:
        kept = element[: self.length + 1]
        tokens = np.zeros(self.length + 1, np.int32)
        tokens[: len(kept)] = kept
        segmentation = (np.arange(self.length + 1) < len(kept)).astype(np.int32)
        position = np.arange(self.length, dtype=np.int32)
        return {
            "inputs": tokens[:-1],
            "inputs_position": position * segmentation[:-1],
            "inputs_segmentation": segmentation[:-1],
            "targets": tokens[1:],
            "targets_position": position * segmentation[1:],
            "targets_segmentation": segmentation[1:],
        }


def decode_row(record: bytes) -> list[Measurement]:
    facts = pa.ipc.open_stream(record).read_all()
    rows: list[Measurement] = pa.ipc.open_stream(facts["measurements"][0].as_py()).read_all().to_pylist()
    return rows


def context_count(events: int) -> int:
    return min(max(math.ceil(events / EVENTS_PER_CONTEXT), 1), MAX_FAN_OUT)


def make_context(row: list[Measurement], length: int, rng: np.random.Generator) -> Tokens:
    tokens: Tokens = []
    last_time: int | None = None
    for measurement, timed in order_by_mode(sample(row, length // EVENTS_PER_CONTEXT, rng), rng):
        time = whole_seconds(measurement["event_time"]) if timed else None
        tokens += encode_measurement(measurement, time, last_time, rng)
        last_time = last_time if time is None else time
    return tokens


def sample(row: list[Measurement], target: int, rng: np.random.Generator) -> list[Measurement]:
    """All of a small row; else up to `target` events of a window whose size is log-uniform, in order of time."""
    if len(row) < target:
        return row
    window = min(int(math.exp(rng.uniform(0, math.log(len(row))))), len(row))
    offset = int(rng.integers(0, len(row) - window + 1))
    chosen = rng.choice(window, size=min(target, window), replace=False)
    return [row[offset + place] for place in sorted(chosen.tolist())]


def order_by_mode(events: list[Measurement], rng: np.random.Generator) -> list[tuple[Measurement, bool]]:
    """Each event with whether it keeps its time: all do, or some, or none, and those without are shuffled."""
    mode = rng.random()
    if mode < FULL_TIME:
        return [(event, True) for event in events]
    shuffled = rng.permutation(len(events)).tolist()
    if mode >= PARTIAL_TIME:
        return [(events[place], False) for place in shuffled]
    lost = max(1, int(len(events) * rng.uniform(0.1, 0.9)))
    kept = set(shuffled[lost:])
    timed = [(event, True) for place, event in enumerate(events) if place in kept]
    return interleave(timed, [(events[place], False) for place in shuffled[:lost]], rng)


def interleave(
    timed: list[tuple[Measurement, bool]], untimed: list[tuple[Measurement, bool]], rng: np.random.Generator
) -> list[tuple[Measurement, bool]]:
    merged = []
    timed, untimed = timed[::-1], untimed[::-1]
    while timed and untimed:
        merged.append(untimed.pop() if rng.random() < 0.5 else timed.pop())
    return merged + timed[::-1] + untimed[::-1]


def encode_measurement(
    measurement: Measurement, time: int | None, last_time: int | None, rng: np.random.Generator
) -> Tokens:
    version = measurement["ip_version"]
    blocks = [
        encode_address(measurement["src_addr"], version, SOURCE_MARKERS),
        encode_address(measurement["dst_addr"], version, DESTINATION_MARKERS),
        encode_rtt(measurement["rtt"]),
    ]
    if time is not None:
        blocks.append(encode_time(time, last_time))
    rng.shuffle(blocks)
    return [START] + [token for block in blocks for token in block]


def encode_address(text: str | None, version: int, markers: dict[int, int]) -> Tokens:
    if not text:
        return [markers[version]] + [BYTE] * (16 if version == 6 else 4)
    address = ipaddress.ip_address(text)
    return [markers[address.version]] + byte_tokens(address.packed)


def encode_time(time: int, last_time: int | None) -> Tokens:
    delta = None if last_time is None else max(time - last_time, 0)
    if delta is None or delta >= 2**32:
        return [ABSOLUTE_TIME] + byte_tokens(time.to_bytes(8, "big", signed=True))
    if delta < 256:
        return [SHORT_DELTA, BYTE + delta]
    return [LONG_DELTA] + byte_tokens(delta.to_bytes(4, "big"))


def encode_rtt(milliseconds: float | None) -> Tokens:
    """Five bits of exponent, eleven of mantissa: microseconds, halved until they fit."""
    if milliseconds is None or math.isnan(milliseconds) or milliseconds < 0:
        return [FAILED]
    microseconds, exponent = max(1.0, 1000 * milliseconds), 0
    while microseconds >= 2048 and exponent < 31:
        microseconds /= 2
        exponent += 1
    mantissa = 2047 if microseconds >= 2048 else int(microseconds)
    return [RTT] + byte_tokens((exponent << 11 | mantissa).to_bytes(2, "big"))


def byte_tokens(data: bytes) -> Tokens:
    return [BYTE + byte for byte in data]


def whole_seconds(time: datetime) -> int:
    """Times have no zone in the records, and are meant in UTC."""
    return math.floor(time.replace(tzinfo=UTC).timestamp())


def useful_tokens(batch: Batch) -> int:
    return int(np.count_nonzero(batch["targets_segmentation"]))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--input", required=True, help="pattern of ArrayRecord files")
    options.add_argument("--batch-size", type=int, default=128)
    options.add_argument("--length", type=int, default=1024)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--workers", type=int, default=0, help="processes of mp_prefetch; 0: none")
    options.add_argument("--threads", type=int, default=16, help="Grain's reading threads, in each process")
    options.add_argument("--fan-out", choices=list(FAN_OUTS), default="contexts")
    options.add_argument("--seconds", type=float, default=30)
    options.add_argument(
        "--warm-up", type=float, default=10, help="seconds before, in which workers fill their buffers"
    )
    options.add_argument("--batches", type=int, help="stop after as many, even if before --seconds")
    given = options.parse_args()
    settings = {name: getattr(given, name) for name in ("length", "seed", "workers", "threads", "fan_out")}
    dataset = create_probe_chunk_dataset(data_file_pattern=given.input, batch_size=given.batch_size, **settings)
    result = measure(iter(dataset), useful_tokens, given.seconds, given.batches, given.warm_up)
    padding = 1 - result.tokens / (result.batches * given.batch_size * given.length)
    print(json.dumps({"loader": "seed", **settings, **result.facts(), "padding": round(padding, 4)}))


if __name__ == "__main__":
    main()
