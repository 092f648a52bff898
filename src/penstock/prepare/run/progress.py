"""Progress: counts and peaks of a run -> the facts that it tells at its start, and keeps in run.json at its end."""

import json
import os
import platform
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow

from penstock.base import machine
from penstock.base.errors import Interrupted
from penstock.base.events import Event, Observer, PlannedPass
from penstock.base.events.log import EventLog
from penstock.base.stores.store import Store
from penstock.prepare.budget.kept_costs import KeptCosts
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.plan.plan import Plan, Planned
from penstock.prepare.run.record import PassRecord, Slowest, Timeline, reads_input, set_aside


@dataclass
class Progress:
    plan: Plan
    store: Store
    observe: Observer | None
    started: float = field(default_factory=time.time)
    peak_memory: int = 0
    spill_bytes: int = 0
    tasks_done: int = 0
    tasks_kept: int = 0
    tasks_again: int = 0  # of those kept: what they were made of is something else now
    timeline: Timeline = field(default_factory=Timeline)
    slowest: Slowest = field(default_factory=Slowest)
    records: list[PassRecord] = field(default_factory=list)  # one per pass that has begun

    def __post_init__(self) -> None:
        self.costs = KeptCosts(self.store, self.plan.means.measured)

    @property
    def seconds(self) -> float:
        return round(time.time() - self.started, 3)

    def logging(self) -> EventLog:
        """The log of this run. It tells this Progress of each event, too."""
        return EventLog(self.store, self.watch)

    def watch(self, event: Event) -> None:
        """Take note of an event, and pass it on to who observes the run."""
        if event["event"] == "sample":
            self._hold(event["memory"])
        elif event["event"] == "task":
            self.slowest.add(event)
        elif event["event"] == "retry":
            self.costs.doubt()
        if self.observe:
            self.observe(event)

    def _hold(self, memory: int) -> None:
        self.peak_memory = max(self.peak_memory, memory)
        self.timeline.add(time.time() - self.started, memory, self.records[-1].planned.pass_.number)
        self.records[-1].hold(memory)

    def begin_pass(self, planned: Planned, kept: list[LedgerRow], held_bytes: Callable[[], int]) -> PassRecord:
        """Starts with the memory at the end of the previous pass: to read it takes milliseconds per worker."""
        memory = self.records[-1].end if self.records else held_bytes()
        rows_kept = sum(row.rows_read for row in kept)
        record = PassRecord(planned, _stage_names(self.plan, planned), memory, len(kept), rows_kept)
        self.records.append(record)
        self._hold(memory)
        return record

    def end_pass(self, seconds: float, memory: int) -> None:
        self._hold(memory)
        self.records[-1].close(memory, seconds)

    def count(self, row: LedgerRow, size: int) -> None:
        """One more task is done, which took or made `size` bytes."""
        self.tasks_done += 1
        self.spill_bytes += row.spill.bytes if row.spill else 0
        self.records[-1].count(row, size)

    def start_facts(self, changes: Sequence[str], kept: Mapping[str, LedgerRow]) -> dict[str, Any]:
        plan = self.plan
        return {
            "process": os.getpid(),
            "job": plan.job,
            "tasks": plan.task_count,
            "tasks_kept": self.tasks_kept,
            "changes": changes,
            "workers": plan.workers,
            "allowed": plan.means.budget.allowed,
            "projected": plan.projected_memory,
            "rows": sum(each.projected.rows for each in plan.passes),
            "input_rows": sum(map(plan.survey.rows_of, plan.survey.slices)),
            "input_bytes": plan.survey.file_bytes,
            "input_items": plan.survey.items,
            "rows_are_estimated": plan.survey.rows_are_estimated,
            "unit": plan.survey.unit,
            "bad_files": len(plan.survey.bad_files),
            "not_read": [asdict(each) for each in plan.survey.unread],
            "not_seen": list(plan.survey.not_seen),
            "waits_for": "",
            "passes": [_planned_facts(plan, each, kept) for each in plan.passes],
        }

    def run_facts(self) -> bytes:
        """The contents of run.json."""
        plan, usage = self.plan, [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        facts = {
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.started)),
            "seconds": self.seconds,
            "cpu_seconds": round(sum(each.ru_utime + each.ru_stime for each in usage), 3),
            "tasks_done": self.tasks_done,
            "tasks_kept": self.tasks_kept,
            "peak_memory_bytes": self.peak_memory,
            "allowed_memory_bytes": plan.means.budget.allowed,
            "projected_memory_bytes": plan.projected_memory,
            "workers": plan.workers,
            "passes": [{**each.facts(), **asdict(each.planned.settings)} for each in self.records],
            "timeline": self.timeline.facts(),
            "slowest": self.slowest.facts(),
            "spill_bytes": self.spill_bytes,
            "input": [list(source.patterns) for source in plan.config.input],
            "folders": plan.survey.folders,
            "not_read": [asdict(each) for each in plan.survey.unread],
            "output": plan.config.output_path,
            "machine": machine.describe(),
            "versions": {"numpy": np.__version__, "pyarrow": pyarrow.__version__, "python": platform.python_version()},
        }
        return json.dumps(facts, indent=1).encode() + b"\n"

    def stopped(self) -> Interrupted:
        done = self.tasks_kept - self.tasks_again + self.tasks_done
        return Interrupted(
            f"stopped with {done} of {self.plan.task_count} tasks done; no incomplete files are left",
            where=self.plan.config.output_path,
            next_step="run the same command: it resumes from here",
        )


def _stage_names(plan: Plan, planned: Planned) -> list[str]:
    return [plan.config.stage_names[number] for number in planned.pass_.facts().stages]


def _planned_facts(plan: Plan, planned: Planned, kept: Mapping[str, LedgerRow]) -> PlannedPass:
    rows = [kept[task.name] for task in planned.tasks if task.name in kept]
    return {
        "number": planned.pass_.number,
        "kind": planned.pass_.kind,
        "stages": _stage_names(plan, planned),
        "tasks": len(planned.tasks),
        "tasks_kept": len(rows),
        "rows": planned.projected.rows,
        "rows_kept": sum(row.rows_read for row in rows),
        "rows_set_aside": set_aside(rows) if planned.pass_.is_for_good else {},
        "reads_input": reads_input(planned),
        "seconds": round(planned.projected.seconds, 3),
    }
