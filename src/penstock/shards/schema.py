"""Schema: the fields of a record, named by our own type words, and which flat columns each one becomes.

| type word | columns of field `a` |
|---|---|
| int8 .. uint64, float16 .. float64, bool, timestamp[..], date32, ... | `a` |
| decimal128(p, s), fixed_size_binary[k] | `a`, one row of k bytes per record |
| fixed_size_list<float32>[k] | `a`, one row of k values per record |
| fixed_size_list<fixed_size_list<int8>[l]>[k], and so on | `a`, k rows of l values per record |
| string, binary, large_string, large_binary | `a/bytes`, `a/offsets` (int64, one more than records) |
| dictionary<string> | `a/codes` (int32), and the columns of a field `a/dictionary` of type string |
| list<..>, large_list<..> of any of the above | `a/offsets`, and the columns of a field `a/values` |

So list<float32> has `a/values`, list<fixed_size_list<float32>[64]> has `a/values` with rows of 64, list<string> has
`a/values/bytes` and `a/values/offsets`, list<dictionary<string>> has `a/values/codes`, `a/values/dictionary/bytes` and
`a/values/dictionary/offsets`.

A field with nulls in a shard also has `a/valid` (one byte per record) there; a list with nulls inside has
`a/values/valid` (one byte per value). A null has zeros in the other columns, or no bytes or values of its own.

People write and read lists of numbers by their shape: `float32[893]`, `int8[8, 8]`. A `*` in front stands for any
length: `int32[*]` is list<int32>, `float32[*, 64]` is list<fixed_size_list<float32>[64]>.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import InputError, did_you_mean
from penstock.shards import arrow as pa

NUMBERS = {
    "int8": "i1",
    "int16": "i2",
    "int32": "i4",
    "int64": "i8",
    "uint8": "u1",
    "uint16": "u2",
    "uint32": "u4",
    "uint64": "u8",
    "float16": "f2",
    "float32": "f4",
    "float64": "f8",
    "bool": "u1",
    "date32": "i4",
    "date64": "i8",
    "time32": "i4",
    "time64": "i8",
    "timestamp": "i8",
    "duration": "i8",
}
TEXTS = ("string", "binary", "large_string", "large_binary")
LISTS = ("list", "large_list")
FIXED_LIST = "fixed_size_list"
MOST_VALUES = 2**31 - 1  # that Arrow can count in a fixed list
FEATURE_FILE = "feature_cols.json"
NAME_ARRAYS = {"strategic_features": "strategic_feature_names", "features": "feature_names"}  # by column
_SAFETENSORS_METADATA = "__metadata__"
_KEY = b"penstock.feature_names"
_OPTIONAL = b"penstock.optional"
_MOST_SHOWN = 3
_WORD = re.compile(r"([a-z_0-9]+)(?:<(.+)>)?(?:\(([^)]*)\))?(?:\[([^\]]*)\])?")
_SHAPED = re.compile(r"(.+?)\s*\[\s*((?:\d+|\*)(?:\s*,\s*\d+)*)\s*\]")  # `int8[8, 8]`, `timestamp[us][3]`, `int8[*, 8]`
_ANY = "*"  # length of a list, in the short form of its type


@dataclass(frozen=True)
class Type:
    """A parsed type word: `timestamp[us, UTC]` has name `timestamp` and arguments `("us", "UTC")`."""

    name: str
    inner: Type | None = None
    arguments: tuple[str, ...] = ()

    @property
    def is_number(self) -> bool:
        return self.name in NUMBERS

    @property
    def is_text(self) -> bool:
        return self.name in TEXTS

    @property
    def is_list(self) -> bool:
        """A list of any length; a fixed_size_list is one row of values."""
        return self.name in LISTS

    @property
    def is_fixed_list(self) -> bool:
        return self.name == FIXED_LIST

    @property
    def is_fixed(self) -> bool:
        """Every record takes the same bytes: one column holds it, in rows of `shape`."""
        return self.is_number or self.is_fixed_list or self.name in ("decimal128", "fixed_size_binary")

    @property
    def is_dictionary(self) -> bool:
        return self.name == "dictionary"

    @property
    def is_large(self) -> bool:
        """Whether Arrow counts its bytes or values with 64 bits."""
        return self.name.startswith("large_")

    @property
    def width(self) -> int:
        """Items in one record of a fixed-width type that is not a plain number."""
        if self.name == "decimal128":
            return 16
        return int(self.arguments[0])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record of a fixed type in its column: `(8, 8)`, or `()` for a plain number."""
        if self.is_number:
            return ()
        return (self.width, *self.inner.shape) if self.inner else (self.width,)

    @property
    def number(self) -> Type:
        """The number that a column of a fixed type is made of; a byte for decimals and binaries."""
        if self.is_number:
            return self
        return self.inner.number if self.inner else Type("uint8")


@dataclass(frozen=True)
class Field:
    name: str
    type: str

    @property
    def parsed(self) -> Type:
        return parse_type(self.type)

    @property
    def inner(self) -> Field:
        """The field of what a list or a dictionary holds: its columns lie under this one's name."""
        assert self.parsed.is_list or self.parsed.is_dictionary
        column = "values" if self.parsed.is_list else "dictionary"
        return Field(f"{self.name}/{column}", self.type.partition("<")[2].removesuffix(">"))


Schema = tuple[Field, ...]
FeatureNames = dict[str, list[str]]  # by column


@functools.cache  # asked for with every record that is decoded
def parse_type(word: str) -> Type:
    match = _WORD.fullmatch(word)
    if not match:
        raise ValueError(f"{word!r} is not a type")
    name, inner, parentheses, brackets = match.groups()
    arguments = tuple(part.strip() for part in (parentheses or brackets or "").split(",") if part)
    return Type(name, parse_type(inner) if inner else None, arguments)


def schema_from_arrow(schema: pa.Schema, where: str) -> Schema:
    """Our words for an Arrow schema; a type that columns cannot hold is refused by name."""
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"column {twice!r} occurs twice", where=where, next_step="give each column a name of its own")
    return tuple(_field_from_arrow(field, where) for field in schema)


def schema_to_arrow(schema: Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, type_to_arrow(field.parsed)) for field in schema])


def _field_from_arrow(field: pa.Field, where: str) -> Field:
    if "/" in field.name or field.name in ("", _SAFETENSORS_METADATA):
        raise InputError(
            f"column {field.name!r} cannot be stored: a name must not be empty, contain '/' or be "
            f"{_SAFETENSORS_METADATA}",
            where=where,
            next_step="rename it with `select: {new_name: old_name}`",
        )
    if field.type == "null":
        raise InputError(
            f"column {field.name!r} has no values, so its type is unknown",
            where=where,
            next_step=f"declare it (input: {{path: ..., types: {{{field.name}: string}}}}), or leave it out",
        )
    word = type_from_arrow(field.type)
    if word is None:
        raise InputError(
            f"column {field.name!r} has type {field.type}, which cannot be stored as flat columns",
            where=where,
            next_step="leave it out or take a field of it with `select:`, give it another type with `cast:`, or "
            "flatten it in a stage of your own (`module:function`); docs/reference/types.md lists the types",
        )
    return Field(field.name, word)


def type_from_arrow(kind: pa.DataType) -> str | None:
    """The type word, or None for a type that has no columns. `type_to_arrow` below is its inverse."""
    is_a = pa.types
    if is_a.is_timestamp(kind):
        return f"timestamp[{kind.unit}, {kind.tz}]" if kind.tz else f"timestamp[{kind.unit}]"
    if is_a.is_time(kind) or is_a.is_duration(kind):
        return f"{str(kind).partition('[')[0]}[{kind.unit}]"
    if is_a.is_decimal128(kind):
        return f"decimal128({kind.precision}, {kind.scale})"
    if is_a.is_fixed_size_binary(kind):
        return f"fixed_size_binary[{kind.byte_width}]" if kind.byte_width else None
    if is_a.is_dictionary(kind):
        return _wrap("dictionary<{}>", kind.value_type, lambda inner: inner.is_text)
    if is_a.is_fixed_size_list(kind) and kind.list_size:
        words = f"{FIXED_LIST}<{{}}>[{kind.list_size}]"
        return _wrap(words, kind.value_type, lambda inner: inner.is_number or inner.is_fixed_list)
    if is_a.is_list(kind) or is_a.is_large_list(kind):
        name = "large_list" if is_a.is_large_list(kind) else "list"
        return _wrap(f"{name}<{{}}>", kind.value_type, lambda inner: not inner.is_list)
    return _plain_word(kind)


def _plain_word(kind: pa.DataType) -> str | None:
    word = {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(kind), str(kind))
    word = word.partition("[")[0] if word.startswith("date") else word
    return word if word in NUMBERS or word in TEXTS else None


def _wrap(pattern: str, inner: pa.DataType, fits: Callable[[Type], bool]) -> str | None:
    word = type_from_arrow(inner)
    return pattern.format(word) if word and fits(parse_type(word)) else None


def type_to_arrow(kind: Type) -> Any:
    if kind.name in ("timestamp", "time32", "time64", "duration"):
        return getattr(pa, kind.name)(*kind.arguments)
    if kind.name == "decimal128":
        return pa.decimal128(int(kind.arguments[0]), int(kind.arguments[1]))
    if kind.name == "fixed_size_binary":
        return pa.binary(kind.width)
    if kind.is_number or kind.is_text:
        return pa.bool_() if kind.name == "bool" else getattr(pa, kind.name)()
    if kind.inner is None or kind.name not in ("dictionary", FIXED_LIST, *LISTS):
        raise ValueError(f"{kind.name!r} is not a type")
    inner = type_to_arrow(kind.inner)
    if kind.is_dictionary:
        return pa.dictionary(pa.int32(), inner)
    if kind.is_fixed_list:
        return pa.list_(inner, kind.width)
    return pa.large_list(inner) if kind.is_large else pa.list_(inner)


def declared_type(word: str) -> Any:
    """The Arrow type of a word that a person wrote, or Arrow printed: `timestamp[us, tz=UTC]`.

    ValueError for one that columns cannot hold.
    """
    word = word.replace(" tz=", " ")
    try:
        arrow = type_to_arrow(parse_type(word))
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(f"{word!r} is not a type such as int64 or timestamp[us]") from error
    if (type_from_arrow(arrow) or "").replace(" ", "") != word.replace(" ", ""):
        raise ValueError(f"{word!r} is not a type such as int64 or timestamp[us]")
    return arrow


def type_from_short(short: str) -> str:
    """The type word of what a person wrote: `int8[8, 8]`, `int8[*]`, or a type word. Inverse of `short_type` below."""
    try:
        return type_from_arrow(declared_type(short.strip())) or short
    except ValueError:
        shaped = _SHAPED.fullmatch(short.strip())
    if not shaped:
        raise ValueError(f"{short!r} is not a type such as int16, float32[893] or int8[8, 8].{_meant(short)}")
    number, sizes = shaped[1], [size.strip() for size in shaped[2].split(",")]
    shape = [int(size) for size in sizes if size != _ANY]
    if not 0 < math.prod(shape) <= MOST_VALUES:
        raise ValueError(f"{short!r} has {math.prod(shape):,} values; a shape has 1 to {MOST_VALUES:,} of them")
    try:
        word = type_from_arrow(declared_type(number)) or number
    except ValueError as error:
        raise ValueError(f"{short!r} is not a shape of a number such as float32[893].{_meant(number)}") from error
    if not parse_type(word).is_number:
        raise ValueError(f"{short!r} is a shape of {number}, and only numbers have one, as in float32[893]")
    for size in reversed(shape):
        word = f"{FIXED_LIST}<{word}>[{size}]"
    return f"list<{word}>" if _ANY in sizes else word


def short_type(word: str) -> str:
    """A type word for people: a list of numbers by its number and shape, all others as they are."""
    kind = parse_type(word)
    is_ragged = kind.name == "list"
    row = kind.inner if is_ragged and kind.inner else kind
    if not (row.is_fixed_list or (is_ragged and row.is_number)):
        return word
    number, sizes = row.number, [_ANY] * is_ragged + [str(size) for size in row.shape]
    unit = f"[{', '.join(number.arguments)}]" if number.arguments else ""
    return f"{number.name}{unit}[{', '.join(sizes)}]"


def _meant(word: str) -> str:
    """A known word that is close; the bare name of a time is not one, as it has a unit."""
    times = {"timestamp": "timestamp[us]", "duration": "duration[us]", "time32": "time32[ms]", "time64": "time64[us]"}
    return did_you_mean(word.strip(), [times.get(each, each) for each in (*NUMBERS, *TEXTS)])


# A column whose nulls were asked for, where others are refused. It is marked in the metadata of its Arrow field.


def as_optional(field: pa.Field) -> pa.Field:
    return field.with_metadata({_OPTIONAL: b"true"})


def optional_names(schema: pa.Schema) -> frozenset[str]:
    return frozenset(field.name for field in schema if _OPTIONAL in (field.metadata or {}))


# Names of the values in a row of features. They travel in the metadata of an Arrow field. Files of the array-batch
# scripts hold them beside the features; files whose features stand in another order are read in the order of the first
# file. A finished dataset has them in its manifest and in FEATURE_FILE.


def with_names(field: pa.Field, names: Sequence[str] | None) -> pa.Field:
    return field if names is None else field.with_metadata({_KEY: json.dumps(list(names)).encode()})


def names_of(field: pa.Field) -> list[str] | None:
    told = (field.metadata or {}).get(_KEY)
    return None if told is None else [str(name) for name in json.loads(told)]


def feature_names(schema: pa.Schema) -> FeatureNames:
    return {field.name: names for field in schema if (names := names_of(field)) is not None}


def order_of(names: list[str] | None, first: list[str] | None) -> list[int] | None:
    """Positions of the first file's features in this file's rows; None if both have the same order."""
    assert not misaligned(names, first)
    if names is None or first is None or names == first:
        return None
    place = {name: number for number, name in enumerate(names)}
    return [place[name] for name in first]


def misaligned(names: list[str] | None, first: list[str] | None) -> str | None:
    """Why the features of a file cannot be put in the order of the first file's; None where they can."""
    if names is None and first is None:
        return None
    if names is None:
        return "its features have no names, and those of the first file have: their order cannot be told"
    if first is None:
        return "its features have names, and those of the first file have none: their order cannot be told"
    more, less = set(names) - set(first), set(first) - set(names)
    told = [f"it has {_listed(more)}, which the first file has not"] if more else []
    told += [f"it lacks {_listed(less)} of the first file"] if less else []
    return "; ".join(told) or None


def _listed(names: set[str]) -> str:
    shown = ", ".join(map(repr, sorted(names)[:_MOST_SHOWN]))
    more = f" and {len(names) - _MOST_SHOWN:,} more" if len(names) > _MOST_SHOWN else ""
    return f"{'feature' if len(names) == 1 else 'features'} {shown}{more}"
