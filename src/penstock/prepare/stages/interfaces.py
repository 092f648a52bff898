"""Interfaces: optional abilities of a stage, in the order in which a job uses them. Checked with `isinstance`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.base.stores.store import OtherFolder, Store
from penstock.prepare.budget.room import Room
from penstock.prepare.rows.order import Exchange, Sorted
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.stage import Stage
from penstock.shards.columns import FileFacts

# When the job is read and surveyed.


class Settles(Stage, ABC):
    """A stage whose options depend on the stages before it."""

    @abstractmethod
    def settled(self, before: Sequence[Stage]) -> Stage: ...


class MindsPlace(Stage, ABC):
    """A stage that cannot stand everywhere, or not in every format."""

    @abstractmethod
    def refuse_place(self, before: Sequence[Named], behind: Sequence[Named], format: str) -> None:
        """Raise ConfigError, as `output_schema` does."""


class Locates(Stage, ABC):
    """A stage that names something on disk, or depends on what the stages before it found there."""

    @abstractmethod
    def located(self, folder: str, output: str, before: Sequence[Stage], made_from: str) -> Stage:
        """The stage with that found. Relative paths start at `folder`; `made_from` is a digest of the job's input."""


class TakesText(Stage, ABC):
    """A stage that takes documents, whose text is in one column."""

    if TYPE_CHECKING:  # an option of the stage itself, in its own place among the others
        column: str


class AddsTokens(Stage, ABC):
    """A stage that puts tokens before and behind those of every document."""

    @abstractmethod
    def added_tokens(self) -> tuple[int, int]:
        """Number of tokens added before and after each document."""


class Adapts(Stage, ABC):
    """A stage that does its work differently for different columns."""

    @abstractmethod
    def adapted(self, given: pa.Schema, gives: pa.Schema) -> Stage:
        """The stage for the columns that `output_schema` took, and those that it answered."""


# When it is cut into passes.


class Exchanges(Stage, ABC):
    """A stage that makes records of all rows with a key.

    It is called on rows before the exchange, to set some aside, and reduces what comes out of it.
    """

    @abstractmethod
    def exchange(self) -> Exchange: ...

    @abstractmethod
    def reduce(self, runs: Iterator[Sorted]) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def keeps_bytes(self) -> int:
        """The most bytes of rows that `reduce` keeps from one run to the next."""


class Fit(Protocol):
    """A reduction of `columns` to a small artifact. Rows come in blocks of `block_rows`; packed states are JSON."""

    @property
    def columns(self) -> tuple[str, ...] | None: ...  # None: all
    def block_rows(self, schema: pa.Schema) -> int: ...
    def start(self) -> Any: ...
    def update(self, state: Any, block: pa.RecordBatch) -> Any: ...
    def pack(self, state: Any) -> Any: ...  # as JSON, which merge and finish take
    def merge(self, left: Any, right: Any) -> Any: ...
    def finish(self, state: Any) -> Any: ...


class Fits(Stage, ABC):
    """A stage that leaves an artifact: a reduction of the rows that reach it.

    One of a stage with an exchange is given the records that it makes, in batches of any size: it must be exact.
    """

    leaves_artifact: ClassVar[bool] = True  # in artifacts/; else later passes alone use it
    smaller_states: ClassVar[str] = ""  # what to ask of a stage whose states do not fit in memory

    @abstractmethod
    def fit(self) -> Fit: ...

    def measured(self, rows: Rows) -> pa.RecordBatch:
        """Input of the fit. Rows have positions and splits, too: a stage that needs those makes columns of them."""
        return rows.take_split(0, self.fit().columns)

    def state_bytes(self, rows: int) -> int:  # noqa: ARG002
        """Upper bound for a packed state of so many rows, where it is large: the driver holds those of all tasks."""
        return 0


class Binds(Stage, ABC):
    """A stage that needs what an earlier pass has learned before it can take a row."""

    @abstractmethod
    def bind(self, artifact: Any) -> Stage:
        """The stage that uses it on every row."""


class Applies(Fits, Binds, ABC):
    """A stage that needs its own artifact."""


class Compares(Binds, ABC):
    """A stage that leaves out rows with a value of `column` that another row had before."""

    column: str


class ComparesNearly(Binds, ABC):
    """A stage that leaves out documents that are nearly the same as another."""


Decide = Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]  # hashes of positions -> split numbers


class Splits(Stage, ABC):
    """A stage that divides rows into splits. Rows with equal values of the columns `by` are in one split."""

    by: tuple[str, ...]

    @abstractmethod
    def splits(self) -> tuple[str, ...]: ...

    def by_position(self) -> Decide | None:
        """The decision, if the positions of rows alone make it."""
        return None


# When it is planned and run.


class Says(Stage, ABC):
    """A stage that has something to tell before it is run."""

    @abstractmethod
    def says(self) -> str:
        """A line for the screen. Empty: nothing."""


class Comparing(Protocol):
    """A comparison of an engine with what defines it, while the tasks of the job run."""

    def trouble(self, waits: bool) -> str | None:
        """What is wrong with the engine, "" if nothing is; None if that is not known yet, and nobody `waits`."""
        ...

    def end(self) -> None: ...


DEFINITION = "definition"


class HasEngine(Says, ABC):
    """A stage whose work is done by one of several engines, which keeps several threads of a process busy."""

    assumed_bytes: ClassVar[int]  # that a process of it holds, where nothing is measured

    @abstractmethod
    def ready(self, sample: pa.RecordBatch, most_bytes: float, at_once: bool, refused: str) -> Stage:
        """The stage with its engine chosen; or, if not `at_once`, being chosen. All rows have `most_bytes` at most.

        `refused`: what was wrong with the engine of a run that was begun; then the one that defines what is right is
        taken.
        """

    @abstractmethod
    def wait(self) -> None:
        """Wait until its engine is chosen, and raise the error of one that cannot be used."""

    @abstractmethod
    def made_by(self) -> str:
        """Name of its engine, for the ledger; DEFINITION if what it makes needs no proof. Waits for it."""

    @abstractmethod
    def unproved_bytes(self) -> int:
        """Memory for a comparison on documents of the job; 0 if there is none to be made."""

    @abstractmethod
    def prove(self, sample: pa.RecordBatch) -> Comparing:
        """Begin that comparison."""

    @abstractmethod
    def threads(self) -> int:
        """Threads of a process that it keeps busy; 1 if more would cost too much memory."""

    @abstractmethod
    def grows_by(self, threads: int) -> int:
        """Bytes that a process of it may come to hold beyond what its first rows tell."""

    @abstractmethod
    def says(self) -> str:
        """A line for the screen: how it does its work here. Waits until the engine is chosen."""


class HoldsFolders(Stage, ABC):
    """A stage with folders beside the output, which no other job may use meanwhile."""

    @abstractmethod
    def other_folders(self) -> tuple[OtherFolder, ...]: ...


class Opens(Stage, ABC):
    """A stage that reads from disk, or holds something large, while a task runs."""

    @abstractmethod
    def opened(self, store: Store, number: int, threads: int, room: Room) -> Stage:
        """The stage for the task of slice `number`. `room` is what it may hold while it works on one row."""

    @abstractmethod
    def closed(self) -> None:
        """Let go of what this process holds for the tasks to come: there are none."""


class Ends(Stage, ABC):
    """An opened stage that must know when a task has taken its last row through it."""

    @abstractmethod
    def ended(self) -> None: ...


# When it is finished.


class Leaves(Stage, ABC):
    """A stage that writes a file of its own beside the shards."""

    @abstractmethod
    def leave(self, store: Store) -> tuple[FileFacts, ...]: ...


Named = tuple[str, Stage]  # by the word in the job


def refuse_records(before: Sequence[Named]) -> None:
    """For a stage that takes rows as they were read."""
    for name, stage in before:
        if isinstance(stage, Exchanges):
            raise ConfigError(f"it comes after `{name}`, which makes records")


def exchanges_of(stages: Sequence[Stage]) -> list[int]:
    """Numbers of the stages with an exchange."""
    return [number for number, stage in enumerate(stages) if isinstance(stage, Exchanges)]


def splits_of(stages: Sequence[Stage]) -> tuple[str, ...]:
    """Names of the splits of a dataset."""
    split = split_of(stages)
    return split.splits() if split else ("train",)


def split_of(stages: Sequence[Stage]) -> Splits | None:
    return next((stage for stage in stages if isinstance(stage, Splits)), None)


def fits_of(stage: Stage) -> Fits:
    assert isinstance(stage, Fits)
    return stage


def changes_values(stage: Stage) -> bool:
    """Whether it needs its own artifact to change values. A split that needs one decides where rows go."""
    return isinstance(stage, Applies) and not isinstance(stage, Splits)


def only_measures(stage: Stage) -> bool:
    """Whether it changes no value, and leaves out no row that has a key. Nobody knows that of a user's own stage."""
    return isinstance(stage, Fits) and not isinstance(stage, Binds) and not stage.code()


def busy_threads(stages: Sequence[Stage]) -> int:
    """Threads that the stages keep busy, 0 if a process is one thread."""
    return max((stage.threads() for stage in stages if isinstance(stage, HasEngine)), default=0)


def unproved(stages: Iterable[Stage], sample: pa.RecordBatch) -> list[Comparing]:
    """Begin the comparisons of engines that are still to be made."""
    return [stage.prove(sample) for stage in stages if isinstance(stage, HasEngine) and stage.unproved_bytes()]


def made_by(stages: Iterable[Stage]) -> str:
    """Names of the engines of stages, for the ledger; "" if none has one."""
    return "; ".join(stage.made_by() for stage in stages if isinstance(stage, HasEngine))


def notes_of(stages: Sequence[Stage]) -> list[str]:
    """Lines for the screen: how stages do their work here, and what they have found."""
    said = (stage.says() for stage in stages if isinstance(stage, Says))
    return [note for note in said if note]
