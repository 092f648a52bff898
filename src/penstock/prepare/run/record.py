"""Record: what happens in a run -> memory and speed of each pass, a timeline of memory, and the slowest tasks.

Whatever the run's length, it holds some hundred numbers. Nothing in it decides a byte.
"""

import heapq
import itertools
from dataclasses import dataclass, field
from typing import Any

from penstock.base.events import MemoryFacts, TaskDone
from penstock.prepare.engines.events import Effort
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Pass, Task
from penstock.prepare.plan.plan import Planned
from penstock.prepare.sources.slices import Slice
from penstock.prepare.survey.survey import Survey

_MOST_POINTS = 500
_MOST_TASKS = 20
_FIRST_SPAN_SECONDS = 0.25  # samples come no faster


@dataclass
class Timeline:
    """Peaks of memory over time, at most 500. A run that is longer than they cover gets spans of twice the length."""

    span: float = _FIRST_SPAN_SECONDS
    _points: list[tuple[int, int, int]] = field(default_factory=list)  # number of the span, peak, pass at the peak

    def add(self, seconds: float, memory: int, number: int) -> None:
        self._put(int(seconds / self.span), memory, number)
        if len(self._points) > _MOST_POINTS:
            self.span *= 2
            points, self._points = self._points, []
            for index, peak, each in points:
                self._put(index // 2, peak, each)

    def _put(self, index: int, memory: int, number: int) -> None:
        if not self._points or self._points[-1][0] != index:
            self._points.append((index, memory, number))
        elif memory > self._points[-1][1]:
            self._points[-1] = (index, memory, number)

    def facts(self) -> list[list[float]]:
        """`[seconds at the start of the span, bytes, number of the pass]` for each."""
        return [[round(index * self.span, 3), memory, number] for index, memory, number in self._points]


@dataclass
class Slowest:
    """The tasks that took longest, at most 20."""

    _tasks: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)  # a heap
    _order: Any = field(default_factory=itertools.count)

    def add(self, task: TaskDone) -> None:
        facts = {
            "task": task["task"],
            "pass": task["pass_number"],
            "seconds": task["seconds"],
            "rows": task["rows"],
            "bytes": task["bytes"],
            "attempts": task["attempts"],
            "slice": task["slice"],
        }
        heapq.heappush(self._tasks, (task["seconds"], -next(self._order), facts))
        if len(self._tasks) > _MOST_TASKS:
            heapq.heappop(self._tasks)

    def facts(self) -> list[dict[str, Any]]:
        """Slowest first."""
        return [facts for _, _, facts in sorted(self._tasks, key=lambda each: (-each[0], -each[1]))]


@dataclass
class PassRecord:
    """One pass: its work in this run, and the memory of the whole process tree meanwhile."""

    planned: Planned
    stages: list[str]
    start: int  # bytes, like `peak` and `end`
    tasks_kept: int = 0  # from an earlier run
    rows_kept: int = 0
    seconds: float = 0.0
    rows: int = 0
    bytes: int = 0
    tasks_done: int = 0
    peak: int = 0
    end: int = 0

    def count(self, row: LedgerRow, size: int) -> None:
        """Count one more task of this run, which took or made `size` bytes."""
        self.tasks_done += 1
        self.rows += row.rows_read
        self.bytes += size

    def hold(self, memory: int) -> None:
        self.peak = max(self.peak, memory)

    def close(self, memory: int, seconds: float) -> None:
        self.hold(memory)
        self.end, self.seconds = memory, round(seconds, 3)

    @property
    def memory(self) -> MemoryFacts:
        return {"start": self.start, "peak": self.peak, "end": self.end, "increase": self.peak - self.start}

    def facts(self) -> dict[str, Any]:
        return {
            "number": self.planned.pass_.number,
            "kind": self.planned.pass_.kind,
            "stages": self.stages,
            "seconds": self.seconds,
            "rows": self.rows,
            "bytes": self.bytes,
            "bytes_are": "read" if reads_input(self.planned) else "written",
            "tasks": len(self.planned.tasks),
            "tasks_done": self.tasks_done,
            "tasks_kept": self.tasks_kept,
            "rows_kept": self.rows_kept,
            "memory": self.memory,
        }


def reads_input(planned: Planned) -> bool:
    """Whether the tasks of a pass read slices of the input; else they read what an earlier pass has left."""
    return any(isinstance(task.input, Slice) for task in planned.tasks[:1])


def task_facts(task: Task, each: Pass, row: LedgerRow, effort: Effort, survey: Survey) -> dict[str, Any]:
    """Fields of a `task` event, without its name and time."""
    return {
        "task": task.name,
        "pass_number": each.number,
        "slice": str(task.input),
        "rows": row.rows_read,
        "bytes": survey.file_bytes_of(task.input) if isinstance(task.input, Slice) else _written(row),
        "seconds": round(effort.seconds, 3),
        "attempts": effort.attempts,
        "set_aside": set_aside([row]) if each.is_for_good else {},
    }


def _written(row: LedgerRow) -> int:
    return sum(file.bytes for file in row.files) + (row.spill.bytes if row.spill else 0)


def set_aside(rows: list[LedgerRow]) -> dict[str, int]:
    """Rows that were set aside, by reason. Values inside rows, such as tokens, are not among them."""
    found: dict[str, int] = {}
    for row in rows:
        for key, step in row.steps.items():
            if key in ("rows", "read") or key.isdigit():
                for reason, count in step.set_aside.items():
                    found[reason] = found.get(reason, 0) + count
    return found
