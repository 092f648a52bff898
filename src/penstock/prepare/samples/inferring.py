"""Inferring: some samples of a user's function -> the columns that all of them have. Called by survey/scouting.py."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, InputError, did_you_mean
from penstock.prepare.samples.fitting import Misfit, Shape, is_bytes, kind_of, named, whole_range
from penstock.prepare.samples.schema import (
    NUMBERS,
    REQUIRED,
    Path,
    SampleField,
    SampleSchema,
    check_names,
    make_field,
    walk,
    with_missing,
)
from penstock.shards.schema import FIXED_LIST, Field, parse_type, short_type, type_from_short

_MOST_DIMENSIONS = 32
_ANY_LENGTH = "'int32[*]'"  # with the quotes that YAML wants between braces


# Inferred.


def infer_schema(sample: Any, place: str, floats: str | None, missing: Mapping[str, Any] | None = None) -> SampleSchema:
    """The columns of one sample. Floats keep their type, or become `floats`; a list's values become one type.

    None is passed over where `missing` makes a null of it: other samples tell the type.
    """
    if not isinstance(sample, dict) or not sample:
        what = "an empty dict" if isinstance(sample, dict) else f"{named(sample)}, not a dict"
        raise InputError(f"a sample is {what}", where=place, next_step="yield a dict of keys and values")
    fields = []
    for path, value in walk(sample):
        if isinstance(value, Mapping):  # an empty one: other samples tell what may be in it
            continue
        if value is None and (missing or {}).get("_".join(map(str, path)), REQUIRED) is None:
            continue
        try:
            word = _inferred_type(value, floats)
        except Misfit as misfit:
            raise InputError(
                f"key {'.'.join(map(str, path))!r} cannot become a column: {misfit.detail}",
                where=place,
                next_step=_typing_advice(path, value),
            ) from misfit
        fields.append(replace(make_field(path, word, place), rounds=floats is not None))
    passed_over = [path for path, value in walk(sample) if value is None]
    if not fields and passed_over:
        raise InputError(
            "no value of the sample tells its type: None has none",
            where=place,
            next_step=f"declare all keys: schema: {_nested(passed_over[0], 'float64')}",
        )
    check_names(fields, InputError, place)
    return tuple(fields)


def _typing_advice(path: Path, value: Any) -> str:
    if value is None:
        return f"if it may be None, say so: `missing: {{{'_'.join(map(str, path))}: null}}`"
    if isinstance(value, list | tuple) and not value:
        return f"declare its type; [*] takes any length: `schema: {_nested(path, _ANY_LENGTH)}`"
    return "yield numbers, strings, bytes, lists of one length or numpy arrays, or leave the key out"


def _inferred_type(value: Any, floats: str | None) -> str:
    """Misfit's reason is of no use here; its detail says what is wrong."""
    if isinstance(value, str) or (isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind == "U"):
        return "string"
    if is_bytes(value):
        return "binary"
    shape, words = _shape_and_words(value, floats, _MOST_DIMENSIONS)
    floating = (word for word in words if word.startswith("float"))  # float16 < float32 < float64
    word = next(iter(words)) if len(words) == 1 else max(floating, default="int64")
    try:
        return type_from_short(f"{word}[{_sizes(shape)}]") if shape else word
    except ValueError as error:  # no values, or more than can be counted
        raise Misfit("", str(error)) from error


def _sizes(shape: Shape) -> str:
    """An array without rows has no fixed shape: others of its kind may have some."""
    return ", ".join(map(str, shape if shape[0] else ("*", *shape[1:])))


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
    if kind not in "iuf" or word not in NUMBERS:
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
            agreed[field.name] = _agreed_field(agreed.get(field.name, field), field)
    for schema in found:
        names = {field.name for field in schema}
        for field in agreed.values():
            if field.name not in names and field.name not in missing:
                place, filler = schema[0].origin, "..." if field.parsed.is_text else -1
                raise InputError(
                    f"key {field.key!r} is in {field.origin}, but not in {place}",
                    where=place,
                    next_step="yield it in every sample, or give a default: "
                    f"missing: {{{field.name}: {filler}}}, or null",
                )
    fields = list(agreed.values())
    check_names(fields, InputError, None)
    if unseen := next((name for name, value in missing.items() if value is None and name not in agreed), None):
        known = ", ".join(f"{field.name}: {short_type(field.type)}" for field in fields)
        raise ConfigError(
            f"missing: none of the samples that were looked at has a value for {unseen!r}. Columns: "
            f"{', '.join(agreed)}.{did_you_mean(str(unseen), list(agreed))}",
            next_step=f"correct the name; or declare all keys with their types under `schema:`. Known: {known}",
        )
    return with_missing(fields, missing)


def _agreed_field(first: SampleField, second: SampleField) -> SampleField:
    """The field that both samples fit: arrays that differ in the first dimension alone become ragged."""
    if first.path == second.path and first.type == second.type:
        return first
    row = _row_type(first.type)
    if first.path != second.path or row is None or row != _row_type(second.type):
        raise _type_conflict(first, second)
    if first.is_ragged:
        return first
    return replace(first, type=f"list<{row}>", origin=f"{first.origin} and {second.origin}")


def _row_type(word: str) -> str | None:
    """Type of what an array has in its first dimension; None for what is no array."""
    kind = parse_type(word)
    if kind.is_fixed_list:
        return word.removeprefix(f"{FIXED_LIST}<").rpartition(">[")[0]
    return Field("", word).inner.type if kind.is_list else None


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
