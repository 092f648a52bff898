"""By hash: what the splits share that decide a row by a hash of its position, or of some of its columns."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.rows.hashing import combine, has_hash, hash_distinct, hash_positions
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.interfaces import Exchanges, Settles, Splits
from penstock.prepare.stages.stage import Stage, require_columns

Array = np.ndarray[Any, Any]


class SplitByHash(Splits, Settles):
    """A split with the options `by` and `seed`."""

    seed: int

    def settled(self, before: Sequence[Stage]) -> Stage:
        """Behind `group`, no `by` means the key, and so does `by: key` unless a column of the key is called so."""
        groups = [stage.exchange().by for stage in before if isinstance(stage, Exchanges)]
        means_the_key = groups and (not self.by or (self.by == ("key",) and "key" not in groups[-1]))
        key: dict[str, Any] = {"by": groups[-1]} if means_the_key else {}
        return replace(self, **key)

    def hashes(self, rows: Rows) -> Array:
        """Hash of the columns `by`, or of the position. Equal in every job, whatever its seed."""
        if not self.by:
            return hash_positions(rows.paths, rows.files, rows.ordinals)
        return reduce(combine, [hash_distinct(rows.batch.column(name)) for name in self.by])

    def seeded(self, hashes: Array) -> Array:
        return combine(hashes, np.full(len(hashes), self.seed, "u8")) if self.seed else hashes

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_columns(schema, list(self.by))
        for name in self.by:
            if not has_hash(schema.field(name).type):
                raise ConfigError(
                    f"by: column {name!r} is {schema.field(name).type}, which has no single value per row",
                    next_step="after `group`, use split: {by: key}, so that all records of a key are in one split",
                )
        return schema

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        return described if self.seed else {name: each for name, each in described.items() if name != "seed"}

    def keeps_rows(self) -> bool:
        return True

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None else after | frozenset(self.by)


def written_options(written: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options behind `split:` in a job file -> (`by` and `seed`; what each split is to get, in order of name)."""
    if not isinstance(written, dict):
        raise ConfigError(f"expected fractions, such as {{test: 0.1}}, or counts, {{test: 1000}}, got {written!r}")
    by = written.get("by", [])
    seed = written.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ConfigError(f"seed: {seed!r} is not a whole number from 0 to 2^63 - 1")
    asked = {str(name): share for name, share in written.items() if name not in ("by", "seed")}
    return {"by": [by] if isinstance(by, str) else by, "seed": seed}, dict(sorted(asked.items()))
