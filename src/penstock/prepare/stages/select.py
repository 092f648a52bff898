"""Select: keep some columns, in this order, under these names."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.stage import Stage, require_columns


@dataclass(frozen=True, kw_only=True)
class Select(Stage):
    """`select: [a, b]`, or `select: {new_name: a, b: b}` to rename. Columns that are not named are not read.

    `select: {os: device.os}` takes the field `os` of the struct `device`, at any depth. The field is null if its
    struct is null. If there is a column named `device.os`, that column is taken instead.
    """

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
        arrays = [_column(rows.batch, old) for old in self.columns.values()]
        return rows.with_batch(pa.RecordBatch.from_arrays(arrays, names=list(self.columns)))

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        for old in self.columns.values():
            _refuse_unknown(old, schema)
        return pa.schema([_field(schema, old).with_name(new) for new, old in self.columns.items()])

    def describe(self) -> dict[str, Any]:
        return {"columns": [[new, old] for new, old in self.columns.items()]}  # in order: it decides bytes

    def takes_codes(self) -> bool:
        return True

    def keeps_rows(self) -> bool:
        return True

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:  # noqa: ARG002
        return frozenset(self.columns.values())


def path_to(name: str, fields: pa.Schema | pa.StructType) -> tuple[str, ...]:
    """`device.os` -> ("device", "os"), the names that lead to a field; none if there is no such field."""
    names = [each.name for each in fields]
    if name in names:
        return (name,)
    for first in sorted(names, key=len, reverse=True):
        kind = fields.field(first).type
        if name.startswith(f"{first}.") and pa.types.is_struct(kind):
            inner = path_to(name.removeprefix(f"{first}."), kind)
            if inner:
                return (first, *inner)
    return ()


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    first, *inner = path_to(name, batch.schema)
    array = batch.column(first)
    for step in inner:
        array = array.flatten()[array.type.get_field_index(step)]  # null where the struct is
    return array


def _field(schema: pa.Schema, name: str) -> pa.Field:
    first, *inner = path_to(name, schema)
    field = schema.field(first)
    for step in inner:
        field = field.type.field(step).with_nullable(True)
    return field


def _refuse_unknown(name: str, schema: pa.Schema) -> None:
    if path_to(name, schema):
        return
    column = name.partition(".")[0]
    if "." not in name or column not in schema.names:
        require_columns(schema, [name])
    kind = schema.field(column).type
    inside = ", ".join(each.name for each in kind) if pa.types.is_struct(kind) else ""
    raise ConfigError(
        f"there is no column {name!r}: {column!r} is {kind}" + ("" if inside else ", and only structs have fields"),
        next_step=f"its fields are: {inside}" if inside else "take the column whole, or a stage of your own",
    )
