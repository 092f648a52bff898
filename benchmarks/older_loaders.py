"""Older loaders: how much faster events are loaded than by the two designs of the older loader, in the same run.

    python -m benchmarks.older_loaders --folder /scratch/loader --peers-python .venv-peers/bin/python

The older designs are baselines/seed_loader.py in real Grain: the `random_map` pipeline, and the later flat-map in two
readings. They run with --peers-python (grain, array_record), in --workers processes, and read the same events as
ArrayRecord. penstock reads its own columns, with threads that it chooses itself: packed, and with one key per row, as
the older rows have it. Each measurement is a process tree of its own. They take turns --repeat times, and a ratio is
the median over the turns. Batches of 128 rows of 1,024 tokens; page cache warm. Preparing the data is not counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import penstock
from benchmarks.figures import call, show
from benchmarks.loader import BATCH, EVENTS, LENGTH, Bench, useful_tokens
from benchmarks.loading import measure
from benchmarks.watch import machine
from penstock.base.machine import cpu_count

OURS = {"penstock, packed": "packed", "penstock, one_key": "one_key"}
OLDER = {"random_map": "none", "flat-map, rows": "rows", "flat-map, contexts": "contexts"}
Facts = dict[str, Any]  # of one measurement: those of Measured


def measure_all(given: argparse.Namespace) -> dict[str, list[Facts]]:
    """Facts of each loader, one per turn."""
    bench = Bench(given.folder, given.peers_python, given.seconds, given.events)
    columns, records = bench.pings(), f"{bench.pings('arrayrecord')}/train.arrayrecord"
    times = ["--seconds", str(given.seconds), "--warm-up", str(given.warm_up)]
    commands = {}
    for name, fill in OURS.items():
        commands[name] = [sys.executable, "-m", "benchmarks.older_loaders", "--own", fill, "--folder", columns, *times]
    for name, fan_out in OLDER.items():
        command = [given.peers_python, "-m", "benchmarks.baselines.seed_loader", "--input", records]
        commands[name] = [*command, "--workers", str(given.workers), "--fan-out", fan_out, *times]
    found: dict[str, list[Facts]] = {name: [] for name in commands}
    for _ in range(given.repeat):
        for name, command in commands.items():
            found[name].append(json.loads(call(*command).splitlines()[-1]))
            print(f"{name}: {found[name][-1]}", flush=True)
    return found


def measure_own(path: Path, fill: str, seconds: float, warm_up: float) -> None:
    options: dict[str, Any] = {"batch_size": BATCH, "length": LENGTH, "fill": fill}
    with penstock.load(path, **options) as loader:
        print(json.dumps(measure(loader, useful_tokens, seconds, warm_up=warm_up).facts()))


def rows_per_second(facts: Facts) -> float:
    return float(facts["batches"] * BATCH / facts["wall_seconds"])


def cpu_seconds_per_row(facts: Facts) -> float:
    return float(facts["cpu_seconds"] / (facts["batches"] * BATCH))


def tokens_per_cpu_second(facts: Facts) -> float:
    return float(facts["tokens"] / facts["cpu_seconds"])


def tokens_per_second(facts: Facts) -> float:
    return float(facts["tokens"] / facts["wall_seconds"])


def padding(facts: Facts) -> float:
    return 1 - facts["tokens"] / (facts["batches"] * BATCH * LENGTH)


def peak_megabytes(facts: Facts) -> float:
    return float(facts["peak_bytes"] / 1e6)


def first_batch_seconds(facts: Facts) -> float:
    return float(facts["first_batch_seconds"])


COLUMNS = {
    "rows/s": (rows_per_second, "{:,.0f}"),
    "useful tokens/s": (tokens_per_second, "{:,.0f}"),
    "not useful": (padding, "{:.0%}"),
    "CPU s/row": (cpu_seconds_per_row, "{:.2g}"),
    "peak tree MB": (peak_megabytes, "{:,.0f}"),
    "first batch s": (first_batch_seconds, "{:.2f}"),
}


def show_all(found: dict[str, list[Facts]], given: argparse.Namespace) -> None:
    rows = []
    for name, turns in found.items():
        cells = [shape.format(statistics.median(map(amount, turns))) for amount, shape in COLUMNS.values()]
        rows.append([name, *cells])
    title = f"{given.events:,} events, {given.workers} processes of Grain, {given.repeat} turns of {given.seconds:g} s"
    show(f"{title}; {machine()}", ["loader", *COLUMNS], rows)
    ratios = [[f"{own}, over {name}", *_ratios(found[own], found[name])] for name in OLDER for own in OURS]
    show("Times as good, medians of the turns", ["", *RATIOS], ratios)


RATIOS = {
    "useful tokens/s": lambda ours, older: tokens_per_second(ours) / tokens_per_second(older),
    "useful tokens/CPU s": lambda ours, older: tokens_per_cpu_second(ours) / tokens_per_cpu_second(older),
    "rows/s": lambda ours, older: rows_per_second(ours) / rows_per_second(older),
    "rows/CPU s": lambda ours, older: cpu_seconds_per_row(older) / cpu_seconds_per_row(ours),
    "memory": lambda ours, older: older["peak_bytes"] / ours["peak_bytes"],
}


def _ratios(ours: list[Facts], older: list[Facts]) -> list[str]:
    return [f"{statistics.median(map(ratio, ours, older)):,.4g}" for ratio in RATIOS.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--peers-python", default=sys.executable, help="where grain and array_record are installed")
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--workers", type=int, default=cpu_count().amount, help="processes of Grain; 0: threads alone")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--warm-up", type=float, default=10, help="seconds before, in which buffers are filled")
    parser.add_argument("--own", choices=sorted(OURS.values()), help=argparse.SUPPRESS)  # one measurement of `folder`
    given = parser.parse_args()
    if given.own:
        measure_own(given.folder, given.own, given.seconds, given.warm_up)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    found = measure_all(given)
    show_all(found, given)
    (given.folder / "older-loaders.json").write_text(json.dumps({"machine": machine(), **found}, indent=1))


if __name__ == "__main__":
    main()
