"""Attempt: a task, how often it was tried, and how it is getting on. Kept by attempts.py."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

ATTEMPTS = 3  # of a task whose worker dies: whole, half and quarter batches

LostFile = tuple[str, str, str]  # path, title, reason


@dataclass
class Attempt:
    task: Any
    tries: int = 0
    number: int = 0  # how often its batch was divided
    failures: Counter[str] = field(default_factory=Counter)  # by file: no file pays for what another did
    stalls: Counter[str] = field(default_factory=Counter)  # likewise
    lost: tuple[LostFile, ...] = ()  # files that were given up
    asked_to_be_alone: bool = False
    reason: str = ""  # why the last try ended
    rows: int = 0
    moved: float = 0.0  # when it last showed a row
    noticed: bool = False  # that it has not for a while
    place: str = ""  # the file that a user's function has been given
    place_bytes: int = 0  # what the worker held when it was
    weighed: float = 0.0  # when it was last known what the worker held in this file
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
        self.rows, self.place = 0, ""
        self.show(now)

    def show(self, now: float) -> None:
        """It moves: the time without a row starts anew."""
        self.moved, self.noticed = now, False
