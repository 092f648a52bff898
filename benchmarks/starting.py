"""Starting: what does a command cost before there is data to speak of? `make bench-starting` runs it.

    python -m benchmarks.starting --folder build/bench-starting
    python -m benchmarks.starting --folder ... --before ../before/src      # another tree, by turns
    python -m benchmarks.starting --folder ... --tokenizer tokenizer.json  # a larger one

Whole commands on small data, each over a bare Python that imports the parts of Arrow that every job needs. All run by
turns, `--repeat` times, one process tree at a time, with a cache folder of their own; figures are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Figures, show
from benchmarks.game_samples import FLAGS, SCHEMA
from benchmarks.make_events import make_events, make_recipe
from benchmarks.make_games import make_games
from benchmarks.watch import Cost, timed

HERE = Path(__file__).parent
TOKENIZER = HERE.parent / "examples" / "text" / "tokenizer"
BARE = "import pyarrow, pyarrow.parquet, pyarrow.compute"
PARAGRAPH = "The gate opens and the river turns the wheel. Letter {number} of the keeper, which says nothing new.\n"
MEMORY = "4GB"
EVENTS, KEYS, SAMPLES, DOCUMENTS = 500_000, 18_928, 270, 20


@dataclass(frozen=True)
class Command:
    """`arguments` of Python, for one tree. `aim` is how many times the bare import it may take."""

    name: str
    arguments: Callable[[str], list[str]]
    aim: float | None = None


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--folder", type=Path, default=Path("build/bench-starting"))
    options.add_argument("--before", type=Path, help="src/ of an earlier tree")
    options.add_argument("--tokenizer", type=Path, default=TOKENIZER)
    options.add_argument("--repeat", type=int, default=9)
    options.add_argument("--only", help="commands whose name has this in it")
    given = options.parse_args()
    folder = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    trees = {"before": given.before.resolve()} if given.before else {}
    trees["now"] = HERE.parent / "src"
    commands = [each for each in commands_in(folder, given.tokenizer) if not given.only or given.only in each.name]
    costs = measured(commands, trees, folder, given.repeat)
    figures = Figures(repeat=given.repeat)
    for tree in trees:
        tell(tree, commands, costs[tree], figures)
    figures.close(f"medians of {given.repeat} turns", folder / "results.json")


def measured(
    commands: list[Command], trees: dict[str, Path], folder: Path, repeat: int
) -> dict[str, dict[str, list[Cost]]]:
    """The costs of all commands by tree and name. The first turn fills caches and is not kept."""
    bare = Command(BARE, lambda _: ["-c", BARE])
    costs: dict[str, dict[str, list[Cost]]] = {tree: {each.name: [] for each in (bare, *commands)} for tree in trees}
    for turn in range(repeat + 1):
        for command in (bare, *commands):
            for tree, source in trees.items():
                environment = {
                    "PYTHONPATH": str(source),
                    "PYTHONDONTWRITEBYTECODE": "",  # it is kept, as it is where penstock is installed
                    "PENSTOCK_CACHE_DIR": str(folder / f"cache-{tree}"),
                }
                cost = timed([sys.executable, *command.arguments(tree)], environment)
                if turn:
                    costs[tree][command.name].append(cost)
    return costs


def tell(tree: str, commands: list[Command], costs: dict[str, list[Cost]], figures: Figures) -> None:
    """One table for one tree, and a figure per command that has an aim."""
    bare_wall, bare_cpu = medians(costs[BARE])
    rows = [[BARE, f"{bare_wall:.2f}", "", f"{bare_cpu:.2f}", "", ""]]
    for each in commands:
        wall, cpu = medians(costs[each.name])
        aim = "" if each.aim is None else f"{each.aim:g}"
        rows.append([each.name, f"{wall:.2f}", f"{wall / bare_wall:.1f}", f"{cpu:.2f}", f"{cpu / bare_cpu:.1f}", aim])
        if tree == "now" and each.aim is not None:
            figures.say(f"{each.name}, wall over the bare import", wall / bare_wall, each.aim, at_least=False)
            figures.say(f"{each.name}, CPU over the bare import", cpu / bare_cpu, each.aim, at_least=False)
    figures.kept[tree] = {name: [vars(cost) for cost in found] for name, found in costs.items()}
    show(f"Starting, {tree}", ["command", "wall s", "times", "CPU s", "times", "aim"], rows)


def medians(costs: list[Cost]) -> tuple[float, float]:
    return statistics.median(each.wall_seconds for each in costs), statistics.median(each.cpu_seconds for each in costs)


def commands_in(folder: Path, tokenizer: Path) -> list[Command]:
    return [
        Command(f"{DOCUMENTS} documents", _run(folder, "documents", documents_job(folder, tokenizer)), 5),
        Command(f"{SAMPLES} samples", _run(folder, "samples", samples_job(folder)), 4),
        Command(f"{EVENTS:,} events", _run(folder, "events", events_job(folder)), 4),
        Command("penstock --help", lambda _: ["-m", "penstock", "--help"]),
        Command("import penstock.prepare.job.config", lambda _: ["-c", "import penstock.prepare.job.config"]),
    ]


def _run(folder: Path, name: str, job: dict[str, Any]) -> Callable[[str], list[str]]:
    """`penstock run` of the job, into a folder that is not there."""

    def arguments(tree: str) -> list[str]:
        output = folder / f"prepared-{tree}-{name}"
        shutil.rmtree(output, ignore_errors=True)
        file = folder / f"{name}-{tree}.yaml"
        file.write_text(json.dumps({**job, "output": str(output), "memory": MEMORY}))
        return ["-m", "penstock", "run", str(file)]

    return arguments


def documents_job(folder: Path, tokenizer: Path) -> dict[str, Any]:
    path = folder / "documents.jsonl"
    texts = ("".join(PARAGRAPH.format(number=number) for _ in range(1 + number % 7)) for number in range(DOCUMENTS))
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    stages = [{"clean": {}}, {"dedup": {}}, {"tokenize": {"tokenizer": os.path.abspath(tokenizer), "add_eos": False}}]
    return {"input": str(path), "stages": [*stages, {"pack": {"length": 128}}]}


def samples_job(folder: Path) -> dict[str, Any]:
    shutil.copy(HERE / "game_samples.py", folder)
    source = {
        "files": make_games(SAMPLES, folder / f"games-{SAMPLES}"),
        "function": "game_samples:samples",
        "schema": SCHEMA,
    }
    stages = [
        {"split": {"by": "game_id", "val": 0.1, "test": 0.1}},
        {"normalize": {"columns": ["features"], "method": "standard", "skip": [f"0:{FLAGS}"]}},
    ]
    return {"input": source, "stages": stages, "format": "arrays"}


def events_job(folder: Path) -> dict[str, Any]:
    data = folder / f"events-{EVENTS}"
    make_events(make_recipe(EVENTS, KEYS), data)
    stages = [{"group": {"by": "src_addr", "order": "event_time"}}, {"split": {"by": "key", "test": 0.1}}]
    return {"input": f"{data}/*.parquet", "stages": stages}


if __name__ == "__main__":
    main()
