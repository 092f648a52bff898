"""Tracker: the events of a run -> how far it is, how fast, how long still. Pure: time comes from the events."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.base.events import Event, PassDone, PassStart, PlannedPass, Sample, Start, TaskDone, WorkerState

_WINDOW_SECONDS = 15.0  # speed is that of the last so many seconds: a run on a warming or sharing machine changes
_ALMOST = 0.99  # an estimated total may be too small: a pass is whole only when the run says so


@dataclass
class TrackedPass:
    """One pass: how it was planned, and how far it is."""

    planned: PlannedPass
    is_estimated: bool = False  # whether `planned["rows"]` is
    state: str = "waiting"  # waiting, now, done
    tasks_done: int = 0  # by this run
    finished: int = 0  # rows of tasks that this run did
    seen: int = 0  # the same, with the rows of tasks at work
    bytes: int = 0  # of tasks that this run did
    began: float = 0.0
    seconds: float = 0.0

    @property
    def new_rows(self) -> int:
        return max(self.finished, self.seen)

    @property
    def rows(self) -> int:
        return self.planned["rows_kept"] + self.new_rows

    @property
    def tasks(self) -> int:
        return self.planned["tasks_kept"] + self.tasks_done

    @property
    def share(self) -> float:
        """0 to 1, by rows or by tasks, whichever is further: stages before may have left rows out."""
        if self.state == "done":
            return 1.0
        by_rows = self.rows / self.expected_rows if self.expected_rows else 0.0
        by_tasks = self.tasks / self.planned["tasks"] if self.planned["tasks"] else 0.0
        return min(max(by_rows, by_tasks), _ALMOST)

    @property
    def expected_rows(self) -> int:
        """Rows that the pass will have read. An estimate grows if the tasks that are done had more rows."""
        if self.state == "done":
            return self.rows
        if not self.is_estimated or not self.tasks:
            return self.planned["rows"]
        in_done_tasks = self.planned["rows_kept"] + self.finished
        return max(self.planned["rows"], round(in_done_tasks * self.planned["tasks"] / self.tasks))

    @property
    def row_bytes(self) -> float:
        """Bytes per row of the tasks that are done."""
        return self.bytes / self.finished if self.finished else 0.0


@dataclass
class Tracker:
    """Feed it every event with `take`; the rest only reads."""

    passes: dict[int, TrackedPass] = field(default_factory=dict)
    now_pass: TrackedPass | None = None
    input_rows: int = 0
    input_bytes: int = 0
    input_items: int = 0  # values of `items:`
    unit: str = "rows"
    is_estimated: bool = False  # whether `input_rows` is
    tasks: int = 0
    tasks_done: int = 0  # by this run and the ones before
    memory: int = 0
    peak_memory: int = 0
    allowed: int = 0
    workers: list[WorkerState] = field(default_factory=list)
    set_aside: Counter[str] = field(default_factory=Counter)  # rows by reason
    started: float = 0.0
    now: float = 0.0
    ended: bool = False
    already_done: bool = False
    is_for_workers: bool = False  # whether others do the tasks, with `penstock work`
    failed: str = ""  # what the run said when it ended without a dataset
    _recent: deque[tuple[float, int]] = field(default_factory=deque)  # rows of the pass that is at work

    def take(self, event: Event) -> None:
        self.now = max(self.now, event["time"])
        if event["event"] == "start":
            self._start(event)
        elif event["event"] == "pass":
            self._begin(event)
        elif event["event"] == "sample":
            self._sample(event)
        elif event["event"] == "task":
            self._count(event)
        elif event["event"] == "pass_done":
            self._end(event)
        elif event["event"] == "failed":
            self.ended, self.failed = True, f"{event['error']}: {event['what']}"
        elif event["event"] in ("done", "already_done"):
            self.ended, self.already_done = True, event["event"] == "already_done"
        self._remember()

    def _start(self, event: Start) -> None:
        vars(self).update(vars(Tracker()))  # whoever watches an output may see more than one run
        self.now = event["time"]
        self.started, self.allowed = event["time"], event["allowed"]
        self.is_for_workers = bool(event.get("waits_for"))
        self.unit, self.is_estimated = event["unit"], event["rows_are_estimated"]
        self.input_rows, self.input_bytes = event["input_rows"], event["input_bytes"]
        self.input_items = event.get("input_items", 0)  # an earlier version did not say it
        self.tasks, self.tasks_done = event["tasks"], event["tasks_kept"]
        self.passes = {each["number"]: TrackedPass(each, self.is_estimated) for each in event["passes"]}
        for each in event["passes"]:
            self.set_aside.update(each["rows_set_aside"])

    def _begin(self, event: PassStart) -> None:
        self.now_pass = self.passes[event["number"]]
        self.now_pass.state, self.now_pass.began = "now", event["time"]
        self.workers = []
        self._recent.clear()

    def _sample(self, event: Sample) -> None:
        self.memory, self.workers = event["memory"], event["workers"]
        self.peak_memory = max(self.peak_memory, self.memory)
        if self.now_pass:
            before = sum(each.finished for each in self.passes.values() if each is not self.now_pass)
            self.now_pass.seen = max(0, event["rows"] - before)

    def _count(self, event: TaskDone) -> None:
        each = self.passes[event["pass_number"]]
        each.tasks_done += 1
        each.finished += event["rows"]
        each.bytes += event["bytes"]
        self.tasks_done += 1
        self.set_aside.update(event["set_aside"])

    def _end(self, event: PassDone) -> None:
        each = self.passes[event["number"]]
        each.state, each.seconds = "done", event["seconds"]
        self.peak_memory = max(self.peak_memory, event["memory"]["peak"])
        self.now_pass, self.workers = None, []

    def _remember(self) -> None:
        if self.now_pass:
            self._recent.append((self.now, self.now_pass.new_rows))
            while self.now - self._recent[0][0] > _WINDOW_SECONDS:
                self._recent.popleft()

    # The whole run.

    @property
    def elapsed(self) -> float:
        return self.now - self.started if self.started else 0.0

    @property
    def kind(self) -> str:
        return self.now_pass.planned["kind"] if self.now_pass else ""

    @property
    def input_read(self) -> int:
        """Rows or documents of the input that some pass has read: each once, however many passes read it."""
        return max((each.rows for each in self.passes.values() if each.planned["reads_input"]), default=0)

    @property
    def input_expected(self) -> int:
        """Rows or documents that the input has, as far as it is known by now."""
        if self.is_input_known:
            return max(self.input_read, 0 if self.is_estimated else self.input_rows)
        reading = (each.expected_rows for each in self.passes.values() if each.planned["reads_input"])
        return max(self.input_rows, self.input_read, *reading)

    @property
    def is_input_known(self) -> bool:
        """Whether the rows were counted in advance, or a pass has read them all."""
        have_read = any(each.state == "done" and each.planned["reads_input"] for each in self.passes.values())
        return have_read or not self.is_estimated

    @property
    def is_of_items(self) -> bool:
        """Whether the input is `items:` alone. They are counted; the samples that they make are not."""
        return self.input_items > 0 and not self.input_bytes

    @property
    def share(self) -> float:
        """Share of all work, 0 to 1: passes weigh what they were projected to take."""
        if self.ended and not self.failed:
            return 1.0
        whole = sum(map(_weight, self.passes.values()))
        done = sum(_weight(each) * each.share for each in self.passes.values())
        return min(done / whole, _ALMOST) if whole else 0.0

    @property
    def is_finishing(self) -> bool:
        """Whether all passes are done, and only the manifest is not."""
        return bool(self.passes) and not self.ended and all(each.state == "done" for each in self.passes.values())

    @property
    def lacks_workers(self) -> bool:
        """Whether the tasks wait for `penstock work`, and no worker that does them gives a sign of life."""
        return self.is_for_workers and self.now_pass is not None and not self.memory

    @property
    def rows_per_second(self) -> float:
        """Rows per second of the current pass, over the last seconds."""
        seconds = self.now - self._recent[0][0] if self._recent else 0.0
        if not self.now_pass or seconds <= 0:
            return 0.0
        return max(0, self.now_pass.new_rows - self._recent[0][1]) / seconds

    @property
    def bytes_per_second(self) -> float:
        """Rows per second, by the bytes per row of the tasks that are done, or else of the input."""
        if not self.now_pass:
            return 0.0
        of_input = self.input_bytes / self.input_rows if self.input_rows else 0.0
        return self.rows_per_second * (
            self.now_pass.row_bytes or (of_input if self.now_pass.planned["reads_input"] else 0)
        )

    @property
    def seconds_left(self) -> float | None:
        """Estimated: this pass by its rows and speed; the next ones as projected, corrected by the passes so far."""
        here, speed = self.now_pass, self.rows_per_second
        if not here or speed <= 0 or here.share <= 0:
            return None
        left = here.rows / here.share * (1 - here.share) / speed
        waiting = sum(
            each.planned["seconds"] * (1 - each.share) for each in self.passes.values() if each.state == "waiting"
        )
        return left + waiting * self._correction()

    def _correction(self) -> float:
        """Seconds that the passes so far took, per projected second."""
        spent, projected = 0.0, 0.0
        for each in self._begun():
            spent += each.seconds if each.state == "done" else self.now - each.began
            kept = each.planned["rows_kept"] / each.planned["rows"] if each.planned["rows"] else 0.0
            projected += each.planned["seconds"] * max(0.0, each.share - kept)
        return spent / projected if projected > 0 else 1.0

    def _begun(self) -> Iterator[TrackedPass]:
        return (each for each in self.passes.values() if each.state != "waiting")


def _weight(each: TrackedPass) -> float:
    return max(each.planned["seconds"], 0.001)
