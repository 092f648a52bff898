"""Pass: one step of a job over all of its data, in two halves: `Pass` stays in the driver, `Work` is sent to workers.

Planner, runner, engines, resume, finishing and display know this interface, and no kind of pass. Next: cutting.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from penstock.base.sizes import counted
from penstock.base.stores.store import Store
from penstock.prepare.budget.costs import Measurement
from penstock.prepare.budget.means import Means, Projection, Settings
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.rows.kept import forget_kept
from penstock.prepare.rows.rows import INNER
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import ShardFacts, Step

LedgerRows = Sequence[LedgerRow]
# Fate of the rows, by step: "files", "rows", "read", then stages: "0", "1", ... and what is inside rows (inner_key).
Account = Mapping[str, Step]
Lost = Sequence[tuple[str, str, str]]  # files that were given up: path, title, reason


def inner_key(stage: int) -> str:
    """The name of a stage's count of values inside rows, in an account."""
    return f"{stage}.{INNER}"


def nobody_watches(rows: int, place: str = "", whole: bool = True) -> None:
    """A Report that does nothing."""


class Report(Protocol):
    """Told the rows read so far, and which file a user's function is given now, or a part of it (not `whole`)."""

    def __call__(self, rows: int, place: str = "", whole: bool = True) -> None: ...


class TaskInput(Protocol):
    """Input of one task: a slice of the input, a bucket, a range of keys, ..."""

    @property
    def number(self) -> int: ...
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class Task:
    """One task of a pass. Its fingerprint covers everything that decides what it writes.

    `strict` is its fingerprint in the same job with `on_bad_input: fail`. A task that was finished there met no bad
    input, so what it wrote is right for `set_aside` too. The reverse does not hold.
    """

    name: str
    input: TaskInput
    fingerprint: str
    strict: str = ""

    def is_done_by(self, fingerprint: str) -> bool:
        """Whether an earlier task of this fingerprint wrote what this one would write."""
        return fingerprint in (self.fingerprint, self.strict)


class Batches(NamedTuple):
    """Batch sizes in bytes: the one wanted, the smallest that justifies one more worker, the smallest that works."""

    wanted: int
    good: int
    least: int


class Need(NamedTuple):
    """Bytes that a pass needs whatever it reads, and the words of the refusal where they are not there."""

    bytes: int
    what: str
    where: str = "the last passes"
    other_step: str = ""  # what helps beside more memory


class Holds(NamedTuple):
    """Memory of a task: batches as large as there is room for, or a known amount whatever it reads."""

    cost: Measurement
    batches: Batches | None = None
    known: Need | None = None
    output: float = 0.0  # the most of what it writes that is worth keeping in memory
    threads: int = 0  # that its stages keep busy
    driver: Need | None = None  # of the driver, when the pass is finished


class Learned(NamedTuple):
    """An artifact that the driver has learned for a stage. Later passes bind the stage to it."""

    artifact: Any
    is_written: bool = True  # into artifacts/; else it is of use to this run alone


class Left(NamedTuple):
    """Results of the earlier passes: their ledger rows by pass, and what was learned by stage."""

    rows: Mapping[int, LedgerRows] = {}
    learned: Mapping[int, Learned] = {}


class Finished(NamedTuple):
    """Files that a pass gives to the manifest. `last` is called just before the manifest is written."""

    splits: Mapping[str, tuple[ShardFacts, ...]] | None = None
    files: tuple[FileFacts, ...] = ()
    summaries: tuple[FileFacts, ...] = ()
    last: Callable[[], None] = lambda: None


Tries = Callable[..., Any]  # (work, Measuring, names of what was left) -> Tried: see folds/trying/measure.py


def in_ranges(tasks: int) -> str:
    """Suffix for the name of a pass's input, for people."""
    return f", in {counted(tasks, 'range')}" if tasks > 1 else ""


def shards_of(rows: LedgerRows, splits: tuple[str, ...]) -> dict[str, tuple[ShardFacts, ...]]:
    """The shards of each split, in order."""
    return {split: tuple(row.shards[split] for row in rows if split in row.shards) for split in splits}


class Trial(NamedTuple):
    """Work that is tried before there is a plan, and the word under which its costs are kept."""

    word: str
    work: Any  # a fold's
    tries: Tries


@dataclass(frozen=True)
class Facts:
    """Description of a pass for people. `stages` are numbers; `wrote` has `{size}` where the size goes."""

    stages: tuple[int, ...]
    reads: str
    writes: str
    origin: str  # what it reads, in words
    wrote: str = ""  # what is there when it is over, in words; none: so much of `writes`
    for_others: bool = False  # whether what it writes is gone when the job is done
    exchange: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Work(ABC):
    """The half of a pass that workers are sent. It can be pickled, and knows neither Config nor Survey."""

    root: str
    code: tuple[tuple[str, str], ...] = field(default=(), kw_only=True)  # the user's own: (module:name, identity)
    engine: str = field(default="", kw_only=True)  # who has made, or makes, what the rows hold; for the ledger

    @property
    def identity(self) -> str:
        """Identity of what earlier tasks have decided: a kept row with another is done again."""
        return ""

    @property
    def notes(self) -> list[str]:
        """Words for the screen about how its stages do their work here."""
        return []

    @property
    def made_by(self) -> str:
        """Names of the engines of its own stages, for the ledger."""
        return ""

    def may_lose(self, title: str) -> bool:  # noqa: ARG002
        """Whether a whole file, in which a user's function was stopped, may be left out."""
        return False

    @abstractmethod
    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost) -> LedgerRow: ...

    def close(self) -> None:
        """Close what its tasks have opened in this process."""
        forget_kept()


@dataclass(frozen=True)
class Pass(ABC):
    """One pass of a job: made once, by its kind's cutter, and kept in the driver. Nobody compares `kind`."""

    number: int
    kind: str  # a word, in names of tasks and on the screen

    @property
    @abstractmethod
    def task_count(self) -> int: ...

    @property
    def read_at_end(self) -> bool:
        """Whether `finish` reads what its tasks left, so that resume must find it."""
        return False

    @property
    def is_for_good(self) -> bool:
        """Whether rows that this pass sets aside count. If not, a later pass sets the same rows aside again."""
        return False

    @property
    def states(self) -> Need | None:
        """Memory of the driver for the states of its tasks, from this pass on, where they are large."""
        return None

    @property
    def trial(self) -> Trial | None:
        return None

    @abstractmethod
    def tasks(self, above: str) -> tuple[Task, ...]: ...
    @abstractmethod
    def holds(self, means: Means) -> Holds: ...
    @abstractmethod
    def project(self, settings: Settings, means: Means) -> Projection: ...
    @abstractmethod
    def facts(self) -> Facts: ...
    @abstractmethod
    def prepare(self, left: Left, store: Store, kept: LedgerRows, means: Means) -> Work: ...

    def begin(self, work: Any, store: Store, kept: LedgerRows, alone: bool) -> None:  # noqa: B027
        """Make the output ready for the tasks of `work`. Where not `alone`, other machines may be doing some."""

    def held_later(self, row_bytes: float) -> int:  # noqa: ARG002
        """Bytes of a task that a trial is too short to show."""
        return 0

    def order(self, tasks: list[Task], store: Store) -> list[Task]:  # noqa: ARG002
        """The tasks, largest first if their sizes are known."""
        return tasks

    def learn(self, left: Left, rows: LedgerRows) -> Mapping[int, Learned]:  # noqa: ARG002
        return {}

    def count(self, account: Account, rows: LedgerRows) -> Account:  # noqa: ARG002
        """The account, with what this pass did to rows for good."""
        return account

    def finish(self, left: Left, store: Store) -> Finished:  # noqa: ARG002
        return Finished()
