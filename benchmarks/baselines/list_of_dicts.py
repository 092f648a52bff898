"""The older system's way to arrays: batch files of 500 samples, all merged in memory, split by game, written.

    python -m benchmarks.baselines.list_of_dicts --input 'games/*.game' --output out
    python -m benchmarks.baselines.list_of_dicts --input 'games/*.game' --output out --two-pass

Our own words for a described design, in one process. Without `--two-pass` its old way: batches are pickled lists of
dicts, which are loaded, accumulated and then made into arrays. With it its new way: batches are arrays, and copied into
arrays of the final size, which are then indexed by split.

`--compressed` writes the batches by np.savez_compressed. The description names no call, but says that batches of arrays
are 20-30% smaller on disk "due to better compression": written by np.savez they would be 87% smaller than the pickles.
"""

from __future__ import annotations

import argparse
import glob
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.game_samples import HEADS, sample_dicts, samples

BATCH = 500
VAL, TEST = 0.1, 0.1

Array = npt.NDArray[Any]
Columns = dict[str, Array]  # features, labels_*, masks_* and game_id


def batches_of(taken: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    each = iter(taken)
    while batch := list(itertools.islice(each, BATCH)):
        yield batch


def columns_of(batch: list[dict[str, Any]], features: Array) -> Columns:
    return {
        "features": features,
        **{f"labels_{head}": np.array([each["labels"][head] for each in batch], np.int16) for head in HEADS},
        **{f"masks_{head}": np.array([each["masks"][head] for each in batch], np.int8) for head in HEADS},
        "game_id": np.array([each["game_id"] for each in batch]),
    }


# The old way.


def save_lists(paths: list[Path], folder: Path, save: Any) -> None:
    for number, batch in enumerate(batches_of(each for path in paths for each in sample_dicts(path))):
        lists = {key: np.array([sample[key] for sample in batch], object) for key in batch[0]}
        save(folder / f"batch_{number:04d}.npz", **lists)


def merge_lists(folder: Path) -> Columns:
    """Every sample of every batch is held as dicts, until all are arrays."""
    merged: list[dict[str, Any]] = []
    for path in sorted(folder.glob("batch_*.npz")):
        with np.load(path, allow_pickle=True) as batch:
            lists = {key: batch[key].tolist() for key in batch.files}
        merged.extend(dict(zip(lists, sample, strict=True)) for sample in zip(*lists.values(), strict=True))
    names = list(merged[0]["features"])
    rows = [[each["features"][name] for name in names] for each in merged]
    return columns_of(merged, np.array(rows, np.float32))


# The new way.


def save_arrays(paths: list[Path], folder: Path, save: Any) -> None:
    for number, batch in enumerate(batches_of(each for path in paths for each in samples(path))):
        save(folder / f"batch_{number:04d}.npz", **columns_of(batch, np.stack([each["features"] for each in batch])))


def merge_arrays(folder: Path) -> Columns:
    paths = sorted(folder.glob("batch_*.npz"))
    total, first = 0, {}
    for path in paths:
        with np.load(path) as batch:
            total += len(batch["labels_action_type"])
            first = first or {name: batch[name] for name in batch.files}
    merged = {name: np.zeros((total, *array.shape[1:]), array.dtype) for name, array in first.items()}
    at = 0
    for path in paths:
        with np.load(path) as batch:
            for name, array in merged.items():
                rows = batch[name]
                array[at : at + len(rows)] = rows
        at += len(rows)
    return merged


# Both.


def write_splits(merged: Columns, folder: Path) -> None:
    games = np.random.default_rng(0).permutation(np.unique(merged["game_id"]))
    val, test = int(len(games) * VAL), int(len(games) * TEST)
    parts = {"val": games[:val], "test": games[val : val + test], "train": games[val + test :]}
    for split, names in parts.items():
        rows = np.flatnonzero(np.isin(merged["game_id"], names))
        np.save(folder / f"X_{split}.npy", merged["features"][rows])
        for group in ("labels", "masks"):
            heads = {head: merged[f"{group}_{head}"][rows] for head in HEADS}
            np.savez(folder / f"{group}_{split}.npz", **heads)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--input", required=True)
    options.add_argument("--output", type=Path, required=True)
    options.add_argument("--two-pass", action="store_true")
    options.add_argument("--compressed", action="store_true")
    given = options.parse_args()
    paths = [Path(path) for path in sorted(glob.glob(given.input))]
    intermediate = given.output / "intermediate"
    intermediate.mkdir(parents=True)
    save = np.savez_compressed if given.compressed else np.savez
    (save_arrays if given.two_pass else save_lists)(paths, intermediate, save)
    merged = (merge_arrays if given.two_pass else merge_lists)(intermediate)
    write_splits(merged, given.output)
    print(f"{len(merged['features']):,} samples: {given.output}")


if __name__ == "__main__":
    main()
