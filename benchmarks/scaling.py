"""Does every core count? One run with n workers, against n runs of one worker side by side on an n-th of the data each.

    python -m benchmarks.scaling --folder build/bench-scaling                        # as many workers as cores
    python -m benchmarks.scaling --folder /scratch/scaling --events 200000000 --text 4GB --memory 28GB
    python -m benchmarks.scaling --folder ... --only text --tokenizer tokenizer.json --documents 'real/*.jsonl'
    python -m benchmarks.scaling --folder ... --simulated-cores 16 --events 100000000 --text 1GB   # as root

The runs side by side share nothing but the machine: its caches, its memory bandwidth and its disk. So the ratio of the
two walls shows what one run loses by itself: a driver that is busy, passes that wait for each other, uneven tasks. Each
single run may use an n-th of the memory. Both ways by turns, `--repeat` times; figures are medians. Peaks are what the
runs have noted themselves, because a look from outside at so many processes would slow them down.

`--simulated-cores 16` is for a machine with fewer: each process gets a cgroup of its own with the CPU time of one slow
core, and all of them together that of 16 (benchmarks/cgroups.py). So the one run has a driver, a process that forks
and 16 workers on 16 slow cores, and the runs beside each other have 16 of each. What it shows: a process that is busy
alone while others wait, tasks that are uneven, starts. What it does not show: memory bandwidth, caches, page cache,
disk, and locks of the kernel, which 16 real cores press on 9 times as hard. Sleeps and timeouts are not slowed down.
"Driver CPU" is the CPU time of the one process that plans, hands out tasks and finishes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.cgroups import slow_machine
from benchmarks.figures import Figures, show
from benchmarks.make_events import make_events, make_recipe
from benchmarks.watch import Cost, settle, timed_together
from penstock.base.sizes import parse_size

HERE = Path(__file__).parent
TOKENIZER = HERE.parent / "examples" / "text" / "tokenizer"
AIM = 0.8
SHARE = 0.9  # of the cores here, for simulated ones: the rest is for what looks at them
FILES_PER_WORKER = 2
SENTENCES, WORDS, LETTERS = 20_000, 5_000, "etaoinshrdlucmfwypvbgk"


@dataclass(frozen=True)
class Case:
    """One kind of data: where it lies, how files end, and the stages."""

    name: str
    data: Path
    ending: str
    stages: list[Any]


@dataclass(frozen=True)
class Cores:
    """Simulated cores, each `quota` of one here."""

    count: int
    quota: float


@dataclass(frozen=True)
class Turn:
    """One way of doing it, once: its cost, and seconds by pass: those of the slowest, where there are several runs."""

    cost: Cost
    passes: dict[str, float]
    driver_seconds: float = 0.0  # of CPU, of the driver that used most; known of simulated cores


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, default=Path("build/bench-scaling"))
    options.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options.add_argument("--memory", default="", help="of the one run. Default: 1GB per worker")
    options.add_argument("--events", type=int, default=20_000_000)
    options.add_argument("--text", default="400MB", help="of generated documents")
    options.add_argument("--documents", help="files of JSON lines with a column `text`, instead of generated ones")
    options.add_argument("--tokenizer", type=Path, default=TOKENIZER)
    options.add_argument("--repeat", type=int, default=3)
    options.add_argument("--only", help="events or text")
    options.add_argument("--before", type=Path, help="src/ of an earlier tree, whose one run is measured as well")
    options.add_argument("--simulated-cores", type=int, default=0, help="and as many workers")
    options.add_argument("--quota", type=float, help="of a core here, for a simulated one. Default: 0.9 of all cores")
    given = options.parse_args()
    given.workers = given.simulated_cores or given.workers
    quota = given.quota or SHARE * len(os.sched_getaffinity(0)) / given.workers
    cores = Cores(given.simulated_cores, quota) if given.simulated_cores else None
    memory = parse_size(given.memory or f"{given.workers}GB")
    given.folder = given.folder.absolute()
    figures = Figures(workers=given.workers, memory=memory, cores=cores and asdict(cores))
    made: dict[str, Callable[[argparse.Namespace], Case]] = {"events": events_case, "text": text_case}
    for name, make in made.items():
        if given.only in (None, name):
            compare(make(given), given, memory, figures, cores)
    figures.close(f"{given.workers} workers, medians of {given.repeat}", given.folder / "results.json")


def compare(case: Case, given: argparse.Namespace, memory: int, figures: Figures, cores: Cores | None) -> None:
    folder, workers = given.folder, given.workers
    files = sorted(case.data.glob(f"*{case.ending}"))
    shares = [files[number::workers] for number in range(workers)]
    if not all(shares):
        raise SystemExit(f"{len(files)} files in {case.data} are too few for {workers} workers")
    ways: dict[str, list[Turn]] = {"one run": [], "side by side": []}
    if given.before:
        ways["one run, before"] = []
    for _ in range(given.repeat):
        ways["one run"].append(turn(case, folder, [files], workers, memory, cores))
        ways["side by side"].append(turn(case, folder, shares, 1, memory // workers, cores))
        if given.before:
            ways["one run, before"].append(turn(case, folder, [files], workers, memory, cores, given.before.resolve()))
    tell(case.name, ways, sum(path.stat().st_size for path in files), workers, figures)


def turn(
    case: Case,
    folder: Path,
    shares: list[list[Path]],
    workers: int,
    memory: int,
    cores: Cores | None,
    source: Path = HERE.parent / "src",
) -> Turn:
    """Run a job per share, all at once."""
    for path in (path for share in shares for path in share):  # every turn begins with the same page cache
        with path.open("rb") as file:
            while file.read(1 << 24):
                pass
    jobs, outputs = [], []
    for number, share in enumerate(shares):
        place = folder / f"{case.name}-{len(shares)}-{number}"
        shutil.rmtree(place, ignore_errors=True)
        (place / "input").mkdir(parents=True)
        for path in share:
            (place / "input" / path.name).symlink_to(path)
        job = {"input": f"{place}/input/*", "stages": case.stages, "output": f"{place}/out"}
        (place / "job.yaml").write_text(json.dumps({**job, "workers": workers, "memory": memory}))
        jobs.append([sys.executable, "-m", "penstock", "run", str(place / "job.yaml"), "--json"])
        outputs.append(place / "out" / ".penstock" / "run.json")
    settle()
    environment = {"PYTHONPATH": str(source), "PENSTOCK_CACHE_DIR": str(folder / "cache")}
    environment["PYTHONDONTWRITEBYTECODE"] = ""  # it is kept, as it is where penstock is installed
    driver_seconds = 0.0
    if cores:
        with slow_machine(cores.count, cores.quota) as machine:
            cost = timed_together(jobs, environment, machine.start)
            driver_seconds = max(machine.cpu_seconds[pid] for pid in machine.started)
    else:
        cost = timed_together(jobs, environment)
    facts = [json.loads(output.read_text()) for output in outputs]
    for number in range(len(shares)):
        shutil.rmtree(folder / f"{case.name}-{len(shares)}-{number}")
    passes: dict[str, float] = {}
    for each in (each for run in facts for each in run["passes"]):
        name = f"{each['number']} {each['kind']}"
        passes[name] = max(passes.get(name, 0.0), each["seconds"])
    peak = sum(run["peak_memory_bytes"] for run in facts)
    return Turn(Cost(cost.wall_seconds, cost.cpu_seconds, peak), passes, driver_seconds)


def tell(name: str, ways: dict[str, list[Turn]], size: int, workers: int, figures: Figures) -> None:
    """A table of both ways by pass, and the ratio. The row "rest" is planning, finishing, and the start of Python."""
    medians = {
        way: sorted(turns, key=lambda each: each.cost.wall_seconds)[len(turns) // 2] for way, turns in ways.items()
    }
    costs = {way: each.cost for way, each in medians.items()}
    speeds = {way: f"{size / cost.wall_seconds / 1e6:,.0f}" for way, cost in costs.items()}
    figures.show_costs(f"{name}, {size / 1e9:.2f} GB, {workers} workers", costs, "MB/s", speeds)
    every = list(medians.values())
    rows = [[number, *(f"{each.passes.get(number, 0):.2f}" for each in every)] for number in every[0].passes]
    rest = [each.cost.wall_seconds - sum(each.passes.values()) for each in every]
    rows.append(["rest", *(f"{seconds:.2f}" for seconds in rest)])
    if every[0].driver_seconds:
        rows.append(["driver CPU", *(f"{each.driver_seconds:.2f}" for each in every)])
    show(f"{name}: seconds by pass; side by side, of the slowest", ["pass", *medians], rows)
    walls = [[each.cost.wall_seconds for each in turns] for turns in ways.values()]
    ratio = statistics.median(walls[1]) / statistics.median(walls[0])
    figures.kept[f"{name}, walls"] = dict(zip(ways, walls, strict=True))
    figures.say(f"{name}: throughput of one run over that of {workers} side by side", ratio, AIM)


def events_case(given: argparse.Namespace) -> Case:
    data = given.folder / f"events-{given.events}-{given.workers}"
    make_events(make_recipe(given.events, files=FILES_PER_WORKER * given.workers), data)
    stages = [{"group": {"by": "src_addr", "order": "event_time"}}, {"split": {"by": "key", "test": 0.1}}]
    return Case("events", data, ".parquet", stages)


def text_case(given: argparse.Namespace) -> Case:
    """Documents of random sentences, of which no two are the same, or documents of the user's own."""
    data = given.folder / f"text-{given.text}-{given.workers}"
    if given.documents:
        data = Path(given.documents).absolute().parent
    elif not (data / "complete").exists():
        data.mkdir(parents=True, exist_ok=True)
        count = FILES_PER_WORKER * given.workers
        with Pool(given.workers) as pool:
            pool.map(partial(_write_documents, data, parse_size(given.text) // count), range(count))
        (data / "complete").touch()
    stages = [{"clean": {}}, {"dedup": {}}, {"tokenize": {"tokenizer": str(given.tokenizer.absolute())}}]
    ending = Path(given.documents).suffix if given.documents else ".jsonl"
    return Case("text", data, ending, [*stages, {"pack": {"length": 2048}}])


def _write_documents(folder: Path, size: int, number: int) -> None:
    random = Random(0)
    words = ["".join(random.choices(LETTERS, k=random.randint(1, 10))) for _ in range(WORDS)]
    sentences = [" ".join(random.choices(words, k=random.randint(4, 24))) + ". " for _ in range(SENTENCES)]
    random = Random(number + 1)
    with (folder / f"{number:05d}.jsonl").open("w") as file:
        while file.tell() < size:
            text = "".join(random.choices(sentences, k=random.randint(5, 80)))
            file.write(f'{{"text": "{text}"}}\n')


if __name__ == "__main__":
    main()
