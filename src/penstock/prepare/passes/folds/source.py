"""Source: the worker's half of a Reader, which gives the stages of a fold the rows of one task. Used by work.py."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from penstock.base.errors import InputError
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes import Lost, Report, Task, TaskInput, Work
from penstock.prepare.passes.folds.chain import Chain, Count
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import UnreadablePart
from penstock.prepare.stages.stage import Stage
from penstock.shards.manifest import Step


@dataclass
class Attempt:
    """A task that is being done."""

    work: Work
    task: Task
    settings: Settings
    report: Report
    chain: Chain
    unreadable: list[UnreadablePart]  # parts of files that were found to be, and are passed over
    lost: list[UnreadablePart] = field(default_factory=list)  # parts, likewise, that were counted
    read: Count = field(default_factory=Count)
    rows: Count = field(default_factory=Count)  # that a user's function was given


class Source(Protocol):
    @property
    def refuses(self) -> bool: ...  # whether bad input stops the job
    @property
    def reducers(self) -> dict[int, Stage]: ...  # stages that run inside the reader, whose fits it feeds itself
    def may_lose(self, title: str) -> bool: ...
    def fails_on(self, part: UnreadablePart) -> bool: ...
    def given_up(self, piece: TaskInput, lost: Lost) -> list[UnreadablePart]: ...
    def files(self, piece: TaskInput) -> list[tuple[int, str]]: ...  # (source, path), in the order they are read
    def rejected_name(self, number: int) -> str: ...
    def rows(self, attempt: Attempt) -> Iterator[Rows]: ...  # counted
    def steps(self, attempt: Attempt) -> dict[str, Step]: ...  # of what was read


def refusal(part: UnreadablePart) -> InputError:
    """The error of a part that stops the job."""
    rows = f" of {part.rows:,} rows" if part.rows >= 0 else ""
    return InputError(
        f"{part.title}{rows}: {part.reason}",
        where=f"{part.segment.location}, row {part.ordinal:,}" if part.rows >= 0 else part.segment.location,
        next_step="replace the file, or set `on_bad_input: set_aside` to go on without that part",
    )
