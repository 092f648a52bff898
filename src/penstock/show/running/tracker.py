"""Tracker: the events of a run -> how far it is, how fast, how much memory it holds, how long it still needs."""

from collections import deque
from dataclasses import dataclass, field

from penstock.base.events import Event

_WINDOW_SECONDS = 15.0  # speed is that of the last so many seconds: a run on a warming or sharing machine changes


@dataclass
class Tracker:
    """Feed it every event with `take`; the rest only reads. Time comes from the events themselves."""

    kind: str = ""
    tasks: int = 0
    tasks_done: int = 0
    total: int = 0  # rows of all passes: exact where footers tell, an estimate for text
    is_estimated: bool = False  # whether `total` is
    kept: int = 0  # rows of tasks that an earlier run did
    finished: int = 0  # rows of tasks that this run did
    seen: int = 0  # the same, with the rows of tasks at work
    memory: int = 0
    allowed: int = 0
    started: float = 0.0
    now: float = 0.0
    ended: bool = False
    already_done: bool = False
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def take(self, event: Event) -> None:
        self.now = event["time"]
        name = event["event"]
        if name == "start":
            self._start(event)
        elif name == "pass":
            self.kind = event["kind"]
        elif name == "sample":
            self.memory = event["memory"]
            self.seen = event["rows"]
        elif name == "task":
            self.tasks_done += 1
            self.finished += event["rows"]
        elif name in ("done", "already_done"):
            self.ended, self.already_done = True, name == "already_done"
        self._remember()

    def _start(self, event: Event) -> None:
        self.started = event["time"]
        self.allowed, self.total = event["allowed"], event["rows"]
        self.is_estimated = event["rows_are_estimated"]
        self.tasks, self.tasks_done = event["tasks"], event["tasks_kept"]
        # The ledger's rows are not in the event; slices are about equal, so their share is near enough for a bar.
        self.kept = round(self.total * self.tasks_done / max(1, self.tasks))

    def _remember(self) -> None:
        self._recent.append((self.now, self._new_rows))
        while self.now - self._recent[0][0] > _WINDOW_SECONDS:
            self._recent.popleft()

    @property
    def _new_rows(self) -> int:
        return max(self.finished, self.seen)  # inside the driver (`workers: 0`) samples see no rows

    @property
    def rows(self) -> int:
        return self.kept + self._new_rows

    @property
    def share(self) -> float:
        """0 to 1, and 1 only when the run says so: an estimated total may be too small."""
        if self.ended:
            return 1.0
        return min(self.rows / self.total, 0.99) if self.total else 0.0

    @property
    def rows_per_second(self) -> float:
        seconds = self.now - self._recent[0][0] if self._recent else 0.0
        return max(0, self._new_rows - self._recent[0][1]) / seconds if seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        speed = self.rows_per_second
        return max(0, self.total - self.rows) / speed if speed > 0 else None
