"""Select: keep some columns, in this order, under these names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.rows import Rows
from penstock.prepare.stage import Stage, require_columns


@dataclass(frozen=True, kw_only=True)
class Select(Stage):
    """`select: [a, b]`, or `select: {new_name: a, b: b}` to rename. Columns that are not named are not read."""

    columns: dict[str, str]  # new name -> name in the input

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        if isinstance(written, str):
            written = [written]
        if isinstance(written, list) and written:
            names = [str(name) for name in written]
            for name in names:
                if names.count(name) > 1:
                    raise ConfigError(f"column {name!r} is named twice")
            return {"columns": {name: name for name in names}}
        if not isinstance(written, dict) or not written:
            raise ConfigError(f"expected a list of columns or a mapping of new names to columns, got {written!r}")
        return {"columns": written}

    def __call__(self, rows: Rows) -> Rows:
        arrays = [rows.batch.column(old) for old in self.columns.values()]
        return rows.with_batch(pa.RecordBatch.from_arrays(arrays, names=list(self.columns)))

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_columns(schema, list(self.columns.values()))
        return pa.schema([schema.field(old).with_name(new) for new, old in self.columns.items()])

    def describe(self) -> dict[str, Any]:
        return {"columns": [[new, old] for new, old in self.columns.items()]}  # in order: it decides bytes

    def takes_codes(self) -> bool:
        return True

    def keeps_rows(self) -> bool:
        return True

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:  # noqa: ARG002
        return frozenset(self.columns.values())
