"""Doing: the passes of a plan, one after the other; tasks that are not done yet go to an engine."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.base.events import EventLog
from penstock.base.stores.store import Store
from penstock.prepare.engines import Engine
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Left, Task
from penstock.prepare.plan.plan import Plan, Planned
from penstock.prepare.run.progress import Progress


@dataclass(frozen=True)
class Doing:
    plan: Plan
    store: Store
    engine: Engine
    log: EventLog
    progress: Progress

    def passes(self, kept: Mapping[str, LedgerRow]) -> Left:
        """Do what is not `kept`; the answer is all that was left and learned."""
        left = Left()
        for planned in self.plan.passes:
            rows = self._pass(planned, left, kept)
            number = planned.pass_.number
            left = Left({**left.rows, number: rows}, {**left.learned, **planned.pass_.learn(left, rows)})
        return left

    def _pass(self, planned: Planned, left: Left, kept: Mapping[str, LedgerRow]) -> list[LedgerRow]:
        each, tasks = planned.pass_, planned.tasks
        known = [kept[task.name] for task in tasks if task.name in kept]
        work = each.prepare(left, self.store, known, self.plan.means)
        done = {row.task: row for row in known if row.identity == work.identity}
        self.progress.tasks_again += len(known) - len(done)
        pending = each.order([task for task in tasks if task.name not in done], self.store)
        notes = work.notes if pending else []
        self.log.say("pass", number=each.number, kind=each.kind, tasks=len(tasks), pending=len(pending), notes=notes)

        def finished(task: Task, row: LedgerRow) -> None:
            done[task.name] = row
            self.progress.count(row)
            self.log.say("task", task=task.name, rows=row.rows_read)

        self.engine.run(pending, work, planned.settings, finished)
        return [done[task.name] for task in tasks]
