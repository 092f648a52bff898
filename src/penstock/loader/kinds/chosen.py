"""Chosen: a schema, columns= and nulls= -> the arrays of a batch of records, each with its column. Used by raw.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from penstock.base.errors import ConfigError, did_you_mean
from penstock.loader.tables import Shard
from penstock.shards.origins import without_origins
from penstock.shards.schema import NUMBERS, Field, Schema, Type, short_type

_OF_TEXT = "turn text into numbers when the dataset is made, with a stage of your own (`module:function`)"
NULL_MASK = "_valid"  # ends the name of the mask of a column with nulls


@dataclass(frozen=True)
class Chosen:
    """One array of a batch, and the flat column that it is read from."""

    name: str
    column: str
    shape: tuple[int, ...]  # of one event, or of one record
    dtype: str
    of_events: bool
    is_mask: bool = False

    @property
    def items(self) -> int:
        return prod(self.shape)


def choose(
    schema: Schema, columns: Sequence[str] | None, nulls: Sequence[str], shards: Sequence[Shard]
) -> list[Chosen]:
    """The arrays of the columns, each followed by its mask if `nulls` names it. At least one is a list."""
    fields = _wanted(schema, columns)
    _refuse_others(schema, [field for field in schema if field.name in nulls], "nulls")
    refuse_unknown(nulls, [field.name for field in fields], "nulls")
    refuse_nulls([field for field in fields if field.name not in nulls], shards)
    if not any(field.parsed.is_list for field in fields):
        raise ConfigError(
            f"none of the columns {', '.join(field.name for field in fields)} is a list: there are no events to cut "
            "windows from",
            where="load(encode=..., columns=...)",
            next_step="name a list column too, or leave encode= out: the columns then come as they are",
        )
    chosen = []
    for field in fields:
        chosen.append(_chosen(field))
        if field.name in nulls:
            chosen.append(mask_of(field))
    return chosen


def mask_of(field: Field) -> Chosen:
    """The mask beside a column: one bool per event, or per record."""
    of_events = field.parsed.is_list
    column = field.inner.name if of_events else field.name
    return Chosen(f"{field.name}{NULL_MASK}", f"{column}/valid", (), "?", of_events, is_mask=True)


def refuse_unknown(names: Sequence[str], known: Sequence[str], option: str) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"there is no column {name!r}.{did_you_mean(str(name), list(known))}",
                where=f"load({option}=...)",
                next_step=f"one of: {', '.join(known)}",
            )


def refuse_nulls(fields: Sequence[Field], shards: Sequence[Shard]) -> None:
    """Refuse columns that have nulls in any shard: nobody said that they may."""
    parts = ("/valid", "/values/valid")
    names = [each.name for each in fields if any(f"{each.name}{part}" in shard for shard in shards for part in parts)]
    if names:
        which = f"column {names[0]!r} has" if len(names) == 1 else f"columns {', '.join(map(repr, names))} have"
        raise ConfigError(
            f"{which} nulls, and an array cannot hold them",
            where="load(columns=...)",
            next_step=f"nulls={names} gives zeros for them and a mask, such as `{names[0]}{NULL_MASK}`. Or "
            "filter them out or fill them when the dataset is made, or leave the column out (columns=)",
        )


def _chosen(field: Field) -> Chosen:
    of_events = field.parsed.is_list
    held = field.inner if of_events else field
    number = held.parsed.number.name
    return Chosen(field.name, held.name, held.parsed.shape, "?" if number == "bool" else NUMBERS[number], of_events)


def usual(schema: Schema) -> Schema:
    """Columns that a batch has where none are named: all but the origins."""
    return without_origins(schema)


def _wanted(schema: Schema, columns: Sequence[str] | None) -> list[Field]:
    known = {field.name: field for field in schema}
    refuse_unknown(columns or (), list(known), "columns")
    fields = [known[name] for name in (_numbers(schema) if columns is None else columns)]
    _refuse_others(schema, fields, "columns")
    if not fields:
        raise ConfigError(
            f"a batch holds numbers and lists of numbers, and no column is one: {', '.join(known)}",
            where="load(columns=...)",
            next_step=f"{_OF_TEXT}, or name some: columns={_numbers(schema)}" if _numbers(schema) else _OF_TEXT,
        )
    return fields


def _refuse_others(schema: Schema, fields: Sequence[Field], option: str) -> None:
    """Refuse columns that are not numbers. Decimals become numbers by a cast, text by a function."""
    others = [field for field in fields if not _is_numbers(field)]
    if not others:
        return
    named = ", ".join(f"{field.name} ({short_type(field.type)})" for field in others)
    decimals = {field.name: "float64" for field in others if _held(field).name == "decimal128"}
    why = "The codes of a stored dictionary differ from shard to shard, so they are not loaded either"
    cast = f"`cast: {{{', '.join(f'{name}: {kind}' for name, kind in decimals.items())}}}`"
    ways = [f"leave them out: columns={_numbers(schema)}"] if _numbers(schema) else []
    ways += [f"make floats of decimals when the dataset is made: {cast}"] if decimals else []
    ways += [_OF_TEXT] if len(decimals) < len(others) else []
    raise ConfigError(
        f"a batch holds numbers and lists of numbers, not {named}"
        + (f". {why}" if any(_held(field).is_dictionary for field in others) else ""),
        where=f"load({option}=...)",
        next_step="; or ".join(ways),
    )


def _numbers(schema: Schema) -> list[str]:
    return [field.name for field in usual(schema) if _is_numbers(field)]


def _is_numbers(field: Field) -> bool:
    kind = _held(field)
    return kind.is_number or kind.is_fixed_list


def _held(field: Field) -> Type:
    """The type of a value, or of the values in a list."""
    return field.inner.parsed if field.parsed.is_list else field.parsed
