"""Split: decide for each row which split it belongs to, by a hash that never changes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.rows.hashing import combine, has_hash, hash_distinct, hash_positions
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.interfaces import Decide, Exchanges, Settles, Splits
from penstock.prepare.stages.splitting.by_time import SplitByTime
from penstock.prepare.stages.splitting.names import TRAIN, refuse_name
from penstock.prepare.stages.stage import Stage, require_columns


@dataclass(frozen=True, kw_only=True)
class Split(Splits, Settles):
    """`split: {test: 0.1}` or `split: {by: user, val: 0.05, test: 0.1}`; what is left is `train`.

    `by` a column (or a list of them) puts equal values into one split; without it each row is decided by its
    position (file and row). Either way a row stays in its split when files or rows are added. Behind `group`,
    `by: key` (or none) means the columns that were grouped by. Another `seed` makes another split: rows that one split
    put together are divided again by the next. `{by_time: at, test: "2024-06-01"}` splits by time instead.
    """

    fractions: dict[str, float]
    by: tuple[str, ...] = ()
    seed: int = 0

    @classmethod
    def variant(cls, written: Any) -> type[Stage]:
        return SplitByTime if isinstance(written, dict) and "by_time" in written else cls

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        if not isinstance(written, dict):
            raise ConfigError(f"expected fractions, such as {{test: 0.1}}, got {written!r}")
        by = written.get("by", [])
        seed = written.get("seed", 0)
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise ConfigError(f"seed: {seed!r} is not a whole number from 0 to 2^63 - 1")
        fractions = {str(name): share for name, share in written.items() if name not in ("by", "seed")}
        return {"by": [by] if isinstance(by, str) else by, "fractions": dict(sorted(fractions.items())), "seed": seed}

    def __post_init__(self) -> None:
        if not self.fractions:
            raise ConfigError("name at least one split and its share, such as {test: 0.1}")
        for name, share in self.fractions.items():
            refuse_name(name)
            if not 0 < share < 1:
                raise ConfigError(f"{name}: {share} is not a share between 0 and 1")
        if (total := sum(map(_exact, self.fractions.values()))) >= 1:
            raise ConfigError(f"the shares add up to {float(total):g}: nothing is left for train")

    def __call__(self, rows: Rows) -> Rows:
        return replace(rows, splits=self.decide(self._hashes(rows)))

    def settled(self, before: Sequence[Stage]) -> Stage:
        groups = [stage.exchange().by for stage in before if isinstance(stage, Exchanges)]
        means_the_key = self.by in ((), ("key",)) and groups and "key" not in groups[-1]
        return replace(self, by=groups[-1]) if means_the_key else self

    def by_position(self) -> Decide | None:
        return None if self.by else self.decide

    def decide(self, hashes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Split numbers, 0 = train. Named splits take ranges of the hash from 0 upwards, in order of name."""
        if self.seed:
            hashes = combine(hashes, np.full(len(hashes), self.seed, "u8"))
        splits = np.zeros(len(hashes), "u1")
        low = Fraction(0)
        for number, share in enumerate(self.fractions.values(), start=1):
            high = low + _exact(share)
            edges = [np.uint64(int(edge * 2**64)) for edge in (low, high)]
            splits[(hashes >= edges[0]) & (hashes < edges[1])] = number
            low = high
        return splits

    def _hashes(self, rows: Rows) -> np.ndarray[Any, Any]:
        if not self.by:
            return hash_positions(rows.paths, rows.files, rows.ordinals)
        return reduce(combine, [hash_distinct(rows.batch.column(name)) for name in self.by])

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_columns(schema, list(self.by))
        for name in self.by:
            if not has_hash(schema.field(name).type):
                raise ConfigError(
                    f"by: column {name!r} is {schema.field(name).type}, which has no single value to decide by",
                    next_step="behind `group`, split by: key, so that all records of a key are in one split",
                )
        return schema

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        return described if self.seed else {name: each for name, each in described.items() if name != "seed"}

    def keeps_rows(self) -> bool:
        return True

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None else after | frozenset(self.by)

    def splits(self) -> tuple[str, ...]:
        return (TRAIN, *self.fractions)


def _exact(share: float) -> Fraction:
    """The decimal people wrote: 0.1 is a tenth."""
    return Fraction(str(share))
