"""Split by count: exactly so many rows, or keys, to each split: those with the smallest hashes."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.rows.hashing import combine
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.fitting.smallest import HASH, PACKED_BYTES, Smallest
from penstock.prepare.stages.interfaces import Applies, Fit
from penstock.prepare.stages.splitting.by_hash import Array, SplitByHash, written_options
from penstock.prepare.stages.splitting.names import TRAIN, refuse_name
from penstock.prepare.stages.stage import Stage

MOST = 100_000  # in all splits together: every task leaves as many hashes, and the driver holds all of them


@dataclass(frozen=True, kw_only=True)
class SplitByCount(SplitByHash, Applies):
    """`split: {test: 1000, val: 500}`: exactly so many of the rows that reach it; what is left is `train`.

    With `by`, or behind `group`, so many keys, with all their rows. The rows are read twice: once to find the smallest
    hashes, once to divide. All counts together are at most 100,000.
    """

    smaller_states: ClassVar[str] = "smaller counts in `split`, or shares"
    leaves_artifact: ClassVar[bool] = False  # what it finds is in the manifest: records by split

    sizes: dict[str, int]
    by: tuple[str, ...] = ()
    seed: int = 0

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        options, sizes = written_options(written)
        shares = [name for name, value in sizes.items() if isinstance(value, float)]
        exact = [name for name, value in sizes.items() if is_count(value)]
        if shares:
            raise ConfigError(
                f"{exact[0]}: {sizes[exact[0]]} is a count and {shares[0]}: {sizes[shares[0]]} a share: a split takes "
                "either counts or shares",
                next_step="make all of them whole numbers, or all of them shares between 0 and 1",
            )
        for name, value in sizes.items():
            if not is_count(value):
                raise ConfigError(f"{name}: {value!r} is not a whole number", next_step=f"{name}: 1000, for 1,000 rows")
        return {**options, "sizes": sizes}

    def __post_init__(self) -> None:
        for name, count in self.sizes.items():
            refuse_name(name)
            if count < 1:
                raise ConfigError(
                    f"{name}: {count} is neither a count of 1 or more nor a share between 0 and 1",
                    next_step=f"leave {name} out, or write {name}: 1000 for an exact count, {name}: 0.1 for a share",
                )
        if self.total > MOST:
            raise ConfigError(
                f"the counts add up to {self.total:,}, and exact counts go up to {MOST:,}",
                next_step="use shares, such as {test: 0.1}: of counts this large, they differ by less than 1%",
            )

    @property
    def total(self) -> int:
        return sum(self.sizes.values())

    @property
    def unit(self) -> str:
        """Unit of the counts, in words."""
        return f"different values of {', '.join(self.by)}" if self.by else "rows"

    def __call__(self, rows: Rows) -> Rows:
        """Before anything is counted, while the columns are checked."""
        return rows

    def hashes(self, rows: Rows) -> Array:
        """Two sources may have files of the same path: their rows must differ, or they would be taken in pairs."""
        hashes = super().hashes(rows)
        if rows.source and not self.by:
            hashes = combine(hashes, np.full(len(hashes), rows.source, "u8"))
        return self.seeded(hashes)

    def measured(self, rows: Rows) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(self.hashes(rows), pa.uint64())], names=[HASH])

    def fit(self) -> Fit:
        return Smallest(tuple(self.sizes.items()), self.unit, is_distinct=bool(self.by))

    def state_bytes(self, rows: int) -> int:
        return PACKED_BYTES * min(self.total + 1, rows)

    def bind(self, artifact: Any) -> Stage:
        return Divide(split=self, last_hashes=tuple(artifact.values()))

    def splits(self) -> tuple[str, ...]:
        return (TRAIN, *self.sizes)


@dataclass(frozen=True, kw_only=True)
class Divide(Stage):
    """SplitByCount, once it is known with which hash each split ends."""

    split: SplitByCount
    last_hashes: tuple[int, ...]

    def __call__(self, rows: Rows) -> Rows:
        found = np.searchsorted(self._last, self.split.hashes(rows))
        splits = (found + 1) % (len(self._last) + 1)  # behind the last split is train, which is 0
        return replace(rows, splits=splits.astype("u1"))

    @cached_property
    def _last(self) -> Array:
        return np.array(self.last_hashes, "u8")


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
