"""Sample schema: which columns the samples of a user's function have, as the job declares them. Or see inferring.py.

Columns are flat: what stands under `labels` and there under `action_type` is the column `labels_action_type`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError, PenstockError, did_you_mean
from penstock.prepare.samples import ragged
from penstock.prepare.samples.fitting import (
    WRONG_TYPE,
    Misfit,
    Shape,
    exact,
    exact_text,
    named,
)
from penstock.shards.schema import (
    Field,
    Type,
    as_optional,
    parse_type,
    schema_to_arrow,
    short_type,
    type_from_short,
)

DECLARED = "declared"
NUMBERS = ["bool"] + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
NUMBERS += ["float16", "float32", "float64"]
_TEXTS = ("string", "binary")
_LONGEST_NAME = 200  # bytes: file names have 255, and some of them say the split
Path = tuple[str, ...]


class Required(Enum):
    REQUIRED = "a sample must have it"


REQUIRED = Required.REQUIRED


@dataclass(frozen=True)
class SampleField:
    name: str  # of the column: labels_action_type
    path: Path  # keys into the sample: ("labels", "action_type")
    type: str  # type word of shards/schema.py
    origin: str  # "declared", or the place of the sample that told it: "games/a.txt, sample 0"
    missing: Any = REQUIRED  # what stands for a key that is not there; None makes a null of it
    rounds: bool = True  # whether floats are rounded to the type: it was declared, or asked for by `floats:`

    @property
    def parsed(self) -> Type:
        return parse_type(self.type)

    @property
    def is_ragged(self) -> bool:
        """Whether samples differ in their first dimension."""
        return self.parsed.is_list

    @property
    def is_optional(self) -> bool:
        """Whether the key may be missing or None, and is null then."""
        return self.missing is None

    @property
    def has_any_size(self) -> bool:
        """Whether a sample may be much larger than another."""
        return self.is_ragged or self.parsed.name == "binary"

    @cached_property
    def shape(self) -> Shape:
        """Shape of a sample; for ragged ones the shape of each of its rows."""
        if self.parsed.is_text:
            return ()
        return self.parsed.inner.shape if self.is_ragged and self.parsed.inner else self.parsed.shape

    @property
    def is_array(self) -> bool:
        """Whether every sample has an array of one shape."""
        return bool(self.shape) and not self.is_ragged

    @property
    def row_bytes(self) -> int:
        """Bytes of a sample's array of one shape; 0 for other types."""
        return math.prod(self.shape) * self.number.itemsize if self.is_array else 0

    @property
    def dimensions(self) -> int:
        return len(self.shape) + self.is_ragged

    @cached_property
    def number(self) -> np.dtype[Any]:
        """Number type of a column of numbers; bool as numpy's own."""
        return np.dtype(self.parsed.number.name)

    @property
    def key(self) -> str:
        return ".".join(self.path)

    @property
    def told(self) -> str:
        """`float32[893] is declared`, or where it was inferred: the second half of every complaint."""
        verb = "is declared" if self.origin == DECLARED else f"was inferred from {self.origin}"
        return f"{short_type(self.type)} {verb}"

    def filling(self) -> Any:
        """The value for a key that is not there, in the column's own type; Misfit if it does not fit."""
        if self.parsed.is_text:
            return self._filling_text()
        if self.is_ragged:
            return ragged.exact([] if self.is_optional else self.missing, self.shape, self.number)
        if isinstance(self.missing, list | tuple | np.ndarray):
            return exact(self.missing, self.shape, self.number)
        return np.full(self.shape, exact(0 if self.is_optional else self.missing, (), self.number))

    def _filling_text(self) -> str | bytes:
        if self.parsed.name == "string":
            return exact_text("" if self.is_optional else self.missing)
        if not self.is_optional:  # YAML has no bytes
            raise Misfit(WRONG_TYPE, named(self.missing))
        return b""


SampleSchema = tuple[SampleField, ...]


def arrow_schema(schema: SampleSchema) -> pa.Schema:
    plain = schema_to_arrow(tuple(Field(field.name, field.type) for field in schema))
    return pa.schema(
        [as_optional(made) if field.is_optional else made for field, made in zip(schema, plain, strict=True)]
    )


# Declared.


def declared_schema(written: Mapping[str, Any], missing: Mapping[str, Any]) -> SampleSchema:
    """The schema of `features: float32[893]`, `labels: {action_type: int16}`, and so on."""
    fields = [make_field(path, _declared_type(path, word), DECLARED) for path, word in walk(written)]
    check_names(fields, ConfigError, "schema")
    return with_missing(fields, missing)


def walk(node: Mapping[Any, Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[Path, Any]]:
    """Every key that is no dict, with the keys that lead to it; an empty dict counts as one."""
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from walk(value, (*path, key))
        else:
            yield (*path, key), value


def _declared_type(path: Path, word: Any) -> str:
    where = "schema." + ".".join(map(str, path))
    if not isinstance(word, str):
        raise ConfigError(f"{word!r} is not a type such as int16 or float32[893]", where=where)
    try:
        long = type_from_short(word)
    except ValueError as error:
        raise ConfigError(str(error), where=where) from error
    kind = parse_type(long)
    row = kind.inner if kind.name == "list" and kind.inner else kind
    if long not in _TEXTS and not ((row.is_number or row.is_fixed_list) and row.number.name in NUMBERS):
        raise ConfigError(
            f"{word!r} is not a type of samples; those are {', '.join((*_TEXTS, *NUMBERS))}, and shapes of numbers "
            "such as float32[893], or int32[*] for any length",
            where=where,
        )
    return long


# Declared and inferred.


def make_field(path: Path, word: str, origin: str) -> SampleField:
    return SampleField("_".join(map(str, path)), path, word, origin)


def check_names(fields: Sequence[SampleField], kind: type[PenstockError], where: str | None) -> None:
    """Names must do for shards and for files, and each must stand for one key."""
    if not fields:
        raise kind("a schema has no columns", where=where, next_step="name one, such as `features: float32[893]`")
    paths = {field.path[:size] for field in fields for size in range(1, len(field.path))}
    by_name: dict[str, SampleField] = {}
    for field in fields:
        if wrong := _wrong_name(field):
            raise kind(wrong, where=where or field.origin, next_step="rename the key")
        if field.path in paths:
            raise kind(f"key {field.key!r} is a value and a dict", where=where or field.origin)
        if (other := by_name.setdefault(field.name, field)) is not field:
            raise kind(
                f"keys {other.key!r} and {field.key!r} both become column {field.name!r}",
                where=where or field.origin,
                next_step="rename one of them",
            )


def _wrong_name(field: SampleField) -> str | None:
    if not all(isinstance(key, str) and key for key in field.path):
        return f"key {'.'.join(map(str, field.path))!r} is not a name: keys are texts that are not empty"
    name = field.name
    unfit = name.startswith(".") or any(letter in "/\\" or not letter.isprintable() for letter in name)
    if unfit or len(name.encode("utf-8", "replace")) > _LONGEST_NAME or name == "__metadata__":
        return (
            f"key {field.key!r} cannot name a column and a file: a name has up to {_LONGEST_NAME} bytes, no slash, "
            "no dot in front, and nothing that cannot be printed"
        )
    return None


def with_missing(fields: Sequence[SampleField], missing: Mapping[str, Any]) -> SampleSchema:
    names = [field.name for field in fields]
    for name in missing:
        if name not in names:
            raise ConfigError(
                f"missing: there is no column {name!r}. Columns: {', '.join(names)}.{did_you_mean(str(name), names)}"
            )
    filled = tuple(replace(field, missing=missing.get(field.name, REQUIRED)) for field in fields)
    for field in filled:
        if field.missing is REQUIRED:
            continue
        try:
            field.filling()
        except Misfit as misfit:
            raise ConfigError(
                f"missing.{field.name}: {misfit.detail} does not fit: {field.told}",
                next_step=f"give {_filling_advice(field)}, or null",
            ) from misfit
    return filled


def _filling_advice(field: SampleField) -> str:
    if field.parsed.is_text:
        return "a text" if field.parsed.name == "string" else "nothing else: bytes have no form in a job file"
    value = f"a value of {short_type(field.type)}"
    return f"{value}, such as []" if field.is_ragged else f"{value}, or one number to fill it with"
