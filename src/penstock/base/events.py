"""Events: what a run says while it works, as lines of `.penstock/events.jsonl` and to whoever listens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from penstock.base.stores.store import STATE, Store

Event = dict[str, Any]
Observer = Callable[[Event], None]
EVENTS = f"{STATE}/events.jsonl"


class EventLog:
    """Appends events to the folder's log and hands each to the observer."""

    def __init__(self, store: Store, observer: Observer | None) -> None:
        self._file = store.append(EVENTS)
        self._observer = observer

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def say(self, name: str, **facts: Any) -> None:
        event: Event = {"event": name, "time": round(time.time(), 3), **facts}
        self._file.write(json.dumps(event, ensure_ascii=False).encode() + b"\n")
        if self._observer:
            self._observer(event)
