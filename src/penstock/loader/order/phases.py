"""Phases: the number of a batch -> the mixture and batch size it is made with, and its rows in them. Next: order.py."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.fingerprint import fingerprint
from penstock.loader.order.order import Order, Remainder

_MOST_SHARES = 8  # spelled out in a state


@dataclass(frozen=True)
class Phase:
    """Batches from `first` on: `batch_size` rows of `order` each."""

    first: int
    batch_size: int
    order: Order

    def row_of(self, step: int) -> int:
        """First row of a batch in the phase's order."""
        return (step - self.first) * self.batch_size

    def facts(self) -> dict[str, Any]:
        """Plain values for a state; many shares by their fingerprint, so that it stays small."""
        shares = list(self.order.shares)
        short = shares if len(shares) <= _MOST_SHARES else fingerprint(shares)[:16]
        return {"from": self.first, "batch_size": self.batch_size, "shares": short}


@dataclass(frozen=True)
class Phases:
    """A whole run: the phases in order, the first from batch 0 on."""

    each: tuple[Phase, ...]
    remainder: Remainder = "drop"

    @property
    def first(self) -> Phase:
        return self.each[0]

    @property
    def last(self) -> Phase:
        return self.each[-1]

    @property
    def most_rows(self) -> int:
        """Rows of the largest batch."""
        return max(phase.batch_size for phase in self.each)

    def first_settings(self) -> dict[str, Any]:
        """Settings of the first phase, for the recipe."""
        return {"batch_size": self.first.batch_size, "shares": list(self.first.order.shares)}

    def number_at(self, step: int) -> int:
        return bisect_right([phase.first for phase in self.each], step) - 1

    @property
    def steps(self) -> int | None:
        """Batches in all, the same on every rank. None: without end."""
        rows, size = self.last.order.rows, self.last.batch_size
        if rows is None:
            return None
        return self.last.first + (rows // size if self.remainder == "drop" else -(-rows // size))

    def epoch_of(self, step: int) -> tuple[int, int] | None:
        """First batch of the epoch that a batch is in, and the one behind its last. None: phases know no epochs.

        A batch in which an epoch ends belongs to it.
        """
        if len(self.each) > 1:
            return None
        rows, size = self.last.order.epoch_rows, self.last.batch_size
        epoch = step * size // rows
        return -(-epoch * rows // size), -(-(epoch + 1) * rows // size)

    def taken(self, step: int) -> tuple[int, ...]:
        """Rows of each dataset before a batch. Rows that only fill the last batch are of none."""
        phase = self.each[self.number_at(step)]
        rows, last = phase.row_of(step), phase.order.rows
        return phase.order.taken(rows if last is None else min(rows, last))

    def padding(self, step: int) -> int:
        """Rows before a batch that only filled the last batch of the run."""
        steps, rows = self.steps, self.last.order.rows
        return 0 if rows is None or steps is None or step < steps else max(0, self.last.row_of(steps) - rows)

    def begun(self, step: int) -> list[dict[str, Any]]:
        """Facts of the phases behind the first that a batch before `step` was made in."""
        return [phase.facts() for phase in self.each[1:] if phase.first < step]


def differing_phases(own: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> str:
    """The first phase in which two runs differ, in words; empty if they agree."""
    for number in range(max(len(own), len(others))):
        one, other = (each[number] if number < len(each) else None for each in (own, others))
        if one != other:
            return f"phase {number + 2} was {_words(other)} and is {_words(one)}"
    return ""


def _words(phase: Mapping[str, Any] | None) -> str:
    return "not there" if phase is None else ", ".join(f"{name} {value}" for name, value in phase.items())
