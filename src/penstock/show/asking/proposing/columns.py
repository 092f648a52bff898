"""Columns: a table of first rows -> what is known of each column. Next: roles.py."""

import re
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import InputError
from penstock.shards.schema import schema_from_arrow

_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+")
_SHOWN_VALUES = 20


@dataclass(frozen=True)
class Column:
    """A column as its first rows show it."""

    name: str
    type: pa.DataType
    rows: int
    nulls: int
    distinct: int  # different values; 0 for nested columns
    mean_characters: float  # of text
    looks_like_time: bool  # text that is written as a time
    cannot_be_stored: str  # the reason, or nothing

    @property
    def words(self) -> tuple[str, ...]:
        """`userId` and `user_id` -> user, id."""
        return tuple(word.lower() for word in _WORDS.findall(self.name))

    @property
    def is_text(self) -> bool:
        return bool(pa.types.is_string(self.type) or pa.types.is_large_string(self.type))

    @property
    def is_time(self) -> bool:
        return bool(pa.types.is_timestamp(self.type) or pa.types.is_date(self.type))

    @property
    def is_number(self) -> bool:
        return bool(pa.types.is_integer(self.type) or pa.types.is_floating(self.type))

    @property
    def can_be_key(self) -> bool:
        return self.is_text or bool(pa.types.is_integer(self.type))

    @property
    def repeats(self) -> bool:
        """Whether values come back, and are not all the same."""
        return 1 < self.distinct <= (self.rows - self.nulls) / 2

    @property
    def can_be_grouped(self) -> bool:
        """Whether `group` takes it."""
        return not (self.cannot_be_stored or pa.types.is_nested(self.type))


def columns_of(table: pa.Table) -> tuple[Column, ...]:
    return tuple(_column(field, table.column(number)) for number, field in enumerate(table.schema))


def _column(field: pa.Field, values: pa.ChunkedArray) -> Column:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_dictionary(field.type):
        values = values.cast(kind)
    column = Column(field.name, kind, len(values), values.null_count, _distinct(values), 0.0, False, _obstacle(field))
    if not column.is_text or not len(values):
        return column
    characters = pc.mean(pc.utf8_length(values)).as_py() or 0.0
    first = values.drop_null().slice(0, _SHOWN_VALUES).to_pylist()
    is_time = bool(first) and all(_ISO.fullmatch(each) for each in first)
    return Column(**{**vars(column), "mean_characters": characters, "looks_like_time": is_time})


def _distinct(values: pa.ChunkedArray) -> int:
    try:
        return int(pc.count_distinct(values, mode="only_valid").as_py())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # nested columns and a few rare types are never keys
        return 0


def _obstacle(field: pa.Field) -> str:
    try:
        schema_from_arrow(pa.schema([field]), "")
    except InputError as error:
        return error.what
    return ""
