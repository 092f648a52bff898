"""Binding: a vocabulary and a schema -> how its events become rows of tokens, from which columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, did_you_mean
from penstock.loader.order.order import Fill, Stream
from penstock.loader.tokens.kinds.kind import is_text, is_whole
from penstock.loader.tokens.vocabulary import KINDS, MOST_FIELDS, PINGS, TokenField, Vocabulary
from penstock.shards.schema import NUMBERS, Field, Schema, Type

TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # a second, by the unit of a timestamp


@dataclass(frozen=True)
class BoundField:
    """One field of the vocabulary, and the names of the columns it is read from; "" where it has none."""

    field: TokenField
    of_events: bool
    value: str
    valid: str
    codes: str = ""
    offsets: str = ""
    ticks: int = 1
    version: str = ""
    version_valid: str = ""
    version_of_events: bool = False

    @property
    def columns(self) -> list[str]:
        names = (self.value, self.valid, self.codes, self.offsets, self.version, self.version_valid)
        return [name for name in names if name]


@dataclass(frozen=True)
class TokenOptions:
    """Options of load() about events, before their columns are known."""

    vocabulary: Vocabulary
    length: int
    fill: Fill
    augment: bool

    def bind(self, schema: Schema, where: str) -> Encoding:
        columns = {field.name: field for field in schema}
        fields = tuple(_bind_field(field, columns, where) for field in self.vocabulary.fields)
        lists = [each.field.column for each in fields if each.of_events]
        if not lists:
            raise ConfigError(
                f"none of the fields {', '.join(columns)} is a list: this dataset has no grouped events",
                where=where,
                next_step="prepare it with a `group` stage (`penstock run events --set by=KEY`)",
            )
        vocabulary = replace(self.vocabulary, fields=tuple(each.field for each in fields))
        return Encoding(vocabulary, self.length, self.fill, self.augment, fields, f"{lists[0]}/offsets")


@dataclass(frozen=True)
class Encoding(TokenOptions):
    """Options with every width of the vocabulary decided, and the columns that it is read from."""

    fields: tuple[BoundField, ...]
    offsets: str  # the column that says where a record's events begin

    @property
    def slots(self) -> list[str]:
        """Names of the columns that are read, and one of the loader's own per field, for what its texts stand for."""
        columns = dict.fromkeys([self.offsets, *(name for field in self.fields for name in field.columns)])
        return [*columns, *map(parsed_slot, range(len(self.fields)))]

    def describe(self, streams: tuple[Stream, ...]) -> dict[str, Any]:
        """Settings that decide the rows, for the recipe."""
        draws, vocabulary = [stream.draws for stream in streams], self.vocabulary.describe()
        facts = {"length": self.length, "fill": self.fill, "augment": self.augment}
        return {**facts, "draws": draws, "vocabulary": vocabulary}


def parsed_slot(field: int) -> str:
    return f"/parsed/{field}"  # no column's name begins with a slash


def is_grouped(schema: Schema) -> bool:
    return any(field.parsed.is_list for field in schema)


def suggested_fields(schema: Schema) -> dict[str, Any]:
    """Fields to start with, by the types of the columns. The key is left out: it is equal in all events of a record."""
    lists = [field for field in schema if field.parsed.is_list]
    fields: dict[str, Any] = {}
    for field in (lists or list(schema))[:MOST_FIELDS]:
        kind = field.parsed.inner if field.parsed.is_list else field.parsed
        if kind and (encoding := _encoding_of(kind)) and not (encoding == "time" and "time" in fields.values()):
            fields[field.name] = encoding
    return fields


def _encoding_of(kind: Type) -> Any:
    if kind.name == "timestamp":
        return "time"
    if kind.name == "bool":
        return "boolean"
    if kind.name.startswith("float"):
        return "float32"
    if kind.name.startswith(("int", "uint")):
        return "int"
    return {"bytes": 16} if is_text(kind) else None


def fits_pings(schema: Schema) -> bool:
    return {field.column for field in PINGS.fields} <= {field.name for field in schema}


def _bind_field(asked: TokenField, columns: Mapping[str, Field], where: str) -> BoundField:
    column, of_events = _column(asked.column, columns, where)
    kind = column.parsed
    _refuse_type(asked, kind, of_events, where)
    version, version_of_events = "", False
    stated = asked.kind.version
    if stated and (stated in columns or asked not in PINGS.fields):  # pings may do without
        found, version_of_events = _column(stated, columns, where)
        if not is_whole(found.parsed):
            holds = f"column {stated!r} holds {found.parsed.name}"
            raise ConfigError(
                f"{holds}, but the version of an address is a whole number, 4 or 6",
                where=where,
                next_step=f"store it as int8, or encode {asked.column!r} as 'ip', without it",
            )
        version = found.name
    text = column.inner if kind.is_dictionary else column
    has_text = text.parsed.is_text
    return BoundField(
        field=replace(asked, kind=asked.kind.settled(kind)),
        of_events=of_events,
        value=f"{text.name}/bytes" if has_text else column.name,
        valid=f"{column.name}/valid",
        codes=f"{column.name}/codes" if kind.is_dictionary else "",
        offsets=f"{text.name}/offsets" if has_text else "",
        ticks=TICKS.get(kind.arguments[0], 1) if kind.name == "timestamp" else 1,
        version=version,
        version_valid=f"{version}/valid" if version else "",
        version_of_events=version_of_events,
    )


def _column(name: str, columns: Mapping[str, Field], where: str) -> tuple[Field, bool]:
    """The field whose columns are read, and whether it has one value per event."""
    if name not in columns:
        raise ConfigError(
            f"there is no column {name!r} to encode.{did_you_mean(name, list(columns))}",
            where=where,
            next_step=f"this dataset has {', '.join(columns)}: give fields={{column: kind}}",
        )
    field = columns[name]
    return (field.inner, True) if field.parsed.is_list else (field, False)


def _refuse_type(asked: TokenField, kind: Type, of_events: bool, where: str) -> None:
    if not asked.kind.fits(kind, of_events):
        another = f"choose another of {', '.join(KINDS)} for it, or leave it out of fields="
        as_time = f"to read its text as times, say so in the job: `input: {{path: ..., types: {{{asked.column}: "
        as_time += "'timestamp[us]'}}` (CSV and JSONL), and run it again; or "
        raise ConfigError(
            f"column {asked.column!r} has type {kind.name}, and the encoding {asked.kind.name} takes "
            f"{asked.kind.takes}",
            where=where,
            next_step=f"{as_time if asked.kind.is_time and is_text(kind) else ''}{another}",
        )
    _refuse_values(asked, kind, where)


def _refuse_values(asked: TokenField, kind: Type, where: str) -> None:
    """Refuse categories that the column cannot hold: a kernel would take them for other numbers."""
    if not is_whole(kind):
        return
    limits = np.iinfo(NUMBERS[kind.name])
    beyond = [each for each in asked.kind.values if type(each) is int and not limits.min <= each <= limits.max]
    if beyond:
        raise ConfigError(
            f"column {asked.column!r} holds {kind.name}, which cannot hold the category {beyond[0]}",
            where=where,
            next_step=f"leave it out: the column holds {limits.min} to {limits.max}",
        )
