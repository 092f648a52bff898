"""Event log: appends what a run says to `.penstock/events.jsonl`, keeps its last sample, and calls the observer.

Others read both while the run is at work: `whole_lines` and `last_sample`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self, cast

from penstock.base.errors import FileError, PenstockError
from penstock.base.events import EVENTS, LIVE, Event, Observer, Sample
from penstock.base.stores.store import Store

_READ_BYTES = 1 << 20
_LIVE_SECONDS = 1.0  # between two writes of live.json; a run that is shorter writes none


class EventLog:
    """The events of one run. Only the process that holds the store opens it; others have files of their own."""

    def __init__(self, store: Store, observer: Observer | None, events: str = EVENTS, live: str = LIVE) -> None:
        self._store, self._observer, self._live = store, observer, live
        self._file = store.append(events)
        self._live_written = time.monotonic()
        self._forget_live()  # which a killed run has left

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._forget_live()

    def say(self, name: str, **facts: Any) -> None:
        event = _event(name, facts)
        self._file.write(_line(event) + b"\n")
        self._hand_on(event)

    def say_failed(self, error: Exception, seconds: float) -> None:
        known = error if isinstance(error, PenstockError) else PenstockError(f"{type(error).__name__}: {error}")
        with suppress(PenstockError):  # a full disk has no room for it; `error` itself is what counts
            self.say("failed", error=known.name, what=known.what, seconds=seconds)

    def sample(self, **facts: Any) -> None:
        """Write a sample to live.json. It replaces the one before, and is not appended to the log."""
        event = _event("sample", facts)
        if time.monotonic() - self._live_written >= _LIVE_SECONDS:
            with self._store.commit(self._live, lasting=False) as file:
                file.write(_line(event))
            self._live_written = time.monotonic()
        self._hand_on(event)

    def _hand_on(self, event: Event) -> None:
        if self._observer:
            self._observer(event)

    def _forget_live(self) -> None:
        if self._store.exists(self._live):
            self._store.remove(self._live)


def _event(name: str, facts: dict[str, Any]) -> Event:
    return cast(Event, {"event": name, "time": round(time.time(), 3), **facts})


def _line(event: Event) -> bytes:
    """JSON of an event. Paths that are not valid UTF-8 have lone surrogates, which JSON can escape."""
    return json.dumps(event, ensure_ascii=False).encode(errors="backslashreplace")


def whole_lines(store: Store, place: int = 0, name: str = EVENTS) -> Iterator[tuple[bytes, int]]:
    """Lines of the log from a place on, and the place behind each. One that is not whole yet is left for later."""
    rest, size = b"", store.size(name)
    for start in range(place, size, _READ_BYTES):
        *lines, rest = (rest + store.read_range(name, start, min(_READ_BYTES, size - start))).split(b"\n")
        for line in lines:
            place += len(line) + 1
            yield line, place


def last_sample(store: Store, name: str = LIVE) -> Sample | None:
    """The sample in live.json; None if the run has not written one or has just ended, or if the file is damaged."""
    with suppress(FileError, ValueError):
        if store.exists(name):
            return cast(Sample, json.loads(store.read(name)))
    return None
