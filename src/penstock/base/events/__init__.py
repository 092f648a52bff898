"""Events: what a run reports while it works. `observe=` is called with each event; `.penstock/events.jsonl` keeps
them, one JSON object per line, with the same fields. Next: log.py.

An `Observer` is a function that takes one event. Every event is a dict with `event`, its name, and `time`, in seconds
since 1970. The name decides the other fields:

| name | class | when |
|---|---|---|
| start | Start | the run begins: it has locked its output and read the ledger of an earlier run |
| already_done | AlreadyDone | the dataset is finished already; no other event follows |
| pass | PassStart | a pass begins |
| task | TaskDone | a task is in the ledger |
| sample | Sample | a few times per second: memory, rows so far, what each worker does |
| retry | Retry | a task is tried again |
| alone | Alone | a task is tried again with no other task beside it |
| lost_file | LostFile | a file is set aside: your function died, hung or took too much memory on it |
| stall | Stall | a task has shown no row for `stall_notice` |
| worker_left | WorkerLeft | with `engine: workers`: a worker has ended early, or could not join |
| worker_clock | WorkerClock | with `engine: workers`: the clock of a worker is more than a minute off |
| no_worker | NoWorker | with `engine: workers`: no worker shows a sign of life, and tasks are left |
| pass_done | PassDone | a pass is over |
| done | Done | the manifest is written |
| failed | Failed | the run ends without a dataset: an error, or Ctrl-C |

Samples are not in events.jsonl, which would grow without end. The last one is in `.penstock/live.json` while the run
lasts, and `run.json` keeps a timeline of them.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypedDict

from penstock.base.stores.store import STATE

EVENTS = f"{STATE}/events.jsonl"
LIVE = f"{STATE}/live.json"


class PlannedPass(TypedDict):
    """One pass in `Start.passes`."""

    number: int
    kind: str  # map, fit, scatter, gather, hash, match, place, pack
    stages: list[str]
    tasks: int
    tasks_kept: int  # done by an earlier run
    rows: int  # that it will read, as planned
    rows_kept: int  # read by tasks of an earlier run
    rows_set_aside: dict[str, int]  # by reason, by tasks of an earlier run; only for passes that decide the dataset
    reads_input: bool  # whether its tasks read slices of the input; else what an earlier pass has left
    seconds: float  # projected


class MemoryFacts(TypedDict):
    """Bytes of the whole process tree during a pass, sampled: `increase` is `peak` minus `start`."""

    start: int
    peak: int
    end: int
    increase: int


class WorkerState(TypedDict):
    """One busy worker in `Sample.workers`."""

    worker: int
    task: str
    slice: str  # the input of the task, in words
    file: str  # the file that a function of yours has been given; "" if none
    rows: int  # that the task has read so far
    seconds: float  # since the task was begun


class Start(TypedDict):
    """The run begins its work."""

    event: Literal["start"]
    time: float
    process: int  # of the driver
    job: str  # fingerprint of everything that decides output bytes
    tasks: int
    tasks_kept: int  # done by an earlier run
    changes: list[str]  # since the last run in this output
    workers: int  # 0: inside the driver
    allowed: int  # bytes of memory
    projected: int  # bytes of memory
    rows: int  # of all passes together
    input_rows: int  # each row or document once
    input_bytes: int  # of files
    input_items: int  # values of `items:`, each given to a function
    rows_are_estimated: bool
    unit: str  # rows, documents, samples, events, ...
    bad_files: int
    not_read: list[dict[str, Any]]
    not_seen: list[str]
    waits_for: str  # the folder that `penstock work` joins; "" if the run does its tasks itself
    passes: list[PlannedPass]


class AlreadyDone(TypedDict):
    """The dataset of this job is finished already; nothing had to be done."""

    event: Literal["already_done"]
    time: float


class PassStart(TypedDict):
    """A pass begins."""

    event: Literal["pass"]
    time: float
    number: int
    kind: str
    tasks: int
    pending: int  # tasks that are not done yet
    notes: list[str]


class TaskDone(TypedDict):
    """A task is in the ledger: it is done, and a crash does not undo it."""

    event: Literal["task"]
    time: float
    task: str
    pass_number: int
    slice: str  # its input, in words
    rows: int  # that it has read
    bytes: int  # that it has read of files of the input; in a pass that does not read the input, that it has written
    seconds: float  # of its last attempt
    attempts: int
    set_aside: dict[str, int]  # rows by reason; empty in passes that do not decide the dataset


class Sample(TypedDict):
    """State of the run, sampled a few times per second."""

    event: Literal["sample"]
    time: float
    memory: int  # bytes of the whole process tree: the number that the budget counts
    file: int  # bytes of page cache that it maps, which no budget counts
    rows: int  # read so far by this run, in all passes
    busy: int  # workers that have a task
    workers: list[WorkerState]


class Retry(TypedDict):
    """A task is tried again."""

    event: Literal["retry"]
    time: float
    task: str
    slice: str
    reason: str
    batch_bytes: int


class Alone(TypedDict):
    """A row is very large: its task is tried again while no other task runs."""

    event: Literal["alone"]
    time: float
    task: str
    slice: str


class LostFile(TypedDict):
    """A file is set aside, because a function died, hung or took too much memory on it."""

    event: Literal["lost_file"]
    time: float
    task: str
    file: str
    title: str
    reason: str


class Stall(TypedDict):
    """A task has shown no row for a while."""

    event: Literal["stall"]
    time: float
    task: str
    slice: str
    seconds: float
    rows: int
    stack: str  # Python stacks of its worker


class WorkerLeft(TypedDict):
    """A worker has ended before the dataset was there, or could not join. The run waits for others."""

    event: Literal["worker_left"]
    time: float
    member: str  # its name: host, process number, random digits
    error: str  # the name of the class, such as FileError or Interrupted
    what: str
    where: str | None
    next_step: str | None


class WorkerClock(TypedDict):
    """The clocks of a worker and of the shared folder differ by more than a minute. Leases do not depend on it."""

    event: Literal["worker_clock"]
    time: float
    member: str
    ahead: float  # seconds; negative: behind


class NoWorker(TypedDict):
    """No worker shows a sign of life. The run waits until one joins."""

    event: Literal["no_worker"]
    time: float
    waits_for: str  # the folder that `penstock work` joins


class PassDone(TypedDict):
    """A pass is over. Rows, bytes and seconds are those of this run."""

    event: Literal["pass_done"]
    time: float
    number: int
    kind: str
    seconds: float
    rows: int
    bytes: int
    tasks: int  # done by this run
    memory: MemoryFacts


class Done(TypedDict):
    """The dataset is finished."""

    event: Literal["done"]
    time: float
    seconds: float


class Failed(TypedDict):
    """The run ends without a dataset. The same command resumes it."""

    event: Literal["failed"]
    time: float
    error: str  # the name of the class, such as InputError or Interrupted
    what: str
    seconds: float


Event: TypeAlias = (
    Start
    | AlreadyDone
    | PassStart
    | TaskDone
    | Sample
    | Retry
    | Alone
    | LostFile
    | Stall
    | WorkerLeft
    | WorkerClock
    | NoWorker
    | PassDone
    | Done
    | Failed
)
Observer: TypeAlias = Callable[[Event], None]
