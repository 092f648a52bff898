"""Same rows: counts the rows of a slice as they come by again, and refuses other rows than the first time."""

from dataclasses import dataclass

from penstock.base.errors import TaskError
from penstock.prepare.rows.rows import Rows


@dataclass
class SameRows:
    """Rows that a stage is given, of a slice that gave an earlier pass `expected` of them."""

    stage: str
    did: str  # what the earlier pass did with them
    number: int  # of the slice
    expected: int
    passed: int = 0

    def start_of(self, rows: Rows) -> int:
        """Number of the first of these rows among those of the slice."""
        start = self.passed
        self.passed += len(rows)
        if self.passed > self.expected:
            raise self._others(f"more than {self.expected:,}")
        return start

    def ended(self) -> None:
        if self.passed != self.expected:
            raise self._others(f"{self.passed:,}")

    def _others(self, now: str) -> TaskError:
        return TaskError(
            f"{self.stage} got {now} documents from a slice that had {self.expected:,} when they were {self.did}",
            where=f"slice {self.number}",
            next_step=f"a stage before {self.stage}, or the input, gave other rows the second time: make it "
            "deterministic and run again",
        )
