"""The usual way to train from arrays in torch: a Dataset that gives one sample, and a DataLoader that stacks them.

    python -m benchmarks.baselines.torch_samples --input prepared --workers 2 --seconds 5

The arrays are mapped; a sample is a dict of features and of a tensor a label and mask head. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.game_samples import HEADS
from benchmarks.loading import measure

Sample = dict[str, Any]


class Samples(Dataset[Sample]):
    def __init__(self, folder: Path, split: str = "train") -> None:
        self.features = np.load(folder / f"X_{split}.npy", mmap_mode="r")
        self.labels = {head: np.load(folder / f"labels_{head}_{split}.npy", mmap_mode="r") for head in HEADS}
        self.masks = {head: np.load(folder / f"masks_{head}_{split}.npy", mmap_mode="r") for head in HEADS}

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, at: int) -> Sample:
        return {
            "features": torch.from_numpy(self.features[at].copy()),
            "labels": {head: torch.tensor(int(labels[at])) for head, labels in self.labels.items()},
            "masks": {head: torch.from_numpy(masks[at].copy()) for head, masks in self.masks.items()},
        }


def batches(loader: DataLoader[Sample]) -> Iterator[Sample]:
    """Epoch after epoch."""
    while True:
        yield from loader


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--input", type=Path, required=True)
    options.add_argument("--batch-size", type=int, default=256)
    options.add_argument("--workers", type=int, default=0, help="processes of the DataLoader")
    options.add_argument("--seconds", type=float, default=5)
    given = options.parse_args()
    loader = DataLoader(
        Samples(given.input),
        batch_size=given.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=given.workers,
        persistent_workers=given.workers > 0,
    )
    found = measure(batches(loader), lambda batch: len(batch["features"]), given.seconds)
    print(json.dumps({"workers": given.workers, "samples_per_second": found.tokens / found.wall_seconds}))


if __name__ == "__main__":
    main()
