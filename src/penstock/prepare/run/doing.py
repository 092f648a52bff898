"""Doing: the passes of a plan, one after the other; tasks that are not done yet go to an engine."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Self

from penstock.base.events.log import EventLog
from penstock.base.processes.nursery import Nursery
from penstock.base.stores.store import Store
from penstock.prepare.engines import Engine, Opening
from penstock.prepare.engines.choosing import make_engine
from penstock.prepare.engines.events import Effort
from penstock.prepare.engines.proving import Proving
from penstock.prepare.ledger import LedgerRow, done_tasks, read_row
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
    proving: Proving
    alone: bool = True  # else other machines do tasks of the same run

    @classmethod
    @contextmanager
    def start(
        cls,
        plan: Plan,
        store: Store,
        log: EventLog,
        lock: tuple[int, ...],
        progress: Progress,
        nursery: Nursery,
        make: Callable[[Opening], Engine] = make_engine,
        alone: bool = True,
    ) -> Iterator[Self]:
        """If memory has no room for a comparison of engines beside the tasks, wait for the comparison first. `make`
        opens the engine. If not `alone`, other machines do tasks of the same run."""
        with ExitStack() as stack:
            proving = Proving(plan.survey)
            stack.callback(proving.end)
            doing = cls(plan, store, make(Opening(plan, store, log, lock, nursery)), log, progress, proving, alone)
            stack.callback(doing.close)
            proving.check(waits=not plan.proof_bytes)
            yield doing

    def wait_for_engines(self) -> None:
        """Wait until the engines of stages are chosen and proved: one that fails says so now."""
        self.plan.wait_for_engines()
        self.proving.check(waits=True)

    def close(self) -> None:
        """Leave no process behind."""
        self.engine.close()

    def passes(self, kept: Mapping[str, LedgerRow]) -> Left:
        """Run the tasks that are not `kept`. Returns the ledger rows and what was learned, when engines are proved."""
        left, engine = Left(), ""
        with self.proving.blamed():
            for planned in self.plan.passes:
                rows, engine = self._pass(planned, left, kept, engine)
                number = planned.pass_.number
                left = Left({**left.rows, number: rows}, {**left.learned, **planned.pass_.learn(left, rows)})
        self.proving.check(waits=True)
        return left

    def _pass(
        self, planned: Planned, left: Left, kept: Mapping[str, LedgerRow], engine: str
    ) -> tuple[list[LedgerRow], str]:
        """Ledger rows, and who has made what they name: `engine`, of an earlier pass, or one of this pass."""
        each, tasks, began = planned.pass_, planned.tasks, time.monotonic()
        known = [kept[task.name] for task in tasks if task.name in kept]
        elsewhere = [] if known else self._done_elsewhere(tasks)
        work = each.prepare(left, self.store, known or elsewhere, self.plan.means)
        work = replace(work, engine=engine or work.made_by)
        each.begin(work, self.store, known, self.alone)
        done = {row.task: row for row in known if row.identity == work.identity}
        self.progress.tasks_again += len(known) - len(done)
        pending = [task for task in tasks if task.name not in done]
        pending = pending if elsewhere else each.order(pending, self.store)
        notes = work.notes if pending else []
        record = self.progress.begin_pass(planned, list(done.values()), self.engine.held_bytes)
        self.log.say("pass", number=each.number, kind=each.kind, tasks=len(tasks), pending=len(pending), notes=notes)

        def finished(task: Task, row: LedgerRow, effort: Effort) -> None:
            done[task.name] = row
            facts = task_facts(task, each, row, effort, self.plan.survey)
            self.progress.count(row, facts["bytes"])
            self.log.say("task", **facts)
            self.proving.check()

        self.engine.run(pending, work, planned.settings, finished)
        self.progress.end_pass(time.monotonic() - began, self.engine.held_bytes())
        self._say_done(record)
        return [done[task.name] for task in tasks], work.engine

    def _done_elsewhere(self, tasks: Sequence[Task]) -> list[LedgerRow]:
        """Ledger rows, if other machines have finished the pass: files that its tasks read may be gone. The engine
        learns these rows by itself."""
        if self.alone or not {task.name for task in tasks} <= done_tasks(self.store):
            return []
        return [row for task in tasks if (row := read_row(self.store, task.name))]

    def _say_done(self, record: PassRecord) -> None:
        facts = record.facts()
        told = {key: facts[key] for key in ("number", "kind", "seconds", "rows", "bytes", "memory")}
        self.log.say("pass_done", **told, tasks=record.tasks_done)
