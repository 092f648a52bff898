"""Ray overhead: what does a job take on a Ray cluster of one node, beyond starting it, over local workers?

    python -m benchmarks.ray_overhead --folder build/bench-ray                    # a job of about a minute on 2 cores
    python -m benchmarks.ray_overhead --folder ... --events 2000000 --repeat 1    # a look

The job groups events by key. Both engines run by turns, on as many cores as this machine has. The time of the passes is
compared: from the first pass to the end of the last one, as the run's own events tell it. So starting Ray, which costs
the same whatever the job, is outside; it is printed too. Needs `pip install 'penstock[ray]'`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import Figures, show
from benchmarks.make_events import make_events, make_recipe
from benchmarks.watch import settle, timed
from penstock.base.stores import open_store
from penstock.shards.manifest import dataset_id

AIM = 1.15
ENGINES = ("local", "ray")
STAGES = [{"group": {"by": "src_addr", "order": "event_time"}}, {"split": {"by": "key", "test": 0.1}}]


class Times(NamedTuple):
    wall: float
    passes: float  # seconds, of it
    dataset: str


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, default=Path("build/bench-ray"))
    options.add_argument("--events", type=int, default=40_000_000)
    options.add_argument("--memory", default="4GB")
    options.add_argument("--repeat", type=int, default=3)
    given = options.parse_args()
    folder = given.folder.absolute()
    data = folder / f"events-{given.events}"
    make_events(make_recipe(given.events), data)
    times: dict[str, list[Times]] = {engine: [] for engine in ENGINES}
    for _ in range(given.repeat):
        for engine in ENGINES:
            times[engine].append(run(engine, data, folder, given.memory))
    tell(times, folder, given.events)


def run(engine: str, data: Path, folder: Path, memory: str) -> Times:
    """One run of the job into a folder that is not there, and where its time went."""
    output = folder / f"prepared-{engine}"
    shutil.rmtree(output, ignore_errors=True)
    job = {"input": f"{data}/*.parquet", "output": str(output), "stages": STAGES, "memory": memory, "engine": engine}
    file = folder / f"{engine}.yaml"
    file.write_text(json.dumps(job))
    settle()
    cost = timed([sys.executable, "-m", "penstock", "run", str(file)])
    lines = (output / ".penstock" / "events.jsonl").read_text().splitlines()
    events: list[dict[str, Any]] = [json.loads(line) for line in lines]
    passes = sum(event["seconds"] for event in events if event["event"] == "pass_done")
    return Times(cost.wall_seconds, passes, dataset_id(open_store(output)))


def tell(times: dict[str, list[Times]], folder: Path, events: int) -> None:
    middle = {engine: _median(found) for engine, found in times.items()}
    rows = [[engine, f"{each.passes:.1f}", f"{each.wall - each.passes:.1f}"] for engine, each in middle.items()]
    show(f"{events:,} events, grouped by key", ["engine", "passes s", "before and after s"], rows)
    if len({each.dataset for found in times.values() for each in found}) > 1:
        raise SystemExit("the engines wrote different datasets")
    figures = Figures(times={engine: [each._asdict() for each in found] for engine, found in times.items()})
    figures.say("Ray's passes over local ones", middle["ray"].passes / middle["local"].passes, AIM, at_least=False)
    figures.close(f"Ray {version('ray')}, {len(times['ray'])} turns", folder / "results.json")


def _median(found: list[Times]) -> Times:
    return Times(
        statistics.median(each.wall for each in found),
        statistics.median(each.passes for each in found),
        found[0].dataset,
    )


if __name__ == "__main__":
    main()
