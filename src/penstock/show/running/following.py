"""Following: the output of a run that another process does -> its events, as they come. It takes no lock and writes
nothing. Next: progress.py."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import cast

from penstock.base.errors import FileError, OutputError, TaskError
from penstock.base.events import EVENTS, LIVE, Event
from penstock.base.sizes import format_seconds
from penstock.base.stores.store import STATE, Store
from penstock.prepare.run.owner import AtWork, run_at_work
from penstock.shards.manifest import MANIFEST

_POLL_SECONDS = 0.25
_SILENT_SECONDS = 60.0  # of a run on another machine, after which it is taken for dead
_CHUNK_BYTES = 1 << 20
_ENDS = ("done", "failed")


def refuse_idle(store: Store) -> AtWork:
    """Who is at work in the output. An error says what is there instead."""
    if not store.exists(STATE):
        raise OutputError(
            "no run has written here",
            where=store.root,
            next_step="give the `output:` of a job that runs; `penstock run JOB` starts one",
        )
    working = run_at_work(store)
    if working.is_true is False and not store.exists(MANIFEST):
        raise OutputError(
            "this output is not finished, and no run is at work",
            where=store.root,
            next_step="run the job again: it resumes from here; `penstock inspect` says how far it is",
        )
    return working


def follow(store: Store) -> Iterator[Event]:
    """Events of the run that is at work, from its start until it ends. An error says that its driver died."""
    tail, live = _Tail(store), _Live(store)
    heard = time.monotonic()
    while True:
        working = run_at_work(store)  # before the log is read: a run says its end before it lets go
        for event in (*tail.new(working), *live.new()):
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
        f"the run died without a word: {working.owner}",
        where=store.root,
        next_step="run the job again: it resumes from here, with nothing done twice",
    )


def _silent(store: Store, working: AtWork) -> TaskError:
    return TaskError(
        f"no event for {format_seconds(_SILENT_SECONDS)}, and its machine cannot be asked: {working.owner}",
        where=store.root,
        next_step="look on that machine whether the process lives; if not, run the job again: it resumes",
    )


class _Tail:
    """The end of the log, line by line. A line that is not whole yet waits for the rest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._place = 0
        self._has_started = False

    def new(self, working: AtWork) -> Iterator[Event]:
        """Events of the run at work since the last call. Those of earlier runs are passed over."""
        for line in self._lines():
            with suppress(ValueError):  # cut short by a crash
                event = cast(Event, json.loads(line))
                if event["event"] == "start":
                    self._has_started = working.owner is not None and event.get("process") == working.owner.process
                if self._has_started:
                    yield event

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        while data := self._read(self._place + len(rest)):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._place += len(line) + 1
                yield line

    def _read(self, start: int) -> bytes:
        size = self._store.size(EVENTS)
        return self._store.read_range(EVENTS, start, min(_CHUNK_BYTES, size - start)) if size > start else b""


class _Live:
    """The last sample of the run, whenever there is a new one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last = b""

    def new(self) -> Iterator[Event]:
        data = b""
        with suppress(FileError, FileNotFoundError):  # the run has not written one, or has just ended
            data = self._store.read(LIVE) if self._store.exists(LIVE) else b""
        if data and data != self._last:
            self._last = data
            yield cast(Event, json.loads(data))
