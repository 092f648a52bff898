"""Metrics: the events of a run -> numbers for a logger, at most once per interval and once at the end."""

from __future__ import annotations

from penstock.base.events import Event
from penstock.base.events.metrics import Metrics, Numbers
from penstock.show.running.tracker import Tracker


class RunMetrics:
    """An observer that calls `on_metrics`, in the thread that runs the job."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._tracker = Tracker()

    def observe(self, event: Event) -> None:
        self._tracker.take(event)
        if self._tracker.passes and (self._metrics.is_due or self._tracker.ended):
            self._metrics.tell(run_numbers(self._tracker))


def run_numbers(tracker: Tracker) -> Numbers:
    """A flat dict. Speed and time left are there while a pass is at work and they are known."""
    numbers: Numbers = {
        "penstock/seconds": round(tracker.elapsed, 3),
        "penstock/share": tracker.share,
        "penstock/input_rows": tracker.input_read,
        "penstock/tasks_done": tracker.tasks_done,
        "penstock/rows_set_aside": tracker.set_aside.total(),
        "penstock/memory_bytes": tracker.memory,
        "penstock/peak_memory_bytes": tracker.peak_memory,
        "penstock/memory_share": tracker.memory / tracker.allowed if tracker.allowed else 0.0,
        "penstock/workers_busy": len(tracker.workers),
    }
    if tracker.now_pass:
        numbers["penstock/pass"] = tracker.now_pass.planned["number"]
        numbers["penstock/rows_per_second"] = tracker.rows_per_second
        numbers["penstock/bytes_per_second"] = tracker.bytes_per_second
    if (left := tracker.seconds_left) is not None:
        numbers["penstock/seconds_left"] = left
    return numbers
