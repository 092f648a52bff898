"""Events: what happens to workers and their attempts at tasks; and the commands with which attempts.py answers."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

ATTEMPTS = 3  # of a task whose worker dies: whole, half and quarter batches

LostFile = tuple[str, str, str]  # path, title, reason
LEAKS, NEEDS_MORE = "leaks", "needs more"  # why a task is given up, beside DIED and HUNG


class Effort(NamedTuple):
    """Cost of a finished task: seconds of its last attempt, and how many there were."""

    seconds: float = 0.0
    attempts: int = 1


@dataclass
class Attempt:
    """A task, how often it was tried, and how it is getting on."""

    task: Any
    tries: int = 0
    number: int = 0  # how often its batch was divided
    failures: Counter[str] = field(default_factory=Counter)  # by file: no file pays for what another did
    losses: int = 0  # how often its machine went away
    stalls: Counter[str] = field(default_factory=Counter)  # likewise
    lost: tuple[LostFile, ...] = ()  # files that were given up
    asked_to_be_alone: bool = False
    reason: str = ""  # why the last try ended
    rows: int = 0
    began: float = 0.0  # when its worker was given it, or had started
    moved: float = 0.0  # when it last showed a row
    noticed: bool = False  # that it has not for a while
    place: str = ""  # the file that a user's function has been given
    place_bytes: int = 0  # what the worker held when it was
    spoke: float = 0.0  # when its worker last said what it holds in this file
    is_whole_file: bool = True  # else a part of one, which cannot be left out

    @property
    def is_alone(self) -> bool:
        """Whether no other task may run beside it: it asked for that, or this is its last try."""
        return self.asked_to_be_alone or self.number == ATTEMPTS - 1

    @property
    def can_be_left_out(self) -> bool:
        """Whether a user's function has been given a whole file, without which the task can be done."""
        return bool(self.place) and self.is_whole_file

    @property
    def is_left_out(self) -> bool:
        return any(path == self.place for path, _, _ in self.lost)

    def begin(self, now: float) -> None:
        self.tries += 1
        self.began = now
        self.rows, self.place = 0, ""
        self.show(now)

    def show(self, now: float) -> None:
        """Note progress: the time without a row starts again at zero."""
        self.moved, self.noticed = now, False


# Events.


@dataclass(frozen=True)
class Ready:
    """A worker has started."""

    worker: int
    bytes: int


@dataclass(frozen=True)
class Moved:
    """A task reports the number of rows it has read."""

    worker: int
    rows: int


@dataclass(frozen=True)
class Entered:
    """A user's function is given a file, or a part of one (not `whole`); the worker holds `bytes` before."""

    worker: int
    file: str
    bytes: int
    whole: bool = True


@dataclass(frozen=True)
class Alone:
    """A task asks to be done again when no other runs."""

    worker: int


@dataclass(frozen=True)
class Finished:
    worker: int
    row: Any  # what it leaves: a row of the ledger
    bytes: int  # that the worker holds afterwards


@dataclass(frozen=True)
class Failed:
    """A task raised an error that another attempt would not fix."""

    worker: int
    error: Exception


@dataclass(frozen=True)
class Died:
    worker: int
    reason: str


@dataclass(frozen=True)
class Lost:
    """The machine of a worker went away, which is no fault of its task."""

    worker: int
    reason: str


@dataclass(frozen=True)
class Queued:
    """A task that was given waits for its turn, where others use the same machines: it has not begun."""

    worker: int


@dataclass(frozen=True)
class Holds:
    """Memory of a worker inside a user's function: reported by itself, or measured from outside."""

    worker: int
    bytes: int
    is_own_word: bool = True


@dataclass(frozen=True)
class Stalled:
    """A worker has seen its task show no row for `stall_notice`."""

    worker: int
    stack: str


@dataclass(frozen=True)
class Overfull:
    """The tree holds more than is allowed, and this worker holds the largest part."""

    worker: int
    reason: str


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event: TypeAlias = (
    Ready | Moved | Entered | Alone | Finished | Failed | Died | Lost | Queued | Holds | Stalled | Overfull | Tick
)


# Commands.


@dataclass(frozen=True)
class Start:
    worker: int


@dataclass(frozen=True)
class Give:
    """Have a worker do a task."""

    worker: int
    task: Any
    batch_bytes: int
    hold_bytes: int
    lost: tuple[LostFile, ...]
    alone: bool


@dataclass(frozen=True)
class Stop:
    """End a worker, whatever it does, and forget it. It may be dead already."""

    worker: int


@dataclass(frozen=True)
class Say:
    """Write an event into the log, with the Python stack of a worker if one is named."""

    name: str
    facts: dict[str, Any]
    stack_of: int | None = None


@dataclass(frozen=True)
class Complete:
    task: Any
    row: Any
    effort: Effort = Effort(0.0, 1)  # noqa: RUF009


@dataclass(frozen=True)
class GiveUp:
    """End the run: a task cannot be done. `why` is DIED, HUNG, LEAKS or NEEDS_MORE."""

    why: str
    attempt: Attempt
    worker: int
    seconds: float = 0.0  # without a row
    bytes: int = 0  # that its worker holds


@dataclass(frozen=True)
class Raise:
    """End the run with an error of a task."""

    error: Exception


Command: TypeAlias = Start | Give | Stop | Say | Complete | GiveUp | Raise
