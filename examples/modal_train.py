"""Train a small model on a dataset that penstock prepared, and log to Weights & Biases: on this machine, or on Modal.

    pip install 'penstock[loader]' torch wandb
    python examples/modal_train.py --steps 20                         # here; without --data, on pings that it makes
    modal run examples/modal_train.py::run --run-name first \\
        --steps 1000 --batch-size 128 --wandb-project pings           # on Modal, on /data/prepared of the Volume

A run of the same name resumes from its checkpoint, with model, optimizer and loader at the same batch. So a container
that is preempted costs the steps since the last checkpoint. With WANDB_API_KEY, runs are logged online. Without it they
are logged to a folder that `wandb sync` uploads.
"""

import argparse
import os
import sys
from pathlib import Path

try:
    import modal
except ImportError:  # training on this machine does not need it
    modal = None

LENGTH, WIDTH, CHECKPOINT_STEPS = 256, 64, 100
VOLUME, DATA = "penstock-job", "/data/prepared"  # as `penstock deploy modal job.yaml` names them


def train(run_name: str, steps: int, batch_size: int, wandb_project: str, data: str, folder: str) -> float:
    """Train until `steps` batches are seen, and return the last loss. `folder` keeps the checkpoint and the logs."""
    import torch
    import wandb

    import penstock

    device = "cuda" if torch.cuda.is_available() else "cpu"
    mode = "online" if os.environ.get("WANDB_API_KEY") else "offline"
    torch.manual_seed(0)
    place = Path(folder) / f"{run_name}.pt"
    place.parent.mkdir(parents=True, exist_ok=True)
    with (
        wandb.init(
            project=wandb_project, name=run_name, mode=mode, dir=folder, config={"batch_size": batch_size}
        ) as log,
        penstock.load(data, batch_size=batch_size, length=LENGTH, seed=0, on_metrics=log.log) as loader,
    ):
        vocabulary = loader.vocabulary.size  # of events; for text, that of its tokenizer
        model = torch.nn.Sequential(torch.nn.Embedding(vocabulary, WIDTH), torch.nn.Linear(WIDTH, vocabulary)).to(
            device
        )
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        batches = loader.to_torch(device, int64=["targets"])
        first, value = 0, float("nan")
        if place.exists():
            saved = torch.load(place, map_location=device, weights_only=True)
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            batches.load_state_dict(saved["loader"])  # the next batch is the one that it would have taken
            first, value = saved["step"], saved["loss"]
        for step in range(first, steps):
            batch = next(batches)
            counts = batch["targets_segmentation"] != 0
            loss = torch.nn.functional.cross_entropy(model(batch["inputs"])[counts], batch["targets"][counts])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            value = loss.item()
            log.log({"train/loss": value, "train/step": step})
            if (step + 1) % CHECKPOINT_STEPS == 0 or step + 1 == steps:
                state = {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": batches.state_dict(),
                }
                torch.save({**state, "step": step + 1, "loss": value}, place.with_suffix(".tmp"))
                os.replace(place.with_suffix(".tmp"), place)
        print(loader.stats().verdict)
    print(f"{run_name}: {steps} steps, loss {value:.3f}")
    return value


def some_pings(folder: str) -> str:
    """A dataset to try this with: 20,000 pings from 200 sources."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    import penstock

    os.makedirs(folder, exist_ok=True)
    rng, count = np.random.default_rng(0), 20_000
    addresses = np.array([f"10.0.{number >> 4}.{number}" for number in range(200)], object)
    pings = {
        "src_addr": pa.array(addresses[rng.integers(0, 200, count)], pa.string()),
        "event_time": pa.array(rng.integers(16 * 10**14, 17 * 10**14, count), pa.timestamp("us")),
        "dst_addr": pa.array(addresses[rng.integers(0, 200, count)], pa.string()),
        "rtt": pa.array(rng.gamma(2, 20, count).astype(np.float32)),
    }
    place, output = os.path.join(folder, "pings.parquet"), os.path.join(folder, "pings")
    pq.write_table(pa.table(pings), place)
    stages = [{"group": {"by": "src_addr", "order": "event_time"}}]
    penstock.run({"input": place, "output": output, "stages": stages, "memory": "1GB", "workers": 0})
    return output


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small model on a dataset of penstock.")
    parser.add_argument("--run-name", default="local", help="name in Weights & Biases, and of the checkpoint")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--wandb-project", default="penstock")
    parser.add_argument("--data", help="a dataset of events that penstock prepared; default: pings that are made here")
    parser.add_argument("--folder", default="training", help="for checkpoints, and logs of Weights & Biases")
    asked = parser.parse_args()
    data = asked.data or some_pings(asked.folder)
    train(asked.run_name, asked.steps, asked.batch_size, asked.wandb_project, data, asked.folder)


if modal:  # one container with a GPU, and the Volume in which the dataset was prepared
    app = modal.App("penstock-train")
    volume = modal.Volume.from_name(VOLUME)
    image = (
        modal.Image.debian_slim(python_version=f"{sys.version_info.major}.{sys.version_info.minor}")
        .pip_install("penstock[loader]==0.2.0", "torch==2.13.0", "wandb==0.31.0")
        .run_commands("penstock warm-up")  # compiles the loader's kernels once, not in every container
    )

    @app.function(
        image=image,
        volumes={"/data": volume},
        secrets=[modal.Secret.from_name("wandb")],  # holds WANDB_API_KEY
        gpu="A10",
        cpu=(8, 8),
        memory=(32_768, 32_768),
        timeout=86_400,
        retries=modal.Retries(max_retries=5, initial_delay=10.0),
        max_containers=1,
    )
    def train_there(run_name: str, steps: int, batch_size: int, wandb_project: str) -> float:
        try:
            return train(run_name, steps, batch_size, wandb_project, DATA, "/data/training")
        finally:
            volume.commit()

    @app.local_entrypoint()
    def run(run_name: str = "first", steps: int = 1000, batch_size: int = 128, wandb_project: str = "penstock") -> None:
        print(f"{run_name}: loss {train_there.remote(run_name, steps, batch_size, wandb_project):.3f}")


if __name__ == "__main__":
    main()
