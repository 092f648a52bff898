"""Text column: one column of a source's rows, read alone, becomes `text`, whatever it was called and however kept."""

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from penstock.base.errors import InputError, did_you_mean
from penstock.prepare.rows.rows import Rows

TEXT = "text"
TEXT_SCHEMA = pa.schema([(TEXT, pa.string())])


def refuse_no_text(column: str, schema: pa.Schema, location: str) -> None:
    """Raise InputError unless the file has that column, of text."""
    if column not in schema.names:
        raise missing_column(column, schema.names, location)
    kind = schema.field(column).type
    if not is_text(kind):
        raise InputError(
            f"`text_column: {column}` is {kind}, not text",
            where=location,
            next_step=f"name a column of text, or write {column!r} as one; here are: {_shown(schema.names)}",
        )


def missing_column(column: str, names: Iterable[str], location: str) -> InputError:
    known = list(names)
    return InputError(
        f"there is no column {column!r}, which `text_column` names.{did_you_mean(column, known)}",
        where=location,
        next_step=f"name one of its columns: {_shown(known)}",
    )


def _shown(names: list[str]) -> str:
    return ", ".join(names) or "it has none"


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text; one in which nothing but null was seen may."""
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return is_text(kind.value_type)
    view = getattr(is_a, "is_string_view", None)  # older pyarrow has no such type
    return bool(is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_null(kind) or (view and view(kind)))


def as_text(rows: Rows, column: str, columns: tuple[str, ...]) -> Rows:
    """The rows with that column as `text`, and with no other."""
    array = rows.batch.column(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    batch = pa.RecordBatch.from_arrays([array.cast(pa.string())], schema=TEXT_SCHEMA)
    return replace(rows, batch=batch.select(list(columns)))
