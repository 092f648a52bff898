"""Versions: is this tree slower or larger than an earlier one? The same commands by turns, and the ratio of each.

    git worktree add ../before COMMIT
    python -m benchmarks.versions --folder /scratch/versions --before ../before/src
    python -m benchmarks.versions --folder ... --before ... --tokenizer tokenizer.json --text 'docs/*.parquet'

Jobs of every family (events, arrays, and text if a tokenizer is given), small ones too, and batches of what they made.
The two trees run by turns, `--repeat` times. Ratios are of the least wall, the least CPU seconds and the median peak.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.figures import show
from benchmarks.game_samples import FLAGS, SCHEMA
from benchmarks.make_events import make_events, make_recipe
from benchmarks.make_games import make_games
from benchmarks.watch import Cost, machine, settle, watch

HERE = Path(__file__).parent
ARRAYS = [
    {"split": {"by": "game_id", "val": 0.1, "test": 0.1}},
    {"normalize": {"columns": ["features"], "method": "standard", "skip": [f"0:{FLAGS}"]}},
]
LOADING = """
import json, sys, penstock
options = json.loads(sys.argv[2])
with penstock.load(sys.argv[1], **options) as loader:
    for _ in range(int(sys.argv[3]) + 1):
        next(loader)
"""


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.folder = given, given.folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.trees = {"before": given.before.resolve(), "after": HERE.parent / "src"}
        self.rows: list[list[str]] = []
        self.kept: dict[str, Any] = {"machine": machine()}

    def events(self) -> None:
        for name, count, memory in (("events", self.given.events, "500MB"), ("small events", 500_000, "4GB")):
            made = self.folder / f"events-{count}"
            make_events(make_recipe(count), made)
            stages = [{"group": {"by": "src_addr", "order": "event_time"}}, {"split": {"by": "key", "test": 0.1}}]
            self._run(name, {"input": f"{made}/*.parquet", "memory": memory, "stages": stages})

    def arrays(self) -> None:
        shutil.copy(HERE / "game_samples.py", self.folder)
        for name, count in (("arrays", self.given.samples), ("few arrays", 270)):
            source = {
                "files": make_games(count, self.folder / f"games-{count}"),
                "function": "game_samples:samples",
                "schema": SCHEMA,
            }
            self._run(name, {"input": source, "memory": "500MB", "stages": ARRAYS})

    def text(self) -> None:
        tokenize = {"tokenizer": os.path.abspath(self.given.tokenizer), "add_eos": False}
        stages = [{"clean": {}}, {"dedup": {}}, {"tokenize": tokenize}, {"pack": {"length": 2048}}]
        self._run("text", {"input": os.path.abspath(self.given.text), "memory": "2GB", "stages": stages})

    def loader(self) -> None:
        for name, options, batches in (
            ("events", {"batch_size": 128, "length": 1024}, 3_000),
            ("arrays", {"batch_size": 256}, 6_000),
            ("text", {"batch_size": 64}, 6_000),
        ):
            prepared = self._prepared("after", name)
            if (prepared / "manifest.json").exists():
                asked = [str(prepared), json.dumps(options), str(batches)]
                self._compare(f"load {name}", lambda _, asked=asked: ["-c", LOADING, *asked])

    def _prepared(self, tree: str, name: str) -> Path:
        return self.folder / f"prepared-{tree}-{name}".replace(", ", "-").replace(" ", "-")

    def _run(self, name: str, job: dict[str, Any]) -> None:
        def command(tree: str) -> list[str]:
            output = self._prepared(tree, name)
            shutil.rmtree(output, ignore_errors=True)
            file = self.folder / f"{output.name}.yaml"
            file.write_text(json.dumps({**job, "output": str(output), "workers": self.given.workers}))
            return ["-m", "penstock", "run", str(file)]

        self._compare(name, command)
        if len({(self._prepared(tree, name) / "manifest.json").read_bytes() for tree in self.trees}) != 1:
            raise SystemExit(f"{name}: the manifests of the two trees differ")

    def _compare(self, name: str, command: Any) -> None:
        costs: dict[str, list[Cost]] = {tree: [] for tree in self.trees}
        for _ in range(self.given.repeat):
            for tree, source in self.trees.items():
                print(f"... {name}, {tree}", file=sys.stderr)
                settle()
                costs[tree].append(watch([sys.executable, *command(tree)], {"PYTHONPATH": str(source)}))
        before, after = costs["before"], costs["after"]
        self.kept[name] = {tree: [vars(each) for each in found] for tree, found in costs.items()}
        row = [name]
        for least in ("wall_seconds", "cpu_seconds"):
            one, other = (min(getattr(each, least) for each in found) for found in (before, after))
            row += [f"{one:.2f}", f"{other:.2f}", f"{other / one:.2f}"]
        one, other = (statistics.median(each.peak_bytes for each in found) / 1e6 for found in (before, after))
        self.rows.append([*row, f"{one:.0f}", f"{other:.0f}", f"{other / one:.2f}"])
        print("| " + " | ".join(self.rows[-1]) + " |", flush=True)

    def close(self) -> None:
        heads = ["command", "wall s", "now", "ratio", "CPU s", "now", "ratio", "peak MB", "now", "ratio"]
        show(f"Before and after, {self.given.repeat} times each by turns; {machine()}", heads, self.rows)
        (self.folder / "results.json").write_text(json.dumps(self.kept, indent=1))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, required=True)
    options.add_argument("--before", type=Path, required=True, help="src/ of the earlier tree")
    options.add_argument("--events", type=int, default=20_000_000)
    options.add_argument("--samples", type=int, default=54_700)
    options.add_argument("--text", help="pattern of Parquet files with a column `text`")
    options.add_argument("--tokenizer", help="a tokenizer.json; without it, text is left out")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--repeat", type=int, default=3)
    given = options.parse_args()
    bench = Bench(given)
    try:
        bench.events()
        bench.arrays()
        if given.tokenizer:
            bench.text()
        bench.loader()
    finally:
        bench.close()


if __name__ == "__main__":
    main()
