"""Log a run and a loader to Weights & Biases: `python examples/wandb_metrics.py`, with `pip install wandb`.

`on_metrics=` takes any function of a flat dict of numbers; `wandb`'s `run.log` is one. Nothing leaves this machine:
mode="offline" writes to the folder `wandb/`, and `wandb sync` uploads it later. Use mode="online" for a live page.
"""

import json
import os
import sys

import wandb

import penstock


def main(folder: str) -> None:
    with wandb.init(project="penstock", mode="offline", dir=folder) as logger:
        # 1. Prepare. on_metrics is called every 10 s, or as metrics_seconds= says, and once at the end.
        penstock.run(job(folder), on_metrics=logger.log, metrics_seconds=1.0)

        # 2. Train. The same function logs how fast batches come, and which share of the time training waits for them.
        output = os.path.join(folder, "prepared")
        with penstock.load(output, batch_size=32, epochs=1, on_metrics=logger.log, metrics_seconds=1.0) as loader:
            for step, batch in enumerate(loader):
                logger.log({"train/loss": 1.0 / (step + batch["x"].size)})  # your training step


def job(folder: str) -> dict[str, str]:
    """A thousand rows, and the job that prepares them."""
    with open(os.path.join(folder, "rows.jsonl"), "w") as file:
        file.writelines(json.dumps({"x": number / 1000}) + "\n" for number in range(1000))
    return {"input": file.name, "output": os.path.join(folder, "prepared")}


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ".")
