"""Clean: text as it should be counted, compared and tokenized: valid, trimmed, and not empty."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigError
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.interfaces import TakesText
from penstock.prepare.stages.stage import require_columns
from penstock.shards.arrays import is_string, text_parts

NULL, EMPTY = "null text", "empty text"


@dataclass(frozen=True, kw_only=True)
class Clean(TakesText):
    """`clean`, or `clean: {column: body, normalize: nfc}`: trim white space and set aside empty texts.

    `normalize: nfc` writes composed characters in one form. `keep: true` writes null and empty rows to rejected/. All
    text is valid UTF-8 here: the input's `bad_utf8:` decides whether bad bytes are repaired or their rows set aside.
    """

    column: str = "text"
    trim: bool = True
    normalize: Literal["none", "nfc"] = "none"
    keep: bool = False

    unit_in, unit_out = "documents", "documents"

    def __call__(self, rows: Rows) -> Rows:
        rows = rows.keep(np.asarray(_column(rows, self.column).is_valid()), NULL, self.keep)
        texts = _column(rows, self.column)
        if self.normalize == "nfc":
            texts = pc.utf8_normalize(texts, form="NFC")
        if self.trim:
            texts = trimmed(texts)
        number = rows.batch.schema.get_field_index(self.column)
        rows = rows.with_batch(rows.batch.set_column(number, rows.batch.schema.field(number), texts))
        return rows.keep(np.asarray(pc.binary_length(texts)) > 0, EMPTY, self.keep)

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_text(schema, self.column)
        return schema

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None else after | {self.column}


def require_text(schema: pa.Schema, column: str) -> None:
    """Raise ConfigError unless the column is there, and text."""
    try:
        require_columns(schema, [column])
    except ConfigError as error:
        error.next_step = f"say which is the text: {_read_as_text('NAME')}, or `column: NAME` in each stage"
        raise
    kind = schema.field(column).type
    if not is_string(kind):
        raise ConfigError(f"column {column!r} is {kind}, but must be text", next_step=_way_to_text(kind, column))


def _way_to_text(kind: pa.DataType, column: str) -> str:
    if pa.types.is_dictionary(kind):
        return f"read it as text: {_read_as_text(column)}"
    if pa.types.is_null(kind):
        return f"if later files have values, declare it: `input: {{path: ..., types: {{{column}: string}}}}`"
    return "name a column of text: `column: ...`"


def _read_as_text(column: str) -> str:
    return f"`--set input.text_column={column}`, in a job file `input: {{path: ..., text_column: {column}}}`"


def _column(rows: Rows, name: str) -> pa.Array:
    return rows.batch.column(rows.batch.schema.get_field_index(name))


def trimmed(texts: pa.Array) -> pa.Array:
    """Without outer white space; as they are where no text has any, which its first and last bytes mostly tell."""
    if not len(texts) or not _may_have_white_ends(texts):
        return texts
    return pc.utf8_trim_whitespace(texts)


def _may_have_white_ends(texts: pa.Array) -> bool:
    data, offsets = text_parts(texts)
    if not len(data):
        return False
    edges = offsets - offsets[0]
    filled = edges[1:] > edges[:-1]
    ends = np.concatenate([data[edges[:-1][filled]], data[edges[1:][filled] - 1]])
    # ASCII's own white space, and what may be the start of another.
    return bool(((ends <= 0x20) | (ends >= 0x7F)).any())
