"""What does grouping events by key cost, against a bare scan and against the older system? `make bench-events` runs it.

    python benchmarks/events.py --events 20_000_000 --memory 500MB
    python benchmarks/events.py --events 500_000 --keys 18928
    python benchmarks/events.py --scaling | --skew | --tight

Each question prints one table, with ratios within the run, and appends a JSON line a command to results.jsonl. Data
are made once and kept in the folder. A command that fails is a row with its exit code; exit 1 if one was penstock's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from make_events import make_events, make_recipe
from watch import Cost, machine, settle, watch

from penstock.base.memory import tree_memory
from penstock.base.sizes import format_count, parse_size

HERE = Path(__file__).parent
SCANS = ["scan", "scan-plain"]
OURS = ["native", "arrayrecord"]
BASELINES = ["streaming", "streaming-ordered", "sequential"]
# The same algorithm with its groups kept in Arrow: not the described system, so only by `--only`.
ARROW_BASELINES = ["streaming-arrow", "streaming-ordered-arrow", "sequential-arrow"]
SEQUENTIAL_UP_TO = 500_000
SCALING_SIZES = [1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000]
TIGHT = [(20_000_000, "300MB"), (100_000_000, "512MB")]


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the commands of one part of a table are given."""

    events: int
    memory: str
    keys: int | None = None
    half_in_one_key: bool = False

    def __str__(self) -> str:
        return format_count(self.events) + (", half in one key" if self.half_in_one_key else "")


@dataclass(frozen=True, kw_only=True)
class Result:
    case: Case
    run: str
    exit_code: int
    cost: Cost
    output_bytes: int
    answer: Any
    complaint: str


Ratio = Callable[[Result, list[Result]], float | None]


def make_data(case: Case, folder: Path) -> str:
    recipe = make_recipe(case.events, case.keys, half_in_one_key=case.half_in_one_key)
    data = folder / f"events-{recipe.events}-{recipe.keys}{'-half' if case.half_in_one_key else ''}"
    make_events(recipe, data)
    watch(["cat", *map(str, sorted(data.glob("*.parquet")))])  # every run starts with the same page cache
    return f"{data}/*.parquet"


def command_of(run: str, pattern: str, output: Path, memory: str, given: argparse.Namespace) -> list[str]:
    workers = str(os.cpu_count()) if given.workers == "auto" else given.workers
    files = ["--input", pattern, "--output", str(output)]
    baselines = HERE / "baselines"
    if run in SCANS:
        text = "dictionary" if run == "scan" else "plain"
        return [sys.executable, str(baselines / "events_scan.py"), pattern, workers, text]
    if run in OURS:
        settings = ["by=src_addr", "order=event_time"] + (["format=arrayrecord"] if run == "arrayrecord" else [])
        command = [sys.executable, "-m", "penstock", "run", "events", *files, "--memory", memory]
        command += ["--workers", given.workers]
        return [*command, *(word for setting in settings for word in ("--set", setting)), "--json"]
    rows = ["--rows", "arrow" if run.endswith("-arrow") else "python"]
    if run.startswith("sequential"):
        return [sys.executable, str(baselines / "events_sequential.py"), *files, *rows]
    command = [sys.executable, str(baselines / "events_streaming.py"), *files, *rows, "--workers", workers]
    ordered = ["--ordered"] if "-ordered" in run else []
    return [*command, "--memory-limit-gb", str(given.baseline_memory_gb), *ordered]


def measure(case: Case, run: str, pattern: str, folder: Path, given: argparse.Namespace) -> Result:
    """One command: its own rusage with that of the children it waited for, its peak, and what it wrote."""
    output, words = folder / "out", folder / "words"
    shutil.rmtree(output, ignore_errors=True)
    command = command_of(run, pattern, output, case.memory, given)
    settle()
    with words.with_suffix(".out").open("wb") as out, words.with_suffix(".err").open("wb") as error:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=error)
        peak = 0
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak = max(peak, tree_memory(process.pid).counted)
            time.sleep(0.05)
        wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    cost = Cost(wall, ended[2].ru_utime + ended[2].ru_stime, peak)
    written = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    shutil.rmtree(output, ignore_errors=True)
    said = words.with_suffix(".out").read_text(errors="replace")
    complaint = said + words.with_suffix(".err").read_text(errors="replace")
    return Result(
        case=case, run=run, exit_code=process.returncode, cost=cost, output_bytes=written, answer=_json_or_none(said),
        complaint=complaint if process.returncode else "",
    )  # fmt: skip


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def measure_all(cases: Iterable[Case], runs: list[str], given: argparse.Namespace, question: str) -> list[Result]:
    """Every run of every case `--repeat` times, each kept as a JSON line; the one of median wall goes to the table."""
    folder = Path(given.folder).absolute()
    results = []
    for case in cases:
        pattern = make_data(case, folder)
        for run in runs:
            tries = []
            for _ in range(given.repeat):
                print(f"... {case}: {run}", file=sys.stderr)
                tries.append(measure(case, run, pattern, folder, given))
                keep(tries[-1], question, given)
            failed = [each for each in tries if each.exit_code]
            results.append(
                failed[0] if failed else sorted(tries, key=lambda each: each.cost.wall_seconds)[len(tries) // 2]
            )
    return results


def keep(result: Result, question: str, given: argparse.Namespace) -> None:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True, check=False
    )
    line = {
        "when": datetime.now().isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "machine": machine(),
        "question": question,
        "run": result.run,
        **vars(result.case),
        "workers": given.workers,
        "baseline_memory_gb": given.baseline_memory_gb,
        "exit_code": result.exit_code,
        **vars(result.cost),
        "output_bytes": result.output_bytes,
        "answer": result.answer,
        "complaint": result.complaint[-2000:],
    }
    with open(given.results or Path(given.folder) / "results.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")


def against(run: str | None, amount: Callable[[Result], float], case: Case | None = None) -> Ratio:
    """`amount` over that of `run` in the same case, or of the same run in `case`; none where either failed."""

    def ratio(result: Result, results: list[Result]) -> float | None:
        wanted = (run or result.run, case or result.case)
        found = next((each for each in results if (each.run, each.case) == wanted and not each.exit_code), None)
        return amount(result) / amount(found) if found and not result.exit_code and amount(found) else None

    return ratio


def wall(result: Result) -> float:
    return result.cost.wall_seconds


def cpu(result: Result) -> float:
    return result.cost.cpu_seconds


def memory(result: Result) -> float:
    return result.cost.peak_bytes


def cpu_per_event(result: Result) -> float:
    return result.cost.cpu_seconds / result.case.events


def show(title: str, results: list[Result], ratios: dict[str, Ratio]) -> None:
    heads = ["events", "memory", "run", "exit", "wall s", "CPU s", "peak tree MB", "output MB", "CPU us/event", *ratios]
    print(f"\n{title}; {machine()}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for each in results:
        cells = [
            str(each.case),
            each.case.memory if each.run in OURS else "",
            each.run,
            str(each.exit_code),
            f"{wall(each):.1f}",
            f"{cpu(each):.1f}",
            f"{memory(each) / 1e6:.0f}",
            f"{each.output_bytes / 1e6:.1f}",
            f"{cpu_per_event(each) * 1e6:.2f}",
        ]
        found = [ratio(each, results) for ratio in ratios.values()]
        print(f"| {' | '.join([*cells, *('-' if value is None else f'{value:.2f}' for value in found)])} |")
    for each in results:
        if each.exit_code:
            print(f"\n{each.case}, {each.run}: exit {each.exit_code}\n{each.complaint[-1000:]}")


def ask_table(given: argparse.Namespace) -> list[Result]:
    runs, left_out = [*SCANS, *OURS, *BASELINES], []
    if given.skip_baselines:
        left_out = BASELINES
    elif given.events > SEQUENTIAL_UP_TO:
        left_out = ["sequential"]
    case = Case(events=given.events, keys=given.keys, memory=given.memory)
    results = measure_all([case], given.only or [run for run in runs if run not in left_out], given, "table")
    ratios = {"wall / scan": against("scan", wall)}
    for run in OURS:
        ratios |= {f"CPU / {run}": against(run, cpu), f"memory / {run}": against(run, memory)}
    show(f"{given.events:,} events, {given.workers} processes", results, ratios)
    if left_out and not given.only:
        print(f"\nleft out: {', '.join(left_out)} (`--only` runs what it names)")
    return results


def ask_scaling(given: argparse.Namespace) -> list[Result]:
    cases = [Case(events=events, memory=given.memory) for events in given.sizes or SCALING_SIZES]
    results = measure_all(cases, given.only or ["scan", "native"], given, "scaling")
    show("Cost an event as events grow", results, {"CPU/event / smallest": against(None, cpu_per_event, cases[0])})
    return results


def ask_skew(given: argparse.Namespace) -> list[Result]:
    even = Case(events=given.events, keys=given.keys, memory=given.memory)
    skewed = Case(events=given.events, keys=given.keys, memory=given.memory, half_in_one_key=True)
    results = measure_all([even, skewed], given.only or OURS, given, "skew")
    amounts = {"wall": wall, "CPU": cpu, "memory": memory}
    ratios = {f"{name} / not skewed": against(None, amount, even) for name, amount in amounts.items()}
    show("Half of all events in one key", results, ratios)
    return results


def ask_tight(given: argparse.Namespace) -> list[Result]:
    cases = [Case(events=events, memory=allowed) for events, allowed in TIGHT]
    results = measure_all(cases, given.only or ["native"], given, "tight")

    def of_allowed(result: Result, _: list[Result]) -> float:
        return memory(result) / parse_size(result.case.memory)

    show("Much in little memory", results, {"peak / allowed": of_allowed})
    return results


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--scaling", action="store_true", help="1M to 100M events: cost an event")
    options.add_argument("--skew", action="store_true", help="half of all events in one key, against none such")
    options.add_argument("--tight", action="store_true", help="20M events in 300MB, 100M in 512MB")
    options.add_argument("--events", type=int, default=20_000_000)
    options.add_argument("--keys", type=int, help="default: a hundredth of the events")
    options.add_argument("--sizes", type=int, nargs="+", help="for --scaling, instead of 1M to 100M")
    options.add_argument("--memory", default="500MB", help="for penstock")
    options.add_argument("--baseline-memory-gb", type=float, default=8, help="for DuckDB in the streaming baseline")
    options.add_argument("--workers", default="2", help="processes of each; auto lets penstock choose")
    options.add_argument("--repeat", type=int, default=1)
    options.add_argument("--skip-baselines", action="store_true")
    options.add_argument("--only", nargs="+", choices=[*SCANS, *OURS, *BASELINES, *ARROW_BASELINES])
    options.add_argument("--folder", default=str(HERE.parent / "build" / "bench-events"))
    options.add_argument("--results", help="default: results.jsonl in the folder")
    given = options.parse_args()
    Path(given.folder).mkdir(parents=True, exist_ok=True)
    asked = [ask for ask in (ask_scaling, ask_skew, ask_tight) if getattr(given, ask.__name__.removeprefix("ask_"))]
    results = [result for ask in asked or [ask_table] for result in ask(given)]
    raise SystemExit(any(each.exit_code for each in results if each.run in OURS))


if __name__ == "__main__":
    main()
