"""Work: the worker's half of a fold: a task's rows, from a source through some stages into a sink. Next: ledger.py."""

from contextlib import ExitStack
from dataclasses import dataclass

from penstock.base.faults import crash_point
from penstock.base.stores import open_store
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Lost, Report, Task, Work
from penstock.prepare.passes.folds.chain import Chain, Tap
from penstock.prepare.passes.folds.rejected import Rejected
from penstock.prepare.passes.folds.sink import Into, Sink
from penstock.prepare.passes.folds.source import Attempt, Source, refusal
from penstock.prepare.sources import UnreadablePart
from penstock.prepare.stages.interfaces import Ends, Opens, fits_of, made_by, notes_of
from penstock.prepare.stages.stage import Stage


@dataclass(frozen=True)
class FoldWork(Work):
    """The work of every task of a fold."""

    source: Source
    names: dict[int, str]
    stages: dict[int, Stage]  # by number, bound: those that need an artifact have it
    fits: tuple[int, ...]  # numbers of the stages whose reduction this pass runs
    sink: Into | None  # none: the pass only measures
    refuses: bool = False  # whether bad input stops the job
    is_for_good: bool = True  # else a later pass does the same to the same rows, and writes what is set aside

    @property
    def notes(self) -> list[str]:
        return notes_of(tuple(self.stages.values()))

    @property
    def made_by(self) -> str:
        return made_by(self.stages.values())

    def may_lose(self, title: str) -> bool:
        return self.source.may_lose(title)

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:
        """A part that cannot be decoded starts the task anew without that part, so that what is kept of a damaged file
        never depends on how far the reading had come."""
        unreadable = self.source.given_up(task.input, lost)
        while True:
            try:
                return self._attempt(task, settings, report, unreadable)
            except UnreadablePart as part:
                if not self.may_lose(part.title):
                    raise refusal(part) from part
                unreadable.append(part)

    def _attempt(self, task: Task, settings: Settings, report: Report, unreadable: list[UnreadablePart]) -> LedgerRow:
        store, number = open_store(self.root), task.input.number
        with ExitStack() as stack:
            name, files = self.source.rejected_name(number), self.source.files(task.input)
            rejected = Rejected(store, name, stack, self.is_for_good, files)
            chain = self.open_chain(number, settings, rejected, self.refuses)
            attempt = Attempt(self, task, settings, report, chain, unreadable)
            sink = self.open_sink(number, stack, settings)
            for rows in self.source.rows(attempt):
                rows = chain(rows)
                rejected.write()
                sink.write(rows)
            for stage in chain.stages.values():
                if isinstance(stage, Ends):
                    stage.ended()
            produced = sink.finish()
            crash_point("task.after_shards")
        return LedgerRow(
            task=task.name,
            fingerprint=task.fingerprint,
            shards=produced.shards,
            spill=produced.spill,
            rejected=rejected.facts,
            steps={**self.source.steps(attempt), **chain.steps(self.names)},
            states={**{str(each): tap.finish() for each, tap in chain.taps.items()}, **produced.states},
            lost_files=tuple((part.segment.path, part.title) for part in attempt.lost if part.rows < 0),
            boot="" if produced.lasting else store.session,
        )

    def open_chain(self, number: int, settings: Settings, rejected: Rejected, refuses: bool = False) -> Chain:
        """The stages for task `number`, and the taps of the fits among them."""
        store, all_stages = open_store(self.root), {**self.source.reducers, **self.stages}
        stages = {
            each: stage.opened(store, number, settings.threads, settings.room) if isinstance(stage, Opens) else stage
            for each, stage in self.stages.items()
        }
        return Chain(stages, {each: Tap(fits_of(all_stages[each])) for each in self.fits}, rejected, refuses)

    def open_sink(self, number: int, stack: ExitStack, settings: Settings) -> Sink:
        return self.sink.open(open_store(self.root), number, stack, settings) if self.sink else Sink()

    def close(self) -> None:
        super().close()
        for stage in self.stages.values():
            if isinstance(stage, Opens):
                stage.closed()
