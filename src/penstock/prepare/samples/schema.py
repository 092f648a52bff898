"""Sample schema: which columns the samples of a user's function have; as declared, or inferred from some of them.

Columns are flat: what stands under `labels` and there under `action_type` is the column `labels_action_type`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError, InputError, PenstockError, did_you_mean
from penstock.prepare.samples.fitting import Array, Misfit, Shape, exact, exact_text, kind_of, named, whole_range
from penstock.shards.schema import Field, Type, parse_type, schema_to_arrow, short_type, type_from_short

DECLARED = "declared"
_NUMBERS = ["bool"] + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
_NUMBERS += ["float16", "float32", "float64"]
_LONGEST_NAME = 200  # bytes: file names have 255, and some of them say the split
_MOST_DIMENSIONS = 32
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
    missing: Any = REQUIRED  # what stands for a key that is not there
    rounds: bool = True  # whether floats are rounded to the type: it was declared, or asked for by `floats:`

    @property
    def parsed(self) -> Type:
        return parse_type(self.type)

    @property
    def shape(self) -> Shape:
        return () if self.parsed.is_text else self.parsed.shape

    @property
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

    def filling(self) -> Array | str:
        """The value for a key that is not there, in the column's own type; Misfit if it does not fit."""
        if self.parsed.is_text:
            return exact_text(self.missing)
        if isinstance(self.missing, list | tuple | np.ndarray):
            return exact(self.missing, self.shape, self.number)
        return np.full(self.shape, exact(self.missing, (), self.number))


SampleSchema = tuple[SampleField, ...]


def arrow_schema(schema: SampleSchema) -> pa.Schema:
    return schema_to_arrow(tuple(Field(field.name, field.type) for field in schema))


# Declared.


def declared_schema(written: Mapping[str, Any], missing: Mapping[str, Any]) -> SampleSchema:
    """The schema of `features: float32[893]`, `labels: {action_type: int16}`, and so on."""
    fields = [_field(path, _declared_type(path, word), DECLARED) for path, word in _walk(written)]
    _check_names(fields, ConfigError, "schema")
    return _with_missing(fields, missing)


def _walk(node: Mapping[Any, Any], path: tuple[Any, ...] = ()) -> Iterator[tuple[Path, Any]]:
    """Every key that is no dict, with the keys that lead to it; an empty dict counts as one."""
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from _walk(value, (*path, key))
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
    if long != "string" and not ((kind.is_number or kind.is_fixed_list) and kind.number.name in _NUMBERS):
        raise ConfigError(
            f"{word!r} is not a type of samples; those are string, {', '.join(_NUMBERS)}, and shapes of numbers such "
            "as float32[893]",
            where=where,
        )
    return long


# Inferred.


def infer_schema(sample: Any, place: str, floats: str | None) -> SampleSchema:
    """The columns of one sample. Floats keep their type, or become `floats`; a list's values become one type."""
    if not isinstance(sample, dict) or not sample:
        what = "an empty dict" if isinstance(sample, dict) else f"{named(sample)}, not a dict"
        raise InputError(f"a sample is {what}", where=place, next_step="yield a dict of keys and values")
    fields = []
    for path, value in _walk(sample):
        if isinstance(value, Mapping):  # an empty one: other samples tell what may be in it
            continue
        try:
            word = _inferred_type(value, floats)
        except Misfit as misfit:
            raise InputError(
                f"key {'.'.join(map(str, path))!r} cannot become a column: {misfit.detail}",
                where=place,
                next_step="yield numbers, strings, lists of one length or numpy arrays, or leave the key out",
            ) from misfit
        fields.append(replace(_field(path, word, place), rounds=floats is not None))
    _check_names(fields, InputError, place)
    return tuple(fields)


def _inferred_type(value: Any, floats: str | None) -> str:
    """Misfit's reason is of no use here; its detail says what is wrong."""
    if isinstance(value, str) or (isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind == "U"):
        return "string"
    shape, words = _shape_and_words(value, floats, _MOST_DIMENSIONS)
    floating = (word for word in words if word.startswith("float"))  # float16 < float32 < float64
    word = next(iter(words)) if len(words) == 1 else max(floating, default="int64")
    try:
        return type_from_short(f"{word}{list(shape)}") if shape else word
    except ValueError as error:  # no values, or more than can be counted
        raise Misfit("", str(error)) from error


def _shape_and_words(value: Any, floats: str | None, deepest: int) -> tuple[Shape, frozenset[str]]:
    if isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            raise Misfit("", "a masked array: fill what is masked")
        return value.shape, frozenset({_word(value.dtype.kind, value.dtype, named(value), floats)})
    if isinstance(value, list | tuple):
        return _list_shape_and_words(value, floats, deepest)
    kind = kind_of(value)
    if isinstance(value, np.generic):
        return (), frozenset({_word(kind, value.dtype, named(value), floats)})
    if kind == "i" and not whole_range(np.dtype("int64"))[0] <= value <= whole_range(np.dtype("int64"))[1]:
        raise Misfit("", f"{named(value)} is no int64: declare another type")
    return (), frozenset({_word(kind, np.dtype("float64" if kind == "f" else "int64"), named(value), floats)})


def _word(kind: str, dtype: np.dtype[Any], name: str, floats: str | None) -> str:
    word = floats if kind == "f" and floats else dtype.name
    if kind == "b":
        return "bool"
    if kind not in "iuf" or word not in _NUMBERS:
        raise Misfit("", f"{name} has no column type")
    return word


def _list_shape_and_words(value: Sequence[Any], floats: str | None, deepest: int) -> tuple[Shape, frozenset[str]]:
    if not value:
        raise Misfit("", "an empty list does not tell its type and length")
    if not deepest:
        raise Misfit("", f"lists in lists, more than {_MOST_DIMENSIONS} of them")
    found = [_shape_and_words(each, floats, deepest - 1) for each in value]
    shapes = {shape for shape, _ in found}
    if len(shapes) > 1:
        first, second = sorted(shapes)[:2]  # two of them, and always the same two
        raise Misfit("", f"a list of shapes {list(first)} and {list(second)}, not of one shape")
    return (len(value), *found[0][0]), frozenset().union(*(words for _, words in found))


# Agreed.


def agreed_schema(found: Sequence[SampleSchema], missing: Mapping[str, Any]) -> SampleSchema:
    """The one schema that all samples have; keys that only some of them have are those that `missing` names."""
    agreed: dict[str, SampleField] = {}
    for schema in found:
        for field in schema:
            first = agreed.setdefault(field.name, field)
            if first.type != field.type or first.path != field.path:
                raise _type_conflict(first, field)
    for schema in found:
        names = {field.name for field in schema}
        for field in agreed.values():
            if field.name not in names and field.name not in missing:
                place, filler = schema[0].origin, "..." if field.parsed.is_text else -1
                raise InputError(
                    f"key {field.key!r} is in {field.origin}, but not in {place}",
                    where=place,
                    next_step="yield it in every sample, or say what stands for it where it is missing: "
                    f"missing: {{{field.name}: {filler}}}",
                )
    fields = list(agreed.values())
    _check_names(fields, InputError, None)
    return _with_missing(fields, missing)


def _type_conflict(first: SampleField, second: SampleField) -> InputError:
    words = [short_type(first.type), short_type(second.type)]
    other = words[1] if first.path == second.path else f"{second.key!r} is {words[1]}"
    better = next((word for word in words if word.startswith("float")), words[0])
    return InputError(
        f"key {first.key!r} is {words[0]} in {first.origin}, but {other} in {second.origin}",
        where=second.origin,
        next_step=f"yield one type and shape in every file, or declare all keys: schema: {_nested(first.path, better)}",
    )


def _nested(path: Path, word: str) -> str:
    return "".join(f"{{{key}: " for key in path) + word + "}" * (len(path) - 1) + ", ...}"


# Both.


def _field(path: Path, word: str, origin: str) -> SampleField:
    return SampleField("_".join(map(str, path)), path, word, origin)


def _check_names(fields: Sequence[SampleField], kind: type[PenstockError], where: str | None) -> None:
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


def _with_missing(fields: Sequence[SampleField], missing: Mapping[str, Any]) -> SampleSchema:
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
                next_step=f"give a value of {short_type(field.type)}, or one number to fill it with",
            ) from misfit
    return filled
