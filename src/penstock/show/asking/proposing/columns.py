"""Columns: a table of first rows -> what is known of each column. Next: roles.py."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import InputError
from penstock.shards.arrays import is_string
from penstock.shards.schema import declared_type, schema_from_arrow

_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d.*)?")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_]+")
_DAY_FIRST = re.compile(r"\d{1,2}[./-]\d{1,2}[./-]\d{2,4}(\W.*)?")
_SHOWN_VALUES = 20
_TIME_TYPES = ("timestamp[us]", "timestamp[us, UTC]", "timestamp[ns]", "timestamp[ns, UTC]")


@dataclass(frozen=True)
class Column:
    """A column as its first rows show it, or a field of a struct: `device.id` is called device_id."""

    name: str
    type: pa.DataType
    rows: int
    nulls: int
    distinct: int  # different values; 0 for nested columns
    mean_characters: float  # of text
    looks_like_time: bool  # text that is written as a time
    cannot_be_stored: str  # the reason, or nothing
    path: str  # where `select` finds it
    example_date: str = ""  # of text with dates that do not sort by time, such as 28.06.2024
    time_type: str = ""  # of text with times: the type that holds every value, for `types:`

    @property
    def words(self) -> tuple[str, ...]:
        """`userId` and `user_id` -> user, id."""
        return tuple(word.lower() for word in _WORDS.findall(self.name))

    @property
    def is_text(self) -> bool:
        return is_string(self.type)

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


def columns_of(table: pa.Table, null_texts: Sequence[str] = ()) -> tuple[Column, ...]:
    """The columns, with the fields of a struct in its place. `null_texts` mean null where a column is not text."""
    taken = set(table.schema.names)
    columns = []
    for name, field, values in _flat("", table):
        column = _column(field.with_name(name), values, null_texts)
        if name not in table.schema.names:
            flat = name.replace(".", "_")
            while flat in taken:
                flat += "_"
            taken.add(flat)
            column = replace(column, name=flat)
        columns.append(column)
    return tuple(columns)


def _flat(prefix: str, table: pa.Table) -> Iterator[tuple[str, pa.Field, pa.ChunkedArray]]:
    """(path, field, values) of every column, with the fields of a struct in its place."""
    for field, values in zip(table.schema, table.columns, strict=True):
        path = f"{prefix}{field.name}"
        names = [each.name for each in field.type] if pa.types.is_struct(field.type) else []
        if names and len(set(names)) == len(names) and not any("." in name for name in (field.name, *names)):
            yield from _flat(f"{path}.", pa.Table.from_arrays(values.flatten(), schema=pa.schema(list(field.type))))
        else:
            yield path, field, values


def _column(field: pa.Field, values: pa.ChunkedArray, null_texts: Sequence[str]) -> Column:
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if pa.types.is_dictionary(field.type):
        values = values.cast(kind)
    counts = len(values), values.null_count, _distinct(values)
    column = Column(field.name, kind, *counts, 0.0, False, _obstacle(field), field.name)
    if not column.is_text or not len(values):
        return column
    characters = pc.mean(pc.utf8_length(values)).as_py() or 0.0
    told = values.filter(pc.invert(pc.is_in(values, pa.array(null_texts, values.type)))).drop_null()
    first = told.slice(0, _SHOWN_VALUES).to_pylist()
    is_time = bool(first) and all(_ISO.fullmatch(each) for each in first)
    date = first[0] if first and all(_DAY_FIRST.fullmatch(each) for each in first) else ""
    kind = _time_type(told) if is_time else ""
    return replace(column, mean_characters=characters, looks_like_time=is_time, example_date=date, time_type=kind)


def _time_type(values: pa.ChunkedArray) -> str:
    """The type of a time that every value is read as; nothing if some are no times, or only some have a zone."""
    for word in _TIME_TYPES:
        try:
            values.cast(declared_type(word))
        except pa.ArrowInvalid:
            continue
        return word
    return ""


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
