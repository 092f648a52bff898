"""Write down the documents of a batch when the loss jumps: `python examples/loss_spike.py FOLDER`.

The model counts how often it has seen each token, so that this runs everywhere. In your loop, keep `Watch`: it needs
the loader, the number of the batch and its loss. load(exclude=...) takes the file, or some of its lines.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

import penstock

TOKENIZER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "text", "tokenizer")


class Watch:
    """Compares each loss with the mean of those before. A jump writes the documents of its batch to a file."""

    def __init__(self, loader: penstock.Loader, folder: str, factor: float = 1.5) -> None:
        self.loader, self.folder, self.factor = loader, folder, factor
        self.mean: float | None = None

    def see(self, step: int, loss: float) -> None:
        if self.mean is not None and loss > self.factor * self.mean:
            path = os.path.join(self.folder, f"spike-{step}.jsonl")
            with open(path, "w") as file:
                file.writelines(json.dumps(each._asdict()) + "\n" for each in self.loader.origin(step))
            print(f"batch {step}: loss {loss:.2f} after a mean of {self.mean:.2f}; its documents are in {path}")
            return
        self.mean = loss if self.mean is None else 0.9 * self.mean + 0.1 * loss


def main(folder: str) -> None:
    penstock.run(job(folder))
    with penstock.load(os.path.join(folder, "prepared"), batch_size=2, epochs=1, shuffle=False, workers=0) as loader:
        watch, seen = Watch(loader, folder), np.ones(2000)
        for step, batch in enumerate(loader):
            tokens = batch["targets"][batch["targets_segmentation"] > 0]
            watch.see(step, float(-np.log(seen[tokens] / seen.sum()).mean()))
            np.add.at(seen, tokens, 100)


def job(folder: str) -> dict[str, object]:
    """Two hundred documents, one of them not like the others."""
    texts = [f"Gate {number} of the dam is open, and the water flows to the turbine." for number in range(200)]
    texts[120] = "ZQX#@!~ " * 60
    with open(os.path.join(folder, "documents.jsonl"), "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    return {
        "input": file.name,
        "output": os.path.join(folder, "prepared"),
        "stages": [{"tokenize": {"tokenizer": TOKENIZER, "engine": "hf"}}, {"pack": 64}],
        "memory": "1GB",
        "workers": 0,
    }


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
