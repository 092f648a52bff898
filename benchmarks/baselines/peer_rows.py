"""Peer rows: the same token rows on local disk -> how fast, and at what CPU cost, known loaders give them shuffled.

    python -m benchmarks.baselines.peer_rows --rows 200000 --folder /scratch/peers --peer litdata --seconds 5
    python -m benchmarks.baselines.peer_rows --folder /scratch/peers --peer all

Rows are 1,025 uint16 tokens, row number i always the same ones. Each peer writes them once in its own format (not
timed), then gives batches of 128 shuffled rows as int32 or int64, epoch after epoch, in each of its settings, a fresh
process for each. The first batch, whose seconds include imports, is compared with what was written. One JSON line a
peer: its settings, and the best of them by tokens per CPU second and by tokens per second. A row counts 1,024 tokens,
as many as it trains. CPU is that of the whole process tree. A peer that cannot be imported or fails is a line with
the reason.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from benchmarks.loading import Measured, measure

ROW_TOKENS = 1025
VOCABULARY = 50_257
BATCH_ROWS = 128
SHARD_ROWS = 8_192
ARRAYRECORD_ROWS = 1_024

Row = npt.NDArray[np.uint16]
Rows = npt.NDArray[np.int32]
Setting = dict[str, Any]


def token_row(number: int) -> Row:
    """Row `number` of every such dataset. Its first two tokens say which it is."""
    row = np.random.default_rng(number).integers(0, VOCABULARY, ROW_TOKENS, dtype=np.uint16)
    row[:2] = divmod(number, VOCABULARY)
    return row


def refuse_other_rows(tensor: Any) -> None:
    """Whoever gives fewer, other or unshuffled rows is not to be compared."""
    batch = np.asarray(tensor)
    if batch.shape != (BATCH_ROWS, ROW_TOKENS) or batch.dtype not in (np.int32, np.int64):
        raise ValueError(f"a batch of {batch.dtype} {batch.shape}")
    numbers = batch[:, 0].astype(np.int64) * VOCABULARY + batch[:, 1]
    if (np.diff(numbers) == 1).mean() > 0.5 or len(set(numbers)) < BATCH_ROWS:
        raise ValueError(f"rows that are not shuffled: {numbers[:8]}")
    for number, row in zip(numbers, batch, strict=True):
        if not np.array_equal(row, token_row(int(number))):
            raise ValueError(f"row {number} is not the one that was written")


# Each peer: how it writes the rows, and how it gives them


def write_memmap(folder: Path, rows: int) -> None:
    table = np.memmap(folder / "rows.bin", np.uint16, "w+", shape=(rows, ROW_TOKENS))
    for number in range(rows):
        table[number] = token_row(number)
    table.flush()


def read_memmap(folder: Path) -> Iterator[Rows]:
    """No peer, but what numpy alone does: the price of shuffled rows from the page cache."""
    table = np.memmap(folder / "rows.bin", np.uint16, "r").reshape(-1, ROW_TOKENS)
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(len(table))
        for start in range(0, len(order) - BATCH_ROWS + 1, BATCH_ROWS):
            yield table[order[start : start + BATCH_ROWS]].astype(np.int32)


def write_mosaic(folder: Path, rows: int) -> None:
    let_torchvision_import()
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"tokens": f"ndarray:uint16:{ROW_TOKENS}"}) as writer:
        for number in range(rows):
            writer.write({"tokens": token_row(number)})


def read_mosaic(folder: Path, workers: int | None, local: bool = False) -> Iterator[Any]:
    """Its samples through torch's DataLoader, or, with no number of workers, gathered right here.

    `local` is its class for rows on this disk only, which torch shuffles: no threads that look for what to fetch.
    """
    let_torchvision_import()
    from streaming import LocalDataset, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    options = {"batch_size": BATCH_ROWS, "drop_last": True}
    if local:
        yield from torch_batches(LocalDataset(str(folder)), workers or 0, join_samples, shuffle=True, **options)
    clean_stale_shared_memory()  # of a run that was killed: it refuses to start beside them
    dataset = StreamingDataset(local=str(folder), shuffle=True, shuffle_seed=0, batch_size=BATCH_ROWS)
    if workers is not None:
        yield from torch_batches(dataset, workers, join_samples, **options)
    while True:
        yield from (join_samples(samples) for samples in by_batch(dataset))


def let_torchvision_import() -> None:
    """Streaming imports torchvision, for images. The usual wheel has its operators compiled for a torch with CUDA:
    beside a CPU torch they are missing, while the import wants them declared. Tokens need none of them."""
    import torch

    if "+cpu" in version("torch") and "+cpu" not in version("torchvision"):
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor boxes, Tensor scores, float threshold) -> Tensor")


def write_litdata(folder: Path, rows: int) -> None:
    """One number a piece, so that it can be pickled; tokens without headers, as its TokensLoader wants them."""
    from litdata import TokensLoader, optimize

    optimize(
        fn=litdata_row,
        inputs=list(range(rows)),
        output_dir=str(folder),
        chunk_size=SHARD_ROWS * ROW_TOKENS,
        num_workers=2,
        item_loader=TokensLoader(block_size=ROW_TOKENS),
        verbose=False,
    )


def litdata_row(number: int) -> Any:
    import torch

    return torch.from_numpy(token_row(number))


def read_litdata(folder: Path, workers: int, torch_threads: int) -> Iterator[Any]:
    import torch
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader

    torch.set_num_threads(torch_threads)  # two share the work of one batch, and spin while they wait

    dataset = StreamingDataset(
        str(folder), item_loader=TokensLoader(block_size=ROW_TOKENS), shuffle=True, seed=0, drop_last=True
    )
    loader = StreamingDataLoader(dataset, batch_size=BATCH_ROWS, num_workers=workers, collate_fn=join_tensors)
    while True:
        yield from loader


def join_tensors(tensors: list[Any]) -> Any:
    import torch

    return torch.stack(tensors).to(torch.int32)


def write_arrayrecord(folder: Path, rows: int) -> None:
    """In many small files: Grain's way to read one record takes 6 us with 1,000 of them in the file, 700 with 200,000.
    Uncompressed was read faster than zstd or snappy."""
    from array_record.python.array_record_module import ArrayRecordWriter

    for start in range(0, rows, ARRAYRECORD_ROWS):
        writer = ArrayRecordWriter(str(folder / f"{start:09d}.arrayrecord"), "group_size:1,uncompressed")
        for number in range(start, min(start + ARRAYRECORD_ROWS, rows)):
            writer.write(token_row(number).tobytes())
        writer.close()


def read_grain(folder: Path, threads: int, workers: int = 0, ranged: bool = False) -> Iterator[Rows]:
    """`ranged` reads through a source of our own instead of Grain's."""
    import grain
    from absl import flags

    flags.FLAGS.mark_as_parsed()
    paths = sorted(map(str, folder.glob("*.arrayrecord")))
    source = RangedSource(paths) if ranged else grain.sources.ArrayRecordDataSource(paths)
    rows = grain.MapDataset.source(source).shuffle(seed=0).repeat()
    batches = rows.batch(BATCH_ROWS, drop_remainder=True, batch_fn=join_bytes)
    iterable = batches.to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads))
    if workers:
        iterable = iterable.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=8))
    yield from iterable


class RangedSource:
    """Record by record as ranges of one, which are read faster than a list of one. All files but the last are full."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.length: int = (len(paths) - 1) * ARRAYRECORD_ROWS + self.readers[-1].num_records()

    @cached_property
    def readers(self) -> list[Any]:
        from array_record.python.array_record_module import ArrayRecordReader

        return [ArrayRecordReader(path) for path in self.paths]

    def __getstate__(self) -> dict[str, Any]:
        return {"paths": self.paths, "length": self.length}  # a reader is not pickled

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: SupportsIndex) -> bytes:
        file, place = divmod(number.__index__(), ARRAYRECORD_ROWS)
        (record,) = self.readers[file].read(place, place + 1)
        return bytes(record)


def join_bytes(records: Iterable[bytes]) -> Rows:
    return np.frombuffer(b"".join(records), np.uint16).reshape(-1, ROW_TOKENS).astype(np.int32)


def write_webdataset(folder: Path, rows: int) -> None:
    from webdataset import ShardWriter

    with ShardWriter(str(folder / "%06d.tar"), maxcount=SHARD_ROWS, verbose=0) as writer:
        for number in range(rows):
            writer.write({"__key__": f"{number:09d}", "bin": token_row(number).tobytes()})


def read_webdataset(folder: Path, workers: int) -> Iterator[Rows]:
    """Shards in random order, rows through a buffer of 5,000: as shuffled as a stream of tar files can be."""
    import webdataset

    shards = sorted(map(str, folder.glob("*.tar")))
    dataset = webdataset.WebDataset(
        shards, shardshuffle=len(shards), seed=0, workersplitter=webdataset.split_by_worker, empty_check=False
    )
    batches = dataset.shuffle(5_000).map(webdataset_bytes).batched(BATCH_ROWS, collation_fn=join_bytes, partial=False)
    loader = webdataset.WebLoader(batches.repeat(), batch_size=None, num_workers=workers)
    yield from loader


def webdataset_bytes(sample: dict[str, Any]) -> bytes:
    data: bytes = sample["bin"]
    return data


def write_hf(folder: Path, rows: int) -> None:
    import datasets

    features = datasets.Features({"tokens": datasets.List(datasets.Value("uint16"), length=ROW_TOKENS)})
    made = datasets.Dataset.from_generator(
        hf_rows, gen_kwargs={"rows": rows}, features=features, cache_dir=str(folder / "cache")
    )
    made.save_to_disk(str(folder / "saved"))
    shutil.rmtree(folder / "cache")


def hf_rows(rows: int) -> Iterator[dict[str, Row]]:
    for number in range(rows):
        yield {"tokens": token_row(number)}


def read_hf(folder: Path, workers: int, whole: bool) -> Iterator[Any]:
    """`whole` asks for all rows of a batch at once, as its documents advise; else torch collects them row by row."""
    import datasets
    from torch.utils.data import BatchSampler, RandomSampler

    dataset = datasets.load_from_disk(str(folder / "saved")).with_format("numpy")
    if whole:
        sampler = BatchSampler(RandomSampler(dataset), BATCH_ROWS, drop_last=True)
        yield from torch_batches(dataset, workers, widen, batch_size=None, sampler=sampler)
    yield from torch_batches(dataset, workers, join_samples, batch_size=BATCH_ROWS, shuffle=True, drop_last=True)


def widen(batch: dict[str, Any]) -> Any:
    import torch

    return torch.from_numpy(batch["tokens"].astype(np.int32))


# What several of them need


def torch_batches(dataset: Any, workers: int, collate: Callable[[Any], Any], **options: Any) -> Iterator[Any]:
    from torch.utils.data import DataLoader

    if workers:
        options |= {"persistent_workers": True, "prefetch_factor": 4}
    loader = DataLoader(dataset, num_workers=workers, collate_fn=collate, **options)
    while True:
        yield from loader


def join_samples(samples: list[dict[str, Row]]) -> Any:
    import torch

    return torch.from_numpy(np.stack([sample["tokens"] for sample in samples]).astype(np.int32))


def by_batch(samples: Iterable[Any]) -> Iterator[list[Any]]:
    """A remainder is left out."""
    batch = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == BATCH_ROWS:
            yield batch
            batch = []


@dataclass(frozen=True, kw_only=True)
class Peer:
    write: Callable[[Path, int], None]
    read: Callable[..., Iterator[Any]]
    packages: tuple[str, ...]
    settings: list[Setting] = field(default_factory=lambda: [{"workers": 0}, {"workers": 2}])


PEERS = {
    "numpy-memmap": Peer(write=write_memmap, read=read_memmap, packages=("numpy",), settings=[{}]),
    "mosaicml-streaming": Peer(
        write=write_mosaic,
        read=read_mosaic,
        packages=("mosaicml-streaming", "torch"),
        settings=[
            {"workers": None},
            {"workers": 0},
            {"workers": 2},
            {"workers": 0, "local": True},
            {"workers": 2, "local": True},
        ],
    ),
    "litdata": Peer(
        write=write_litdata,
        read=read_litdata,
        packages=("litdata", "torch"),
        settings=[
            {"workers": 0, "torch_threads": 1},
            {"workers": 0, "torch_threads": 2},
            {"workers": 2, "torch_threads": 1},
        ],
    ),
    "grain-arrayrecord": Peer(
        write=write_arrayrecord,
        read=read_grain,
        packages=("grain", "array_record"),
        settings=[
            {"threads": 0},
            {"threads": 2},
            {"threads": 16},
            {"threads": 0, "workers": 2},
            {"threads": 0, "ranged": True},
            {"threads": 2, "ranged": True},
            {"threads": 0, "workers": 2, "ranged": True},
        ],
    ),
    "webdataset": Peer(write=write_webdataset, read=read_webdataset, packages=("webdataset", "torch")),
    "hf-datasets": Peer(
        write=write_hf,
        read=read_hf,
        packages=("datasets", "torch"),
        settings=[{"workers": workers, "whole": whole} for whole in (False, True) for workers in (0, 2)],
    ),
}


# The command


def prepare(name: str, folder: Path, rows: int) -> None:
    """Once: where _rows.json stands and says the same number, nothing is written again."""
    done = folder / "_rows.json"
    if done.exists() and json.loads(done.read_text()) == rows:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    PEERS[name].write(folder, rows)
    done.write_text(json.dumps(rows))


def measure_setting(name: str, folder: Path, setting: Setting, seconds: float) -> Measured:
    batches = PEERS[name].read(folder, **setting)
    return measure(batches, trained_tokens, seconds, check_first=refuse_other_rows)


def trained_tokens(batch: Any) -> int:
    return len(batch) * (ROW_TOKENS - 1)


def run_part(part: Setting) -> dict[str, Any]:
    """Prepare, or one setting, in a process of its own: what it imported, started or leaked ends with it.

    By import and not as a script, so that the peers' own processes find the functions under the same name.
    """
    script = "from benchmarks.baselines.peer_rows import do_part; do_part()"
    process = subprocess.run([sys.executable, "-c", script, json.dumps(part)], capture_output=True, text=True)
    if process.returncode:
        return {"error": reason(process.stderr), "exit": process.returncode}
    answer: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return answer


def reason(stderr: str) -> str:
    """The last line that names an exception: libraries talk on after it."""
    lines = stderr.strip().splitlines() or ["no message"]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit)\b", line)]
    return (named or lines)[-1]


def do_part() -> None:
    part = json.loads(sys.argv[1])
    name, folder = part["peer"], Path(part["folder"])
    if "setting" in part:
        answer = measure_setting(name, folder, part["setting"], part["seconds"]).facts()
    else:
        prepare(name, folder, part["rows"])
        answer = {"versions": {package: version(package) for package in PEERS[name].packages}}
    print(json.dumps(answer), flush=True)


def compare(name: str, folder: Path, rows: int, seconds: float) -> dict[str, Any]:
    part = {"peer": name, "folder": str(folder / name), "rows": rows}
    prepared = run_part(part)
    if "error" in prepared:
        return {"peer": name, "rows": rows, **prepared}
    tried = [
        {"setting": setting, **run_part({**part, "setting": setting, "seconds": seconds})}
        for setting in PEERS[name].settings
    ]
    answer = {"peer": name, "rows": rows, **prepared}
    worked = [each for each in tried if "error" not in each]
    if worked:
        answer["best_by_cpu"] = max(worked, key=lambda each: each["tokens_per_cpu_second"])
        answer["best_by_wall"] = max(worked, key=lambda each: each["tokens_per_second"])
    return {**answer, "tried": tried}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True, help="of the peers' rows: 3 GB for 200,000")
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--peer", choices=[*PEERS, "all"], default="all")
    options.add_argument("--seconds", type=float, default=5)
    given = options.parse_args()
    for name in PEERS if given.peer == "all" else [given.peer]:
        print(json.dumps(compare(name, given.folder, given.rows, given.seconds)), flush=True)


if __name__ == "__main__":
    main()
