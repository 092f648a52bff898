"""What do origins and content hashes cost: bytes of text rows, time to prepare and to load them? All in one run.

    python -m benchmarks.provenance --folder build/bench-provenance

Documents of random words with log-normal lengths (median 400 words), packed into rows of 2,049 tokens with the
tokenizer of examples/text. Loading alternates between the datasets without and with them, and counts batches per second
of CPU time; the ratio is the median of the pairs. Aims: at most 2% each.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import penstock

EXAMPLE = Path(__file__).parent.parent / "examples" / "text"
LENGTH, BATCH = 2049, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/bench-provenance"))
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="of loading, each time")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    write_documents(given.folder / "documents.jsonl", given.documents)
    sizes = {}
    for method in ("best_fit", "wrapped"):
        outputs = {kept: prepare(given.folder, kept, method) for kept in (False, "origins", True)}
        plain, *more = (sum(file.stat().st_size for file in (path / "train").iterdir()) for path in outputs.values())
        sizes[method] = [each / plain - 1 for each in more]
        origins, hashes = sizes[method]
        print(f"{method}: {plain:,} bytes of rows; with origins {origins:+.2%}, with origins and hashes {hashes:+.2%}")
    seconds = exclude(outputs[True])
    print(f"load(exclude=...): {seconds['hash']:.3f} s by hash, {seconds['origin']:.3f} s by origin")
    ratios = [measure(outputs, given.seconds, turn) for turn in range(given.pairs)]
    median = statistics.median(ratios)
    print(f"loading: {median:.3f} of the speed without origins, median of {given.pairs} pairs ({sorted(ratios)})")
    figures = {"more_bytes": sizes, "speed": median, "ratios": ratios, "exclude_seconds": seconds}
    (given.folder / "results.json").write_text(json.dumps(figures, indent=1))


def write_documents(path: Path, count: int) -> None:
    chance = np.random.default_rng(0)
    words = ["water", "gate", "river", "dam", "the", "of", "and", "turbine", "flows", "through", "pipe", "open", "is"]
    lengths = np.maximum(5, chance.lognormal(np.log(400), 1.0, count)).astype(int)
    with path.open("w") as file:
        for length in lengths.tolist():
            file.write(json.dumps({"text": " ".join(chance.choice(words, length).tolist())}) + "\n")


def exclude(path: Path) -> dict[str, float]:
    """Seconds of load() with a list of one document, by either name."""
    with penstock.load(os.fspath(path), batch_size=BATCH, length=LENGTH - 1, workers=0) as loader:
        found = loader.origin(0)[0]
    seconds = {}
    for name, line in {"origin": f"{found.file}:{found.position}", "hash": str(found.hash)}.items():
        started = time.perf_counter()
        penstock.load(os.fspath(path), batch_size=BATCH, length=LENGTH - 1, workers=0, exclude=[line]).close()
        seconds[name] = round(time.perf_counter() - started, 4)
    return seconds


def prepare(folder: Path, kept: bool | str, method: str) -> Path:
    output = folder / f"{method}-{kept}"
    shutil.rmtree(output, ignore_errors=True)
    stages = [{"tokenize": {"tokenizer": str(EXAMPLE / "tokenizer"), "engine": "hf"}}]
    stages += [{"pack": {"length": LENGTH, "method": method}}]
    job: dict[str, Any] = {"input": str(folder / "documents.jsonl"), "output": str(output), "stages": stages}
    started = time.process_time()
    penstock.run({**job, "provenance": kept, "memory": "2GB", "workers": 0})
    print(f"{method}, provenance: {kept}: prepared in {time.process_time() - started:.1f} s of CPU time")
    return output


def measure(outputs: dict[Any, Path], seconds: float, turn: int) -> float:
    """Speed with origins over speed without, one after the other; the first of them changes every turn."""
    speeds = {kept: batches_per_second(outputs[kept], seconds) for kept in ((False, True), (True, False))[turn % 2]}
    return round(speeds[True] / speeds[False], 4)


def batches_per_second(path: Path, seconds: float) -> float:
    with penstock.load(os.fspath(path), batch_size=BATCH, workers=0) as loader:
        for k in range(20):
            loader.batch(k)
        started, made = time.process_time(), 0
        while time.process_time() < started + seconds:
            loader.batch(made % 1000)
            made += 1
        return made / (time.process_time() - started)


if __name__ == "__main__":
    main()
