"""Accelerator: does a GPU wait for its data? Step times of a decoder on synthetic batches, on penstock, on the seed.

    python -m benchmarks.accelerator --data /scratch/pings --seed-data '/scratch/old/train.arrayrecord' --json out.json

A decoder in bf16, compiled, trained with AdamW on batches of 128 x 1,024 tokens. `large` has 20 layers of width 640
(about 100M parameters), `small` 6 of width 384 (about 10M), `tiny` 4 of width 128 (about 1M, steps of 5 ms).
Each run starts with warm-up steps. Then every step is timed by itself, with the device waited for at its end, so that
nothing hides behind work that is queued; and once more as training loops run, with the device waited for at the end of
the run only. `wait share` is the time spent in next() of all time, in the first way. Synthetic batches lie on the
device. With `--pairs 5`, synthetic data and penstock take turns, and the median ratio of their steps is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

VOCABULARY, BATCH, LENGTH = 267, 128, 1024
SHAPES = {"large": (20, 640, 10), "small": (6, 384, 6), "tiny": (4, 128, 4)}
PEAK_FLOPS = 989e12  # bf16, dense, of an H100 or H200 by its data sheet
Tensors = dict[str, torch.Tensor]


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.before_mlp(x))))


class Decoder(nn.Module):
    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, batch: Tensors) -> torch.Tensor:
        x = self.tokens(batch["inputs"]) + self.positions(batch["inputs_position"])
        for block in self.blocks:
            x = block(x)
        losses = functional.cross_entropy(
            self.head(self.norm(x)).flatten(0, 1).float(), batch["targets"].flatten().long(), reduction="none"
        )
        counts = (batch["targets_segmentation"] != 0).flatten()
        return (losses * counts).sum() / counts.sum().clamp(min=1)


@dataclass
class Run:
    model: str
    data: str
    steps: int
    step_ms: float  # median
    step_ms_p99: float
    queued_step_ms: float  # mean, when the device is not waited for at every step
    wait_share: float
    wait_ms_p99: float
    first_batch_s: float
    tokens_per_second: float
    useful_tokens_per_second: float
    mfu: float
    host_cpu_share: float  # of one core, by this process
    final_loss: float
    verdict: str = ""


class Trainer:
    def __init__(self, name: str) -> None:
        torch.manual_seed(0)
        self.name = name
        self.model = Decoder(*SHAPES[name]).cuda()
        self.parameters = sum(each.numel() for each in self.model.parameters())
        self._compiled = torch.compile(self.model)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=True)

    def step(self, batch: Tensors) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            loss = self._compiled(batch)
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return loss

    def run(self, data: str, batches: Iterator[Tensors], seconds: float, warm_up: int = 5) -> Run:
        started = time.perf_counter()
        batch = next(batches)
        first = time.perf_counter() - started
        for _ in range(warm_up):
            loss = self.step(batch)
            batch = next(batches)
        torch.cuda.synchronize()
        waits, steps, useful, cpu = [], [], [], _cpu_seconds()
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds or len(steps) < 3:
            start = time.perf_counter()
            batch = next(batches)
            arrived = time.perf_counter()
            loss = self.step(batch)
            torch.cuda.synchronize()
            waits.append(arrived - start)
            steps.append(time.perf_counter() - start)
            useful.append((batch["targets_segmentation"] != 0).sum())
        elapsed = time.perf_counter() - begin
        host = (_cpu_seconds() - cpu) / elapsed
        queued = self._queued(batches, len(steps))
        tokens = len(steps) * BATCH * LENGTH / elapsed
        return Run(
            model=self.name,
            data=data,
            steps=len(steps),
            step_ms=1000 * statistics.median(steps),
            step_ms_p99=1000 * _percentile(steps, 99),
            queued_step_ms=1000 * queued,
            wait_share=sum(waits) / sum(steps),
            wait_ms_p99=1000 * _percentile(waits, 99),
            first_batch_s=first,
            tokens_per_second=tokens,
            useful_tokens_per_second=int(torch.stack(useful).sum()) / elapsed,
            mfu=6 * self.parameters * tokens / PEAK_FLOPS,
            host_cpu_share=host,
            final_loss=float(loss.detach()),
        )

    def _queued(self, batches: Iterator[Tensors], steps: int) -> float:
        """Seconds a step when the host runs ahead of the device, as it does in training."""
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(steps):
            self.step(next(batches))
        torch.cuda.synchronize()
        return (time.perf_counter() - started) / steps


def _percentile(values: list[float], percent: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * percent / 100))]


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def synthetic() -> Iterator[Tensors]:
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), dtype=torch.int32, device="cuda")
    places = torch.arange(LENGTH, dtype=torch.int32, device="cuda").expand(BATCH, LENGTH).contiguous()
    ones = torch.ones_like(tokens)
    batch = {"inputs": tokens, "targets": tokens, "inputs_position": places, "targets_segmentation": ones}
    while True:
        yield batch


def on_penstock(trainer: Trainer, path: str, seconds: float, **options: Any) -> Run:
    import penstock

    label = ", ".join(f"{name}={value}" for name, value in options.items())
    with penstock.load(path, batch_size=BATCH, length=LENGTH, seed=0, **options) as loader:
        run = trainer.run(f"penstock {label}", loader.to_torch(device="cuda"), seconds)
        run.verdict = loader.stats().verdict
        return run


def on_seed(trainer: Trainer, pattern: str, seconds: float, workers: int, fan_out: str) -> Run:
    from benchmarks.baselines.seed_loader import create_probe_chunk_dataset

    batches = create_probe_chunk_dataset(
        data_file_pattern=pattern, batch_size=BATCH, length=LENGTH, workers=workers, fan_out=fan_out
    )

    def tensors() -> Iterator[Tensors]:
        for batch in batches:
            yield {name: torch.from_numpy(array).cuda() for name, array in batch.items()}

    return trainer.run(f"seed, {fan_out} fanned out, {workers} workers", tensors(), seconds, warm_up=1)


def compare(path: str, seconds: float, pairs: int) -> None:
    """Steps on penstock over steps on synthetic data, by turns."""
    for name in SHAPES:
        trainer = Trainer(name)
        trainer.run("synthetic", synthetic(), 1, warm_up=20)
        ratios, queued, waits = [], [], []
        for _ in range(pairs):
            base = trainer.run("synthetic", synthetic(), seconds)
            run = on_penstock(trainer, path, seconds)
            ratios.append(run.step_ms / base.step_ms)
            queued.append(run.queued_step_ms / base.queued_step_ms)
            waits.append(run.wait_share)
        print(
            f"{name:6} {trainer.parameters / 1e6:.1f}M parameters, step {base.step_ms:.2f} ms synthetic: over it "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) waiting at every step, "
            f"{statistics.median(queued):.3f} ({min(queued):.3f} to {max(queued):.3f}) queued; wait share "
            f"{statistics.median(waits):.3%}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="a dataset of `penstock run pings`")
    parser.add_argument("--seed-data", help="train.arrayrecord of the same events, for the seed's design")
    parser.add_argument("--seconds", type=float, default=25, help="of each timed run")
    parser.add_argument("--pairs", type=int, default=0, help="turns of synthetic data and penstock, and nothing else")
    parser.add_argument("--json", help="where to write all figures")
    asked = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    if asked.pairs:
        compare(asked.data, asked.seconds, asked.pairs)
        return
    runs = []
    print(f"{torch.cuda.get_device_name()}, {os.cpu_count()} cores, torch {torch.__version__}")
    for name in SHAPES:
        trainer = Trainer(name)
        print(f"{name}: {trainer.parameters / 1e6:.0f}M parameters")
        makers = [
            lambda trainer=trainer: trainer.run("synthetic", synthetic(), asked.seconds, warm_up=20),
            lambda trainer=trainer: on_penstock(trainer, asked.data, asked.seconds, workers=1),
            lambda trainer=trainer: on_penstock(trainer, asked.data, asked.seconds, workers="auto"),
            lambda trainer=trainer: on_penstock(trainer, asked.data, asked.seconds, workers=1, fill="one_key"),
            lambda trainer=trainer: trainer.run("synthetic again", synthetic(), asked.seconds, warm_up=5),
        ]
        if asked.seed_data and name == "large":
            for workers in (0, 16):
                makers.append(
                    lambda trainer=trainer, workers=workers: on_seed(
                        trainer, asked.seed_data, asked.seconds, workers, "rows"
                    )
                )
        for make in makers:
            run = make()
            runs.append(asdict(run))
            print(
                f"{run.model:6} {run.data:40} step {run.step_ms:8.2f} ms ({run.queued_step_ms:.2f} queued), "
                f"wait {run.wait_share:7.3%} "
                f"(p99 {run.wait_ms_p99:.2f} ms), {run.tokens_per_second / 1e6:.3f}M tokens/s, "
                f"{run.useful_tokens_per_second / 1e6:.3f}M useful, MFU {run.mfu:.3f}, host {run.host_cpu_share:.2f} "
                f"cores, first {run.first_batch_s:.1f} s, loss {run.final_loss:.2f} {run.verdict}",
                flush=True,
            )
            if asked.json:
                with open(asked.json, "w") as file:
                    json.dump(runs, file, indent=1)


if __name__ == "__main__":
    main()
