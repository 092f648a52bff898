"""Following: the output of a run that another process does -> its events, as they come. It takes no lock and writes
nothing. Next: progress.py."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import cast

from penstock.base.errors import OutputError, TaskError
from penstock.base.events import EVENTS, Event, Sample
from penstock.base.events.log import last_sample, whole_lines
from penstock.base.sizes import format_seconds
from penstock.base.stores.store import PLAN, STATE, Store
from penstock.prepare.run.owner import AtWork, run_at_work
from penstock.shards.manifest import MANIFEST

_POLL_SECONDS = 0.25
_SILENT_SECONDS = 60.0  # of a run on another machine, after which it is taken for dead
_ENDS = ("done", "failed")


def refuse_idle(store: Store) -> AtWork:
    """The run that is active in the output. If there is none, the error says what the folder holds."""
    if not store.exists(STATE):
        raise OutputError(
            "no run has written to this folder",
            where=store.root,
            next_step="give the `output:` of a job that runs. A run that still plans writes nothing: "
            "`penstock watch --wait` waits for it",
        )
    working = run_at_work(store)
    if working.is_true is False and store.exists(PLAN):
        raise OutputError(
            "nobody watches the run in this output; its workers may go on",
            where=store.root,
            next_step="`penstock run JOB --engine workers` watches it, and `penstock work` joins it",
        )
    if working.is_true is False and not store.exists(MANIFEST):
        raise OutputError(
            "this output is not finished, and no run is at work",
            where=store.root,
            next_step="run the job again: it resumes from here; `penstock inspect` says how far it is",
        )
    return working


def wait_for_run(store: Store) -> None:
    """Return when a run is at work in the output, or one has been since this was called."""
    log_bytes = _log_bytes(store)
    while run_at_work(store).is_true is False and _log_bytes(store) == log_bytes:
        time.sleep(_POLL_SECONDS)


def _log_bytes(store: Store) -> int:
    return store.size(EVENTS) if store.exists(EVENTS) else 0


def recorded(store: Store) -> Iterator[Event]:
    """Events of the last run that ended in the output."""
    events: list[Event] = []
    for line, _ in whole_lines(store, 0) if store.exists(EVENTS) else ():
        with suppress(ValueError, KeyError, TypeError):  # a line that a crash cut
            event = cast(Event, json.loads(line))
            if event["event"] == "start":
                events.clear()
            events.append(event)
    return iter(events)


def follow(store: Store) -> Iterator[Event]:
    """Events of the run that is at work, from its start until it ends. An error says that its driver died."""
    tail = _Tail(store)
    heard = time.monotonic()
    while True:
        working = run_at_work(store)  # before the log is read: a run says its end before it lets go
        for event in (*tail.new(working), *tail.new_sample()):
            heard = time.monotonic()
            yield event
            if event["event"] in _ENDS:
                return
        if working.is_true is False and store.exists(MANIFEST):
            return  # it found the dataset there, or died after it had written it
        if working.is_true is False:
            raise _died(store, working)
        if working.is_true is None and time.monotonic() - heard > _SILENT_SECONDS:
            raise _silent(store, working)
        time.sleep(_POLL_SECONDS)


def _died(store: Store, working: AtWork) -> TaskError:
    return TaskError(
        f"the run ended without an error message: {working.owner}",
        where=store.root,
        next_step="run the job again: it resumes from here",
    )


def _silent(store: Store, working: AtWork) -> TaskError:
    return TaskError(
        f"no event for {format_seconds(_SILENT_SECONDS)}, and its machine cannot be reached: {working.owner}",
        where=store.root,
        next_step="check on that machine whether the process is running; if not, run the job again: it resumes",
    )


class _Tail:
    """New events in the log since the last look."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._place = 0
        self._has_started = False
        self._sample: Sample | None = None

    def new(self, working: AtWork) -> Iterator[Event]:
        """Events of the run at work since the last call. Those of earlier runs are passed over."""
        for line, place in whole_lines(self._store, self._place):
            self._place = place
            with suppress(ValueError):  # cut short by a crash
                event = cast(Event, json.loads(line))
                if event["event"] == "start":
                    self._has_started = working.owner is not None and event.get("process") == working.owner.process
                if self._has_started:
                    yield event

    def new_sample(self) -> Iterator[Event]:
        sample = last_sample(self._store)
        if sample and sample != self._sample:
            self._sample = sample
            yield sample
