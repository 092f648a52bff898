"""Figures: what a benchmark has measured, beside what was asked of it; printed as tables and kept as JSON."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.watch import Cost, machine


@dataclass(frozen=True)
class Figure:
    """A number beside what was asked of it, if anything was."""

    name: str
    value: float
    aim: float | None
    at_least: bool

    @property
    def verdict(self) -> str:
        if self.aim is None:
            return ""
        return "met" if (self.value >= self.aim if self.at_least else self.value <= self.aim) else "missed"


class Figures:
    """All of one run, and whatever else is `kept` with them."""

    def __init__(self, **kept: Any) -> None:
        self.kept: dict[str, Any] = {"machine": machine(), **kept}
        self._all: list[Figure] = []

    def say(self, name: str, value: float, aim: float | None, at_least: bool = True) -> None:
        self._all.append(Figure(name, value, aim, at_least))

    def show_costs(self, title: str, costs: dict[str, Cost], unit: str, in_unit: dict[str, str]) -> None:
        """`in_unit` is the speed or cost of each in `unit`, written out."""
        self.kept[title] = {name: asdict(cost) for name, cost in costs.items()}
        rows = []
        for name, cost in costs.items():
            memory = f"{cost.peak_bytes / 1e6:,.0f}" if cost.peak_bytes else ""
            rows.append([name, f"{cost.wall_seconds:.2f}", f"{cost.cpu_seconds:.2f}", memory, in_unit.get(name, "")])
        show(title, ["run", "wall s", "CPU s", "peak tree MB", unit], rows)

    def close(self, title: str, path: Path) -> None:
        """Every figure beside its aim."""
        rows = []
        for each in self._all:
            aim = "" if each.aim is None else f"{'>=' if each.at_least else '<='} {each.aim:g}"
            rows.append([each.name, f"{each.value:.2f}", aim, each.verdict])
        show(f"Aims; {machine()}; {title}", ["figure", "measured", "aim", ""], rows)
        self.kept["figures"] = [{**asdict(each), "verdict": each.verdict} for each in self._all]
        path.write_text(json.dumps(self.kept, indent=1))


def show(title: str, heads: list[str], rows: list[list[str]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for row in rows:
        print(f"| {' | '.join(row)} |", flush=True)


def median(costs: list[Cost]) -> Cost:
    return sorted(costs, key=lambda each: each.wall_seconds)[len(costs) // 2]


def call(*command: str) -> str:
    """What it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
    return done.stdout
