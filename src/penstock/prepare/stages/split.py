"""Split: decide for each row which split it belongs to, by a hash that never changes."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.interfaces import Decide
from penstock.prepare.stages.splitting.by_count import SplitByCount, is_count
from penstock.prepare.stages.splitting.by_hash import SplitByHash, written_options
from penstock.prepare.stages.splitting.by_time import SplitByTime
from penstock.prepare.stages.splitting.names import TRAIN, refuse_name
from penstock.prepare.stages.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Split(SplitByHash):
    """`split: {test: 0.1}` or `split: {by: user, val: 0.05, test: 0.1}`; all other rows are `train`.

    `by` is a column, or a list of columns: equal values go to one split. Without `by`, the position of a row (file and
    row number) decides. In both cases a row stays in its split when files or rows are added. After `group`, `by: key`
    (the default there) means the columns of the key. Another `seed` makes another split: use one to split a part of an
    earlier split again. Whole numbers are exact counts: `{test: 1000}` is 1,000 rows, `{by: user, test: 100}` the rows
    of 100 users. `{by_time: at, test: "2024-06-01"}` splits by time instead.
    """

    fractions: dict[str, float]
    by: tuple[str, ...] = ()
    seed: int = 0

    @classmethod
    def variant(cls, written: Any) -> type[Stage]:
        if not isinstance(written, dict):
            return cls
        if "by_time" in written:
            return SplitByTime
        counts = any(is_count(value) for name, value in written.items() if name not in ("by", "seed"))
        return SplitByCount if counts else cls

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        options, fractions = written_options(written)
        return {**options, "fractions": fractions}

    def __post_init__(self) -> None:
        if not self.fractions:
            raise ConfigError("name at least one split and its share, such as {test: 0.1}")
        for name, share in self.fractions.items():
            refuse_name(name)
            if not 0 < share < 1:
                exact = int(share) if share >= 1 and share.is_integer() else 1000
                raise ConfigError(
                    f"{name}: {share} is not a share between 0 and 1",
                    next_step=f"a share such as {name}: 0.1, or an exact count, as a whole number: {name}: {exact}",
                )
        if (total := sum(map(_exact, self.fractions.values()))) >= 1:
            raise ConfigError(f"the shares add up to {float(total):g}, which leaves nothing for train")

    def __call__(self, rows: Rows) -> Rows:
        return replace(rows, splits=self.decide(self.hashes(rows)))

    def by_position(self) -> Decide | None:
        return None if self.by else self.decide

    def decide(self, hashes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Split numbers, 0 = train. Named splits take ranges of the hash from 0 upwards, in order of name."""
        hashes = self.seeded(hashes)
        splits = np.zeros(len(hashes), "u1")
        low = Fraction(0)
        for number, share in enumerate(self.fractions.values(), start=1):
            high = low + _exact(share)
            edges = [np.uint64(int(edge * 2**64)) for edge in (low, high)]
            splits[(hashes >= edges[0]) & (hashes < edges[1])] = number
            low = high
        return splits

    def splits(self) -> tuple[str, ...]:
        return (TRAIN, *self.fractions)


def _exact(share: float) -> Fraction:
    """The decimal people wrote: 0.1 is a tenth."""
    return Fraction(str(share))
