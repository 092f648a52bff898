"""Inbox: reports of workers to the driver while their tasks run. One small actor on the driver's node."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from penstock.base.memory import tree_memory

MEMORY = "memory"  # a message of the mailbox itself: the memory of its process
_FLUSH_SECONDS = 0.5
_MEMORY_SECONDS = 1.0  # reading it is not free
_AT_ONCE = {"ready", "place"}  # the driver must know them even if the worker dies next
_LATEST = {"progress", "holds", MEMORY}  # only the last of each counts

Letter = tuple[str, tuple[Any, ...]]  # the token of an attempt, and a message


class Inbox:
    """The actor."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []

    def put(self, token: str, messages: list[tuple[Any, ...]]) -> None:
        self._letters += [(token, message) for message in messages]

    def take(self) -> list[Letter]:
        letters, self._letters = self._letters, []
        return letters


class Mailbox:
    """A worker's connection to the inbox during one attempt: at most two letters per second, except urgent ones."""

    def __init__(self, inbox: Any, token: str) -> None:
        self._inbox, self._token = inbox, token
        self._messages: list[tuple[Any, ...]] = []
        self._lock, self._over = threading.Lock(), threading.Event()
        self._looked = time.monotonic()
        self._thread = threading.Thread(target=self._flush_often, daemon=True)

    def __enter__(self) -> Mailbox:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()
        self._flush()

    def send(self, message: Any) -> None:
        with self._lock:
            if message[0] in _LATEST:
                self._messages = [each for each in self._messages if each[0] != message[0]]
            self._messages.append(message)
        if message[0] in _AT_ONCE:
            import ray

            ray.get(self._flush())

    def _flush_often(self) -> None:
        while not self._over.wait(_FLUSH_SECONDS):
            if time.monotonic() - self._looked >= _MEMORY_SECONDS:
                self._look()
            if self._messages:
                self._flush()

    def _look(self) -> None:
        self.send((MEMORY, tree_memory(os.getpid()).counted))
        self._looked = time.monotonic()

    def _flush(self) -> Any:
        with self._lock:
            messages, self._messages = self._messages, []
            return self._inbox.put.remote(self._token, messages)
