"""Game samples: one raw file of make_games.py -> samples of 893 features, 7 labels and 7 masks, as user code yields.

    python benchmarks/game_samples.py 'games/*.game' --processes 2     # make every sample and drop it: what it costs

Only `batches` imports anything of ours, so that it can be copied beside a job. `samples` makes a file at once, in
numpy, and hands it out row by row: whatever is measured against it is measured against a very fast function.
`one_by_one` makes the same samples position by position, as code does that looks at one state of a game after the
other. `batches` hands out the arrays themselves.
"""

from __future__ import annotations

import argparse
import glob
import json
import re
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

POSITION = np.dtype([("seed", "<u4"), ("ply", "<u2"), ("units", "<u2")])  # of a raw file, one after the other
FEATURES = 893
FLAGS = 64  # so many features first that are 0 or 1
HEADS = {"action_type": 4, "unit": 8, "building": 12, "direction": 16, "target": 24, "resource": 32, "tile": 64}
SCHEMA = {
    "features": f"float32[{FEATURES}]",
    "labels": dict.fromkeys(HEADS, "int16"),
    "masks": {head: f"int8[{width}]" for head, width in HEADS.items()},
    "game_id": "string",
}

Array = npt.NDArray[Any]

_COLUMNS = np.arange(FEATURES, dtype=np.uint32)
_ODD = _COLUMNS * np.uint32(2_654_435_762) + np.uint32(2_246_822_519)
_SCALE = (10.0 ** (_COLUMNS % 5 - 1.0) / 2**32).astype(np.float32)  # features range up to 0.1, 1, 10, 100 or 1,000
_OFFSET = np.where(_COLUMNS % 7 == 0, 1000, 0).astype(np.float32)


def samples(path: Path) -> Iterator[dict[str, Any]]:
    """The function of the job."""
    made = features_of(path)
    features, masks = made["features"], list(made["masks"].values())
    labels = np.stack(list(made["labels"].values()), axis=1).tolist()
    for row, chosen in enumerate(labels):
        yield {
            "features": features[row],
            "labels": dict(zip(HEADS, chosen, strict=True)),
            "masks": {head: mask[row] for head, mask in zip(HEADS, masks, strict=True)},
            "game_id": path.stem,
        }


def one_by_one(path: Path) -> Iterator[dict[str, Any]]:
    """The same samples, each made by itself."""
    positions = np.fromfile(path, POSITION)
    for row in range(len(positions)):
        made = _made(positions[row : row + 1])
        yield {
            "features": made["features"][0],
            "labels": {head: int(label[0]) for head, label in made["labels"].items()},
            "masks": {head: mask[0] for head, mask in made["masks"].items()},
            "game_id": path.stem,
        }


def batches(path: Path) -> Iterator[Any]:
    """The samples of a file at once."""
    import penstock

    yield penstock.Batch(features_of(path))


def features_of(path: Path) -> dict[str, Any]:
    """All samples of the file as arrays: features, {head: labels}, {head: masks}, and the game's name."""
    return {**_made(np.fromfile(path, POSITION)), "game_id": path.stem}


def _made(positions: Array) -> dict[str, Any]:
    labels, masks = {}, {}
    for number, (head, width) in enumerate(HEADS.items()):
        labels[head], masks[head] = _head(positions["seed"], number, width)
    return {"features": _features(positions), "labels": labels, "masks": masks}


def _features(positions: Array) -> Array:
    mixed = np.multiply.outer(positions["seed"], _ODD)
    features = mixed.astype(np.float32)
    features *= _SCALE
    features += _OFFSET
    features[:, :FLAGS] = mixed[:, :FLAGS] >> 31
    features[:, FLAGS] = positions["ply"]
    features[:, FLAGS + 1] = positions["units"]
    return features


def _head(seeds: Array, number: int, width: int) -> tuple[Array, Array]:
    """The class chosen, and which could be. A quarter of all but the first head have none: -1, and a mask of zeros."""
    mixed = seeds * np.uint32(2 * number + 2_654_435_761)
    labels = ((mixed >> 12) % width).astype(np.int16)
    classes = np.arange(width, dtype=np.uint32) * np.uint32(2_246_822_520) + np.uint32(3_266_489_917)
    masks = (np.multiply.outer(mixed, classes) >> 31).astype(np.int8)
    masks[np.arange(len(labels)), labels] = 1
    if number:
        unused = (mixed >> 6) % 4 == 0
        labels[unused], masks[unused] = -1, 0
    return labels, masks


def sample_dicts(path: Path) -> Iterator[dict[str, Any]]:
    """The same samples as the seed's old way had them: 893 named floats, and lists.

    Names are made anew for each sample, as code does that fills a dict in loops (f"unit_{i}_distance"). The seed's own
    figure says so: 70 GB for 547K samples is 128 KB each, of which 893 floats in a dict with shared names are 58.
    """
    for sample in samples(path):
        features = {f"feature_{at}": value for at, value in enumerate(sample["features"].tolist())}
        masks = {head: mask.tolist() for head, mask in sample["masks"].items()}
        yield {"features": features, "labels": sample["labels"], "masks": masks, "game_id": sample["game_id"]}


def count_samples(paths: list[str], function: str = "samples") -> int:
    yielded = (each for path in paths for each in globals()[function](Path(path)))
    return sum(1 if isinstance(each, dict) else len(each.columns["features"]) for each in yielded)


def grown_bytes(paths: list[str]) -> int:
    """How far the high-water mark of this process rises when it makes samples: what the function takes by itself."""
    before = _high_water_bytes()
    count_samples(paths)
    return _high_water_bytes() - before


def _high_water_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024 * int(found[1])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", help="pattern")
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--function", default="samples", help="or one_by_one, or batches")
    options.add_argument("--growth", action="store_true", help="say by how much one process grows over 20 files")
    given = options.parse_args()
    paths = sorted(glob.glob(given.files))
    if given.growth:
        print(json.dumps({"function_bytes": grown_bytes(paths[:20])}))
        return
    shares = [paths[number :: given.processes] for number in range(given.processes)]
    with get_context("spawn").Pool(given.processes) as pool:
        print(json.dumps({"samples": sum(pool.map(partial(count_samples, function=given.function), shares))}))


if __name__ == "__main__":
    main()
