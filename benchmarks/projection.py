"""Projection: how near is `penstock plan --nodes` to runs on several machines? `make bench-projection`, as root.

    python -m benchmarks.projection --folder build/bench-projection
    python -m benchmarks.projection --folder ... --quota 0.2 --nodes 1 2 4 --repeat 3 --only text

A node is simulated: a cgroup with a fixed quota of CPU time, in which `penstock work` and all its processes run. One
more has `penstock run --engine workers`, which plans and watches. So nodes of 0.2 cores are slow machines, and five of
them are one core of this one; whatever else runs here must leave that much. A node that works used up its quota in most
periods: one that did not, had to wait, for other nodes or for this machine. The plan is made in such a cgroup too.

Wall seconds count from the start of `penstock run` to its end, planning and start-up included. What the command calls
`--nodes N` is `Nodes(N, cores=quota)` here: none of its options gives a machine a part of a core.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.cgroups import Cgroup, make_cgroup
from benchmarks.figures import Figures, show
from benchmarks.make_events import make_events, make_recipe

HERE = Path(__file__).parent
TOKENIZER = HERE.parent / "examples" / "text" / "tokenizer"
AIM = 0.25
PLAN = ".penstock/plan.json"
WORDS = "the gate opens and a river turns its wheel while keepers write letters about rain and old machines"


@contextmanager
def nodes(count: int, quota: float) -> Iterator[list[Cgroup]]:
    """Cgroups, gone in the end."""
    with ExitStack() as stack:
        made = []
        for number in range(count):
            made.append(make_cgroup(f"penstock-projection-{os.getpid()}-{number}", quota))
            stack.callback(made[-1].folder.rmdir)
        yield made


def start(node: Cgroup, command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with open(log, "wb") as said:
        return node.start(command, stdout=said, stderr=said, env=_environment())


def jobs_in(folder: Path, events: int, documents: int) -> dict[str, dict[str, Any]]:
    """Jobs of each family, with their data, which are made once."""
    files = max(4, events // 250_000)
    make_events(make_recipe(events, files=files), folder / "events")
    _make_documents(folder / "documents", documents, files=24)
    rows = {"input": str(folder / "events" / "*.parquet"), "memory": "1GB", "slice_size": "16MB"}
    text = {"input": str(folder / "documents" / "*.jsonl"), "memory": "1GB", "slice_size": "4MB"}
    tokenize = {"tokenize": {"tokenizer": str(TOKENIZER)}}
    return {
        "events": {
            **rows,
            "stages": [
                {"group": {"by": "src_addr", "order": "event_time"}},
                {"split": {"by": "src_addr", "test": 0.1}},
            ],
        },
        "rows": {**rows, "stages": [{"filter": "rtt > 1"}, {"normalize": ["rtt"]}]},
        "text": {**text, "stages": ["clean", "dedup", tokenize, {"pack": 1024}]},
    }


def _make_documents(folder: Path, count: int, files: int) -> None:
    """Documents of sentences with numbers, one in ten of them twice."""
    if folder.is_dir():
        return
    beside = folder.with_name(f"{folder.name}-unfinished")
    beside.mkdir(parents=True, exist_ok=True)
    words = WORDS.split()
    for file in range(files):
        with open(beside / f"{file:03d}.jsonl", "w") as lines:
            for number in range(file * count // files, (file + 1) * count // files):
                seed = number - number % 10 if number % 10 == 9 else number
                said = (f"{words[(seed * 7 + each * 5) % len(words)]} {seed * 31 + each}" for each in range(150))
                lines.write(json.dumps({"text": " ".join(said)}) + "\n")
    beside.rename(folder)


def projected(job: Path, counts: list[int], quota: float) -> dict[str, Any]:
    """What the model says, by number of nodes. Runs in a node's own process."""
    import penstock
    from penstock.base.machine import process_age
    from penstock.base.sizes import parse_rate
    from penstock.prepare.plan.nodes import NETWORK, Nodes
    from penstock.prepare.plan.spread import spread

    plan = penstock.plan(job)
    age = process_age()
    found = {count: spread(plan, Nodes(count, quota, plan.means.budget, parse_rate(NETWORK)), age) for count in counts}
    return {
        str(count): {
            "seconds": each.seconds,
            "start": each.start_seconds,
            "passes": {f"{one.number} {one.kind}": one.seconds for one in each.passes},
            "work": {f"{one.number} {one.kind}": one.work_seconds for one in each.passes},
        }
        for count, each in found.items()
    }


def project(job: Path, counts: list[int], quota: float, folder: Path) -> dict[str, Any]:
    with nodes(1, quota) as (node,):
        log = folder / "plan.log"
        command = ["-m", "benchmarks.projection", "--project", str(job), "--quota", str(quota), "--nodes"]
        if start(node, [sys.executable, *command, *map(str, counts)], log).wait():
            raise SystemExit(log.read_text()[-2000:])
        told: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
        return told


def run(job: Path, output: Path, count: int, quota: float, folder: Path) -> dict[str, Any]:
    """One run: wall seconds, and how often a node had used up its quota."""
    shutil.rmtree(output, ignore_errors=True)
    os.sync()
    python = [sys.executable, "-m", "penstock"]
    with nodes(count + 1, quota) as (first, *others), ExitStack() as stack:
        began, stolen = time.monotonic(), _stolen()
        before = [each.stat for each in others]
        head = start(first, [*python, "run", str(job), "--engine", "workers", "--json"], folder / "run.log")
        stack.callback(_end, head)
        while not (output / PLAN).exists() and head.poll() is None:
            time.sleep(0.02)
        planned = time.monotonic() - began
        works = []
        for number, node in enumerate(others):
            works.append(start(node, [*python, "work", str(output), "--json"], folder / f"work-{number}.log"))
            stack.callback(_end, works[-1])
        code = head.wait()
        seconds = time.monotonic() - began
        codes = [each.wait(60) for each in works]
        if code or any(codes):
            raise SystemExit(f"exit codes {code} and {codes}: see {folder}/*.log")
        used = [node.used_up(was, node.stat) for node, was in zip(others, before, strict=True)]
    facts = json.loads((output / ".penstock" / "run.json").read_text())
    passes = {f"{each['number']} {each['kind']}": each["seconds"] for each in facts["passes"]}
    steal = (_stolen() - stolen) / seconds
    return {"seconds": seconds, "planned": planned, "passes": passes, "used_up": used, "stolen_cores": steal}


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


def _stolen() -> float:
    """Seconds that other guests of the host had of our cores."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{HERE.parent / 'src'}:{HERE.parent}", "PYTHONDONTWRITEBYTECODE": ""}


def compare(
    name: str, job: Path, output: Path, given: argparse.Namespace, folder: Path, figures: Figures
) -> dict[str, Any]:
    """Rows of one job: projected, measured, and the error of the medians. Projections and runs go by turns."""
    told, done = [], {count: list[dict[str, Any]]() for count in given.nodes}
    for _ in range(given.repeat):
        told.append(project(job, given.nodes, given.quota, folder))
        for count in given.nodes:
            done[count].append(run(job, output, count, given.quota, folder))
            print(name, count, told[-1][str(count)]["seconds"], done[count][-1], flush=True)
    rows = []
    for count in given.nodes:
        said = [each[str(count)]["seconds"] for each in told]
        took = [each["seconds"] for each in done[count]]
        error = statistics.median(said) / statistics.median(took) - 1
        used_up = statistics.median(min(each["used_up"]) for each in done[count])
        stolen = statistics.median(each["stolen_cores"] for each in done[count])
        spread = f"{min(took):.1f} to {max(took):.1f}"
        rows.append(
            [str(count), f"{statistics.median(said):.1f}", f"{min(said):.1f} to {max(said):.1f}"]
            + [f"{statistics.median(took):.1f}", spread, f"{error:+.0%}", f"{used_up:.0%}", f"{stolen:.2f}"]
        )
        figures.say(f"{name}, {count} nodes: error", abs(error), AIM, at_least=False)
    heads = ["nodes", "projected s", "from, to", "measured s", "from, to", "error", "periods used up", "stolen cores"]
    show(f"{name}: medians of {given.repeat}, nodes of {given.quota:g} cores", heads, rows)
    return {"projected": told, "measured": done}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, default=Path("build/bench-projection"))
    options.add_argument("--quota", type=float, default=0.2, help="cores of a node")
    options.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--events", type=int, default=10_000_000)
    options.add_argument("--documents", type=int, default=60_000)
    options.add_argument("--only", help="jobs whose name has this in it")
    options.add_argument("--project", type=Path, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.project:
        print(json.dumps(projected(given.project, given.nodes, given.quota)))
        return
    if (max(given.nodes) + 1) * given.quota > len(os.sched_getaffinity(0)):
        raise SystemExit(
            f"{max(given.nodes)} nodes and a watcher of {given.quota:g} cores are more than this machine has"
        )
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    figures = Figures(quota=given.quota, repeat=given.repeat)
    for name, job in jobs_in(folder, given.events, given.documents).items():
        if not given.only or given.only in name:
            path, output = folder / f"{name}.yaml", folder / f"out-{name}"
            path.write_text(yaml.safe_dump({**job, "output": str(output), "workers": 1}, sort_keys=False))
            figures.kept[name] = compare(name, path, output, given, folder, figures)
    figures.close("projected against measured", folder / "results.json")


if __name__ == "__main__":
    main()
