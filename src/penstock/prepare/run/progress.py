"""Progress: counts and peaks of a run -> the facts that it tells at its start, and keeps in run.json at its end."""

import json
import platform
import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow

from penstock.base import machine
from penstock.base.errors import Interrupted
from penstock.base.events import Event, Observer
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.plan.plan import Plan


@dataclass
class Progress:
    plan: Plan
    observe: Observer | None
    started: float = field(default_factory=time.time)
    peak_memory: int = 0
    spill_bytes: int = 0
    tasks_done: int = 0
    tasks_kept: int = 0
    tasks_again: int = 0  # of those kept: what they were made of is something else now

    @property
    def seconds(self) -> float:
        return round(time.time() - self.started, 3)

    def watch(self, event: Event) -> None:
        """Take note of an event, and pass it on to who observes the run."""
        if event["event"] == "sample":
            self.peak_memory = max(self.peak_memory, event["memory"])
        if self.observe:
            self.observe(event)

    def count(self, row: LedgerRow) -> None:
        """One more task is done."""
        self.tasks_done += 1
        self.spill_bytes += row.spill.bytes if row.spill else 0

    def start_facts(self, changes: Sequence[str]) -> dict[str, Any]:
        plan = self.plan
        return {
            "job": plan.job,
            "tasks": plan.task_count,
            "tasks_kept": self.tasks_kept,
            "changes": changes,
            "workers": plan.workers,
            "allowed": plan.means.budget.allowed,
            "projected": plan.projected_memory,
            "rows": sum(each.projected.rows for each in plan.passes),
            "input_rows": sum(map(plan.survey.rows_of, plan.survey.slices)),
            "rows_are_estimated": plan.survey.rows_are_estimated,
            "unit": plan.survey.unit,
            "bad_files": len(plan.survey.bad_files),
            "not_read": [asdict(each) for each in plan.survey.unread],
            "not_seen": list(plan.survey.not_seen),
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
            "passes": [{"kind": each.pass_.kind, **asdict(each.settings)} for each in plan.passes],
            "spill_bytes": self.spill_bytes,
            "input": [list(source.patterns) for source in plan.config.input],
            "not_read": [asdict(each) for each in plan.survey.unread],
            "output": plan.config.output_path,
            "machine": machine.describe(),
            "versions": {"numpy": np.__version__, "pyarrow": pyarrow.__version__, "python": platform.python_version()},
        }
        return json.dumps(facts, indent=1).encode() + b"\n"

    def stopped(self) -> Interrupted:
        done = self.tasks_kept - self.tasks_again + self.tasks_done
        return Interrupted(
            f"stopped with {done} of {self.plan.task_count} tasks done; nothing half-written is left",
            where=self.plan.config.output_path,
            next_step="run the same command: it goes on from here",
        )
