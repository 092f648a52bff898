"""What do arrays of a user's function cost, against lists of dicts, a bare loop and a bare write? `make bench-arrays`.

    python -m benchmarks.arrays --folder /scratch/arrays --peers-python .venv-peers/bin/python
    python -m benchmarks.arrays --folder /scratch/arrays --only lists floor
    python -m benchmarks.arrays --folder /scratch/arrays --large

Samples have the seed's shapes: 893 features, 7 labels, 7 masks (game_samples.py). `lists` is the seed's old and new way
against `penstock run`; `floor` is penstock against making the samples plus writing the bytes; `loader` is shuffled
batches against torch and numpy; `--large` is ten times as many in the same memory, and needs some 45 GB of disk.
Every command is measured whole: interpreter, imports, fsync. Ratios are of one run; figures go to results.json, too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from benchmarks.figures import Figures, call, median, show
from benchmarks.game_samples import FLAGS, HEADS, SCHEMA
from benchmarks.loading import measure
from benchmarks.make_games import make_games
from benchmarks.watch import Cost, settle, watch
from penstock.base.sizes import parse_size

HERE = Path(__file__).parent
SPLIT = [{"split": {"by": "game_id", "val": 0.1, "test": 0.1}}]
NORMALIZE = [{"normalize": {"columns": ["features"], "method": "standard", "skip": [f"0:{FLAGS}"]}}]
BATCH, ROUNDS = 256, 3
DISK_PER_SAMPLE = 8_200  # the arrays twice: as tasks leave them, and placed
PLAIN, BOTH = "penstock", "penstock, split + normalize"


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.folder = given, given.folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.figures = Figures(memory=given.memory)

    # Questions.

    def lists(self) -> None:
        """The seed's two ways against ours: raw files in, split arrays out."""
        samples = self.given.samples_small
        pattern = self._games(samples)
        costs = {}
        for name, options in {
            "lists of dicts": ["--compressed"],
            "lists of dicts, batches not compressed": [],
            "two passes": ["--two-pass", "--compressed"],
            "two passes, batches not compressed": ["--two-pass"],
        }.items():
            made = self.folder / "out-baseline"
            module = [sys.executable, "-m", "benchmarks.baselines.list_of_dicts", "--input", pattern]
            repeat = self.given.repeat if "--two-pass" in options else 1
            costs[name] = self._watch(name, [*module, "--output", str(made), *options], made, repeat)
            shutil.rmtree(made)
        costs["penstock, split"] = self._penstock(samples, "split", SPLIT)
        costs[BOTH] = self._penstock(samples, "both", SPLIT + NORMALIZE)
        self._show_costs(f"{samples:,} samples, from files to split arrays", samples, costs)
        ours = costs["penstock, split"]
        for name, cost in list(costs.items())[:4]:
            has_aim = name.startswith("lists")
            faster, less = cost.wall_seconds / ours.wall_seconds, cost.peak_bytes / ours.peak_bytes
            self.figures.say(f"{samples:,}: times faster than {name}", faster, 100 if has_aim else None)
            self.figures.say(f"{samples:,}: times less memory than {name}", less, 25 if has_aim else None)

    def floor(self) -> None:
        """Ours against the least that must be done: make the samples, and write as many bytes."""
        samples = self.given.samples
        pattern = self._games(samples)
        function_bytes = self._function_bytes(pattern)
        for name, output, stages, function in (
            (PLAIN, "plain", [], "samples"),
            (BOTH, "both", SPLIT + NORMALIZE, "samples"),
            (f"{BOTH}, positions made one by one", "one-by-one", SPLIT + NORMALIZE, "one_by_one"),
            (f"{BOTH}, a batch per file", "batches", SPLIT + NORMALIZE, "batches"),
        ):
            ours = self._penstock(samples, output, stages, function=function)
            made = self._prepared(samples, output)
            processes, size = json.loads((made / ".penstock" / "run.json").read_text())["workers"], _bytes_of(made)
            loop = [sys.executable, str(HERE / "game_samples.py"), pattern, "--processes", str(processes)]
            loop += ["--function", function]
            making = self._watch("making the samples", loop)
            writing = median([_write(self.folder / "written", size) for _ in range(self.given.repeat)])
            costs = {name: ours, f"making, {processes} processes": making, f"writing {size / 1e6:,.0f} MB": writing}
            self._show_costs(f"{samples:,} samples: {name}, and the least that must be done", samples, costs)
            ratio = ours.wall_seconds / (making.wall_seconds + writing.wall_seconds)
            aim = 1.5 if function == "batches" else 2.5
            self.figures.say(f"{samples:,}: {name}: wall / (making + writing)", ratio, aim, at_least=False)
            own = (ours.peak_bytes - processes * function_bytes) / 1e6
            of_function = f"{processes} x {function_bytes / 1e6:.1f} MB of the function"
            self.figures.say(f"{samples:,}: {name}: peak MB without {of_function}", own, 250, at_least=False)

    def large(self) -> None:
        """Ten times as many in the same memory."""
        samples = self.given.samples_large
        needed, free = samples * DISK_PER_SAMPLE, shutil.disk_usage(self.folder).free
        if free < needed:
            asked = f"{samples:,} samples need {needed / 1e9:.0f} GB of disk while they are made"
            raise SystemExit(f"{asked}; {self.folder} has {free / 1e9:.0f} GB free. Try --samples-large or --folder.")
        try:
            cost = self._penstock(samples, "both", SPLIT + NORMALIZE, repeat=1)
            size = _bytes_of(self._prepared(samples, "both"))
        finally:
            shutil.rmtree(self._prepared(samples, "both"), ignore_errors=True)
        self._show_costs(f"{samples:,} samples, {size / 1e9:.1f} GB of arrays", samples, {BOTH: cost})
        allowed = parse_size(self.given.memory) / 1e6
        self.figures.say(
            f"{samples:,}: peak MB, of memory: {self.given.memory}", cost.peak_bytes / 1e6, allowed, at_least=False
        )

    def loader(self) -> None:
        """Shuffled batches of every column but text, page cache warm; best of three rounds, one after the other."""
        samples = self.given.samples
        prepared = self._prepared(samples, "both")
        if not (prepared / "manifest.json").exists():
            self._penstock(samples, "both", SPLIT + NORMALIZE, repeat=1)
        watch(["cat", *map(str, prepared.glob("*.npy"))])
        rates: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for workers in ("auto", 1):
                rates.setdefault(f"penstock, workers={workers}", []).append(self._our_rate(prepared, workers))
            rates.setdefault("numpy X[idx], mapped", []).append(self._numpy_rate(prepared))
            if self._has_torch():
                for count in sorted({0, len(os.sched_getaffinity(0))}):
                    rates.setdefault(f"torch, {count} processes", []).append(self._torch_rate(prepared, count))
        best = {name: max(found) for name, found in rates.items()}
        self.figures.kept["loader"] = rates
        rows = [[name, f"{rate:,.0f}", " ".join(f"{each:,.0f}" for each in rates[name])] for name, rate in best.items()]
        show(f"Shuffled batches of {BATCH} from {samples:,} samples", ["loader", "samples/s", "rounds"], rows)
        ours = best["penstock, workers=auto"]
        self.figures.say("loader: part of a numpy gather", ours / best["numpy X[idx], mapped"], 0.5)
        torch = [rate for name, rate in best.items() if name.startswith("torch")]
        if torch:
            self.figures.say("loader: times a per-sample torch Dataset", ours / max(torch), 10)
        else:
            print(f"\nleft out: torch, which {self.given.peers_python} does not have (--peers-python)")

    # How each is run.

    def _games(self, samples: int) -> str:
        return make_games(samples, self.folder / f"games-{samples}")

    def _prepared(self, samples: int, output: str) -> Path:
        return Path(self.folder / f"prepared-{samples}-{output}")

    def _penstock(
        self, samples: int, output: str, stages: list[Any], repeat: int | None = None, function: str = "samples"
    ) -> Cost:
        """`penstock run`, with the function in a file beside the job. The output of the last time stays."""
        shutil.copy(HERE / "game_samples.py", self.folder)
        made, job = self._prepared(samples, output), self.folder / f"{samples}-{output}.yaml"
        source = {"files": self._games(samples), "function": f"game_samples:{function}", "schema": SCHEMA}
        settings = {"input": source, "output": str(made), "memory": self.given.memory, "stages": stages}
        job.write_text(json.dumps(settings, indent=1))  # which is YAML, too
        command = [sys.executable, "-m", "penstock", "run", str(job), "--workers", self.given.workers]
        return self._watch(job.stem, command, made, repeat)

    def _watch(self, name: str, command: list[str], output: Path | None = None, repeat: int | None = None) -> Cost:
        """The run of median wall."""
        tries = []
        for _ in range(repeat or self.given.repeat):
            if output:
                shutil.rmtree(output, ignore_errors=True)
            print(f"... {name}", file=sys.stderr)
            settle()
            tries.append(watch(command))
        return median(tries)

    def _function_bytes(self, pattern: str) -> int:
        said = call(sys.executable, str(HERE / "game_samples.py"), pattern, "--growth")
        return int(json.loads(said)["function_bytes"])

    def _our_rate(self, prepared: Path, workers: Any) -> float:
        schema = json.loads((prepared / "manifest.json").read_text())["schema"]
        columns = [field["name"] for field in schema if field["type"] != "string"]
        with penstock.load(prepared, batch_size=BATCH, columns=columns, workers=workers) as loader:
            return self._rate(loader)

    def _numpy_rate(self, prepared: Path) -> float:
        return self._rate(gathered(prepared))

    def _rate(self, batches: Iterator[Any]) -> float:
        found = measure(batches, lambda batch: len(batch["features"]), self.given.seconds)
        return found.tokens / found.wall_seconds

    def _has_torch(self) -> bool:
        asked = [self.given.peers_python, "-c", "import torch"]
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    def _torch_rate(self, prepared: Path, workers: int) -> float:
        module = [self.given.peers_python, "-m", "benchmarks.baselines.torch_samples", "--input", str(prepared)]
        options = ["--workers", str(workers), "--seconds", str(self.given.seconds), "--batch-size", str(BATCH)]
        return float(json.loads(call(*module, *options).splitlines()[-1])["samples_per_second"])

    # How each is told.

    def _show_costs(self, title: str, samples: int, costs: dict[str, Cost]) -> None:
        each = {name: f"{cost.wall_seconds / samples * 1e6:.1f}" for name, cost in costs.items()}
        self.figures.show_costs(title, costs, "us/sample", each)

    def close(self) -> None:
        name = "results-large.json" if self.given.large else "results.json"
        self.figures.close(f"memory: {self.given.memory}", self.given.json or self.folder / name)


def gathered(prepared: Path, split: str = "train") -> Iterator[dict[str, Any]]:
    """Batches in random order as plain numpy makes them: X[idx] of every column, epoch after epoch."""
    files = {"features": f"X_{split}.npy"}
    files |= {f"{group}_{head}": f"{group}_{head}_{split}.npy" for group in ("labels", "masks") for head in HEADS}
    arrays = {name: np.load(prepared / file, mmap_mode="r") for name, file in files.items()}
    rng = np.random.default_rng(0)
    while True:
        order = rng.permutation(len(arrays["features"]))
        for first in range(0, len(order) - BATCH + 1, BATCH):
            idx = order[first : first + BATCH]
            yield {name: array[idx] for name, array in arrays.items()}


def _bytes_of(output: Path) -> int:
    """What is there for its reader; the state of the run is not."""
    files = (path for path in output.rglob("*") if path.is_file() and ".penstock" not in path.parts)
    return sum({(stat := path.stat()).st_ino: stat.st_size for path in files}.values())


def _write(path: Path, size: int) -> Cost:
    """So many bytes, one after the other, and fsync: what the disk takes."""
    block = np.random.default_rng(0).bytes(1 << 22)
    settle()
    started, cpu = time.perf_counter(), time.process_time()
    with path.open("wb") as file:
        for at in range(0, size, len(block)):
            file.write(block[: size - at])
        file.flush()
        os.fsync(file.fileno())
    cost = Cost(time.perf_counter() - started, time.process_time() - cpu, len(block))
    path.unlink()
    return cost


QUESTIONS = ("lists", "floor", "loader")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--only", nargs="+", choices=QUESTIONS, default=QUESTIONS)
    options.add_argument("--large", action="store_true", help="only this: --samples-large within --memory")
    options.add_argument("--samples-small", type=int, default=54_700, help="for lists")
    options.add_argument("--samples", type=int, default=547_000, help="for floor and loader")
    options.add_argument("--samples-large", type=int, default=5_470_000)
    options.add_argument("--memory", default="250MB", help="for penstock")
    options.add_argument("--workers", default="auto", help="for penstock run")
    options.add_argument("--repeat", type=int, default=3, help="of what is not lists of dicts; the median is shown")
    options.add_argument("--seconds", type=float, default=5, help="of batches, a loader and round")
    options.add_argument("--peers-python", default=sys.executable, help="where torch is installed")
    options.add_argument("--json", type=Path, help="default: results.json or results-large.json in the folder")
    given = options.parse_args()
    bench = Bench(given)
    for question in ("large",) if given.large else given.only:
        getattr(bench, question)()
    bench.close()


if __name__ == "__main__":
    main()
