"""First load: how long load() takes on a machine that has compiled nothing yet, and on every later start.

    python -m benchmarks.first_load --folder /scratch/first-load                          # 200M events
    python -m benchmarks.first_load --folder /scratch/first-load --events 2_000_000 --only shards
    taskset -c 0,1 python -m benchmarks.first_load --folder /scratch/first-load --only kinds

`kinds`: rows, arrays and events, each with an empty cache (cold), with what the cold process left (warm), and after
`penstock warm-up`. `shards`: events in 644 training shards, warm.

Each measurement is a process of its own. Wall and CPU seconds of the imports, of load() and of the first batch are
apart. Warm figures are medians of --repeat processes; their page cache is warm too. Kernels that were compiled are
counted, and a process that compiles nothing must say nothing. `--other SRC` measures the package of another source
folder by turns. `--profile` prints where the time of one warm load() of the shards goes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from benchmarks.figures import Figures, call, show
from benchmarks.make_events import make_events as make_measurements
from benchmarks.make_events import make_recipe
from penstock.base.files import unique_name
from penstock.prepare.rows.order import BUCKETS_IN_A_SLICE

PROGRAM = """
import json, os, sys, time
def clocks():
    return time.perf_counter(), time.process_time()
started = clocks()
import numba, numpy, penstock
penstock.load
imported = clocks()
loader = penstock.load(sys.argv[1], **json.loads(sys.argv[2]))
loaded = clocks()
with loader:
    next(loader)
    given = clocks()
kernels = getattr(sys.modules.get("penstock.loader.compiled.jit"), "KERNELS", [])
spans = [[b - a for a, b in zip(*pair)] for pair in ((started, imported), (imported, loaded), (loaded, given))]
print(json.dumps([*spans, sum(sum(each.stats.cache_misses.values()) for each in kernels)]))
"""
BUCKETS = 715  # nine tenths of the keys are training data: 644 shards
AIMS = {"rows": 5.0, "arrays": 5.0, "events": 12.0}  # seconds, cold
WARM_AIM = 0.5
SEED = 1
OPTIONS = {"batch_size": 128, "length": 1024}
Seconds = tuple[float, float]  # wall, CPU


@dataclass(frozen=True)
class Start:
    """One process: seconds of its parts, kernels that it compiled, and what it said."""

    imports: Seconds
    load: Seconds
    first_batch: Seconds
    compiled: int
    said: str

    def check(self) -> None:
        """It says that it compiles if it does, and only then."""
        if self.compiled and "compiling" not in self.said:
            raise SystemExit(f"{self.compiled} kernels were compiled, and nothing was said about it")
        if not self.compiled and self.said:
            raise SystemExit(f"nothing was compiled, and yet this was said:\n{self.said}")


class Bench:
    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.folder = given, given.folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.own = Path(penstock.__file__).parent.parent
        self.sources = [self.own, *([given.other.absolute()] if given.other else [])]
        self.figures = Figures()

    def kinds(self) -> None:
        fields = {"at": "time", "key": "ip", "value": "float11"}
        kinds: dict[str, tuple[Path, dict[str, Any]]] = {
            "rows": (make_rows(self.folder / "rows"), {"batch_size": 8}),
            "arrays": (make_arrays(self.folder / "arrays"), {"batch_size": 8}),
            "events": (make_events(self.folder / "events"), {"batch_size": 8, "length": 128, "fields": fields}),
        }
        rows = []
        for kind, (path, options) in kinds.items():
            for source in self.sources:
                cache = self._cache(kind, source)
                cold, *warm = (self._start(path, options, source, cache) for _ in range(1 + self.given.repeat))
                warmed_up = self._start(path, options, source, self._warmed_up()) if source == self.own else None
                rows.append([kind, self._name(source), str(cold.compiled), _shown(cold.load)])
                rows[-1] += [_shown(_median(each.load for each in warm)), _shown(warmed_up.load) if warmed_up else ""]
                if warmed_up:
                    if not cold.compiled or any(each.compiled for each in warm):
                        raise SystemExit(f"{kind}: the cold process has to compile, and no other")
                    self.figures.say(f"{kind}, cold, wall s", cold.load[0], AIMS[kind], at_least=False)
                    self.figures.say(f"{kind}, cold, CPU s", cold.load[1], AIMS[kind], at_least=False)
                    name = f"{kind}, kernels compiled after warm-up"
                    self.figures.say(name, warmed_up.compiled, 0, at_least=False)
        heads = ["kind", "of", "kernels compiled", "cold load()", "warm load()", "after warm-up"]
        show("load() of a small dataset: wall (CPU) s", heads, rows)

    def shards(self) -> None:
        path = self._many_shards()
        shards = len(penstock.open(path).manifest.splits["train"])
        caches = {source: self._cache("shards", source) for source in self.sources}
        starts: dict[Path, list[Start]] = {source: [] for source in self.sources}
        for turn in range(self.given.repeat + 1):
            for source in self.sources:
                start = self._start(path, OPTIONS, source, caches[source])
                if turn:  # the first one compiles
                    starts[source].append(start)
        rows = []
        for source, found in starts.items():
            parts = [[each.imports for each in found], [each.load for each in found]]
            parts.append([(a[0] + b[0], a[1] + b[1]) for a, b in zip(*parts, strict=True)])
            parts.append([each.first_batch for each in found])
            range_ = [each.load[0] for each in found]
            rows.append([self._name(source), *(_shown(_median(part)) for part in parts)])
            rows[-1] += [f"{min(range_):.2f} to {max(range_):.2f}", str(sum(each.compiled for each in found))]
        heads = ["of", "imports", "load()", "imports + load()", "first batch", "load(), wall s", "kernels compiled"]
        title = f"{self.given.events:,} events in {shards} shards, warm, median of {self.given.repeat}"
        show(f"{title}: wall (CPU) s", heads, rows)
        own = starts[self.own]
        if any(each.compiled for each in own):
            raise SystemExit("a warm process compiled kernels")
        print("\nNothing was compiled in these processes, and none said anything.")
        wall, cpu = _median(each.load for each in own)
        self.figures.say(f"load() of {shards} shards, warm, wall s", wall, WARM_AIM, at_least=False)
        self.figures.say(f"load() of {shards} shards, warm, CPU s", cpu, None)
        if self.given.profile:
            self._profile(path, caches[self.own])

    def _many_shards(self) -> Path:
        raw, made = (self.folder / f"{name}-{self.given.events}" for name in ("raw", "shards"))
        if not (made / "manifest.json").exists():
            make_measurements(make_recipe(self.given.events), raw)
            size = sum(file.stat().st_size for file in raw.glob("*.parquet"))
            slice_size = f"slice_size={-(-size * BUCKETS_IN_A_SLICE // BUCKETS)}"
            asked = ["--input", f"{raw}/*.parquet", "--output", str(made), "--memory", "4GB", "--set", slice_size]
            call(sys.executable, "-m", "penstock", "run", "pings", *asked)
        return made

    def _start(self, path: Path, options: dict[str, Any], source: Path, cache: Path) -> Start:
        program = [sys.executable, "-c", PROGRAM, str(path), json.dumps(options)]
        ran = subprocess.run(program, env=self._environment(source, cache), capture_output=True, text=True, check=False)
        if ran.returncode:
            raise SystemExit(ran.stderr)
        *spans, compiled = json.loads(ran.stdout)
        start = Start(*map(tuple, spans), compiled=compiled, said=ran.stderr)
        if source == self.own:
            start.check()
        return start

    def _environment(self, source: Path, cache: Path) -> dict[str, str]:
        given = {**os.environ, "PYTHONPATH": str(source), "PENSTOCK_CACHE_DIR": str(cache)}
        given.pop("NUMBA_CACHE_DIR", None)
        return given if source == self.own else {**given, "NUMBA_CACHE_DIR": str(cache)}  # older ones know no other

    def _cache(self, name: str, source: Path) -> Path:
        """A folder that no run has used."""
        return self.folder / "caches" / f"{unique_name(name)}-{self.sources.index(source)}"

    def _warmed_up(self) -> Path:
        """Cache that `penstock warm-up` filled; once per run."""
        if not hasattr(self, "_warm"):
            self._warm = self._cache("warm-up", self.own)
            command = [sys.executable, "-m", "penstock", "warm-up", "--json"]
            given = self._environment(self.own, self._warm)
            ran = subprocess.run(command, env=given, check=True, capture_output=True, text=True)
            seconds = sum(each["seconds"] for each in json.loads(ran.stdout)["kernels"])
            self.figures.say("penstock warm-up, all kernels, wall s", seconds, None)
        return self._warm

    def _profile(self, path: Path, cache: Path) -> None:
        program = self.folder / "load.py"
        program.write_text(PROGRAM)
        command = [sys.executable, "-m", "cProfile", "-s", "cumulative", str(program), str(path), json.dumps(OPTIONS)]
        ran = subprocess.run(
            command, env=self._environment(self.own, cache), check=True, capture_output=True, text=True
        )
        print("\n".join(ran.stdout.splitlines()[:80]))

    def _name(self, source: Path) -> str:
        return "these sources" if source == self.own else "the others"


def make_rows(folder: Path) -> Path:
    rng = np.random.default_rng(SEED)
    tokens = pa.array(rng.integers(0, 50_000, 1_000 * 65).astype("u2"))
    return _prepare(folder, pa.table({"tokens": pa.FixedSizeListArray.from_arrays(tokens, 65)}), [])


def make_arrays(folder: Path) -> Path:
    rng = np.random.default_rng(SEED)
    features = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=7_000).astype("f4")), 7)
    table = pa.table({"features": features, "label": pa.array(rng.integers(0, 9, 1_000), pa.int16())})
    return _prepare(folder, table, [])


def make_events(folder: Path) -> Path:
    rng, count = np.random.default_rng(SEED), 20_000
    table = pa.table(
        {
            "key": pa.array([f"10.0.0.{key}" for key in rng.integers(0, 200, count)]),
            "at": pa.array(rng.integers(0, 10**9, count), pa.timestamp("s")),
            "value": pa.array(rng.normal(5, 9, count), pa.float64()),
        }
    )
    return _prepare(folder, table, [{"group": {"by": "key", "order": "at"}}])


def _prepare(folder: Path, table: pa.Table, stages: list[Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "input.parquet")
    job = {"input": str(folder / "input.parquet"), "output": str(folder / "out"), "stages": stages}
    penstock.run({**job, "workers": 0, "memory": "1GB"})
    return folder / "out"


def _median(spans: Any) -> Seconds:
    wall, cpu = zip(*spans, strict=True)
    return statistics.median(wall), statistics.median(cpu)


def _shown(seconds: Seconds) -> str:
    return f"{seconds[0]:.2f} ({seconds[1]:.2f})"


QUESTIONS = ("kinds", "shards")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--events", type=int, default=200_000_000, help="in the 644 shards")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=QUESTIONS)
    parser.add_argument("--other", type=Path, help="a source folder (.../src) to measure by turns")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    bench = Bench(given)
    for question in given.only:
        getattr(bench, question)()
    bench.figures.close("first load", bench.folder / "first-load.json")


if __name__ == "__main__":
    main()
