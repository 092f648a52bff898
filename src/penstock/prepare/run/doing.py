"""Doing: the passes of a plan, one after the other; tasks that are not done yet go to an engine."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from penstock.base.events.log import EventLog
from penstock.base.processes.nursery import Nursery
from penstock.base.stores.store import Store
from penstock.prepare.engines import Engine
from penstock.prepare.engines.choosing import make_engine
from penstock.prepare.engines.events import Effort
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Left, Task
from penstock.prepare.plan.plan import Plan, Planned
from penstock.prepare.run.progress import Progress
from penstock.prepare.run.record import PassRecord, task_facts


@dataclass(frozen=True)
class Doing:
    plan: Plan
    store: Store
    engine: Engine
    log: EventLog
    progress: Progress

    @classmethod
    def start(
        cls, plan: Plan, store: Store, log: EventLog, lock: tuple[int, ...], progress: Progress, nursery: Nursery
    ) -> Self:
        return cls(plan, store, make_engine(plan, store, log, lock, nursery), log, progress)

    def close(self) -> None:
        """Leave no process behind."""
        self.engine.close()

    def passes(self, kept: Mapping[str, LedgerRow]) -> Left:
        """Run the tasks that are not `kept`. Returns the ledger rows and what was learned."""
        left = Left()
        for planned in self.plan.passes:
            rows = self._pass(planned, left, kept)
            number = planned.pass_.number
            left = Left({**left.rows, number: rows}, {**left.learned, **planned.pass_.learn(left, rows)})
        return left

    def _pass(self, planned: Planned, left: Left, kept: Mapping[str, LedgerRow]) -> list[LedgerRow]:
        each, tasks, began = planned.pass_, planned.tasks, time.monotonic()
        known = [kept[task.name] for task in tasks if task.name in kept]
        work = each.prepare(left, self.store, known, self.plan.means)
        done = {row.task: row for row in known if row.identity == work.identity}
        self.progress.tasks_again += len(known) - len(done)
        pending = each.order([task for task in tasks if task.name not in done], self.store)
        notes = work.notes if pending else []
        record = self.progress.begin_pass(planned, list(done.values()))
        self.log.say("pass", number=each.number, kind=each.kind, tasks=len(tasks), pending=len(pending), notes=notes)

        def finished(task: Task, row: LedgerRow, effort: Effort) -> None:
            done[task.name] = row
            facts = task_facts(task, each, row, effort, self.plan.survey)
            self.progress.count(row, facts["bytes"])
            self.log.say("task", **facts)

        self.engine.run(pending, work, planned.settings, finished)
        self.progress.end_pass(time.monotonic() - began)
        self._say_done(record)
        return [done[task.name] for task in tasks]

    def _say_done(self, record: PassRecord) -> None:
        facts = record.facts()
        told = {key: facts[key] for key in ("number", "kind", "seconds", "rows", "bytes", "memory")}
        self.log.say("pass_done", **told, tasks=record.tasks_done)
