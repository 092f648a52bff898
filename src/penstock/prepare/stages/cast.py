"""Cast: give columns other types; a value that its new type cannot hold is a bad row."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigError
from penstock.prepare.rows.jsonable import jsonable
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.stage import Stage, require_columns
from penstock.shards.arrays import is_list, is_string
from penstock.shards.schema import parse_type, type_from_short, type_to_arrow

Array = np.ndarray[Any, Any]
REASON = "value does not fit the type it is cast to"
_ADVICE = "choose a type that holds it"
_ADVICE_ROUND = "choose a wider type, or round it: `cast: {columns: {...}, lossy: true}`"


@dataclass(frozen=True, kw_only=True)
class Cast(Stage):
    """`cast: {rtt: float32, time: "timestamp[us]"}` changes the types of these columns.

    Every value must stay the same. Otherwise its row is bad input: no float32 equals 16777217 or the float64 0.1.
    `cast: {columns: {rtt: float32}, lossy: true}` rounds floats to the nearest. It also cuts off digits of decimals,
    fractions that become whole numbers, and parts of a second. A value out of the type's range is still bad input:
    300 for int8, 1e39 for float32, 5 for bool, text that is not a decimal number.
    """

    columns: dict[str, str]  # name -> type
    lossy: bool = False

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        options = super().options_from_yaml(written)
        return options if isinstance(options.get("columns"), dict) else {"columns": options}

    def __post_init__(self) -> None:
        if not self.columns:
            raise ConfigError('name a column and its type, such as `cast: {rtt: float32, time: "timestamp[us]"}`')
        for name, word in self.columns.items():
            try:
                type_from_short(word)
            except ValueError as error:
                raise ConfigError(f"{name}: {error}") from error

    def _types(self) -> dict[str, pa.DataType]:
        return {name: type_to_arrow(parse_type(type_from_short(word))) for name, word in self.columns.items()}

    def __call__(self, rows: Rows) -> Rows:
        for name, kind in self._types().items():
            given = rows.batch.column(name)
            array, good = cast_array(given, kind, self.lossy)
            place = rows.batch.schema.get_field_index(name)
            if not good.all():
                first = given.take(pa.array([int(np.argmin(good))]))  # the one that the error is about
                rounds = not self.lossy and cast_array(first, kind, lossy=True)[1].all()
                rows = rows.reject(good, REASON, _telling(name, given, kind), _ADVICE_ROUND if rounds else _ADVICE)
                array = array.filter(pa.array(good))
            rows = rows.with_batch(rows.batch.set_column(place, name, array))
        return rows

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_columns(schema, list(self.columns))
        for name, kind in self._types().items():
            field = schema.field(name)
            try:
                for rows in (0, 1):  # there and back, also where `lossy` would not ask: a date is more than a digit
                    cast_array(pa.nulls(rows, field.type), kind, lossy=False)
            except pa.ArrowException as error:
                raise ConfigError(
                    f"column {name!r} is {field.type}, which cannot be cast to {self.columns[name]} ({error})",
                    next_step="cast it in a stage of your own (`module:function`)",
                ) from error
            schema = schema.set(schema.get_field_index(name), field.with_type(kind))
        return schema

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None else after | frozenset(self.columns)

    def describe(self) -> dict[str, Any]:
        return {"columns": {name: type_from_short(word) for name, word in self.columns.items()}, "lossy": self.lossy}


def _telling(name: str, given: pa.Array, kind: pa.DataType) -> Callable[[int], str]:
    def detail(row: int) -> str:
        return f"column {name!r} has {jsonable(given[row])!r} of {given.type}, and {kind} has no such value"

    return detail


def cast_array(array: pa.Array, kind: pa.DataType, lossy: bool) -> tuple[pa.Array, Array]:
    """(the values in that type, which of them fit); the others have any value."""
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
    if is_list(array.type) and is_list(kind):
        return _cast_lists(array, kind, lossy)
    wanted = kind.value_type if pa.types.is_dictionary(kind) else kind
    answer = _cast(_cut(array, wanted) if lossy else array, wanted)
    good = _fits(array, answer, lossy)
    return answer.dictionary_encode() if pa.types.is_dictionary(kind) else answer, good


def _cast_lists(array: pa.Array, kind: pa.DataType, lossy: bool) -> tuple[pa.Array, Array]:
    """Their values are cast by themselves. A list of a length that the type has not is null, as in `_cast`."""
    is_a = pa.types
    lists = _cast(array, _list_like(kind, array.type.value_type))
    nulls = lists.is_null() if lists.null_count else None
    if is_a.is_fixed_size_list(kind):
        size = kind.list_size
        values, fits = cast_array(lists.values.slice(lists.offset * size, len(lists) * size), kind.value_type, lossy)
        answer = pa.FixedSizeListArray.from_arrays(values, type=kind, mask=nulls)
        good = fits.reshape(len(lists), size).all(axis=1)
    else:
        values, fits = cast_array(lists.flatten(), kind.value_type, lossy)
        lengths = np.asarray(lists.value_lengths().fill_null(0))
        make, width = (pa.LargeListArray, "i8") if is_a.is_large_list(kind) else (pa.ListArray, "i4")
        answer = make.from_arrays(np.append(0, np.cumsum(lengths)).astype(width), values, type=kind, mask=nulls)
        good = np.ones(len(lists), bool)
        good[np.repeat(np.arange(len(lists)), lengths)[~fits]] = False
    return answer, np.asarray(array.is_null()) | (good & np.asarray(lists.is_valid()))


def _list_like(kind: pa.DataType, value: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(value, kind.list_size)
    return pa.large_list(value) if pa.types.is_large_list(kind) else pa.list_(value)


def _cut(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Without the digits that the type has no place for; Arrow itself would make any number of NaN and 1e19, too."""
    is_a = pa.types
    if is_a.is_floating(array.type) and is_a.is_integer(kind):
        return pc.trunc(array.cast(pa.float64()))
    if is_a.is_decimal(array.type) and (is_a.is_integer(kind) or is_a.is_decimal(kind)):
        if array.type.bit_width < 128:  # which Arrow cannot round
            array = array.cast(pa.decimal128(array.type.precision, array.type.scale))
        return pc.round(array, ndigits=0 if is_a.is_integer(kind) else kind.scale, round_mode="towards_zero")
    return array


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Null for what is out of range. Arrow refuses a whole array for one such value: halves of it find which."""
    try:
        return pc.cast(array, options=_options(array.type, kind))
    except pa.ArrowNotImplementedError:
        raise
    except pa.ArrowInvalid:
        if not len(array):  # it is the type that Arrow refuses
            raise
        if len(array) == 1:
            return pa.nulls(1, kind)
    halves = np.array_split(np.arange(len(array)), 2)  # taken, not sliced: Arrow casts all values behind a slice
    return pa.concat_arrays([_cast(array.take(pa.array(half)), kind) for half in halves])


def _options(given: pa.DataType, kind: pa.DataType) -> pc.CastOptions:
    """Arrow's check of whole numbers as floats refuses all beyond 2^24 or 2^53: here each is looked at."""
    is_whole = pa.types.is_integer(given)
    return pc.CastOptions(target_type=kind, allow_float_truncate=is_whole, allow_time_truncate=True)


def _fits(array: pa.Array, answer: pa.Array, lossy: bool) -> Array:
    """Mask of the values that are in range and, unless `lossy`, the same as before."""
    missing: Array = np.asarray(array.is_null())
    if pa.types.is_null(array.type):
        return missing
    if is_string(array.type) and _is_number(answer.type):
        pairs = zip(array.to_pylist(), answer, strict=True)
        good = np.array([_says(text, number, lossy) for text, number in pairs], bool)
    elif is_string(array.type) or (lossy and not pa.types.is_boolean(answer.type)):
        good = ~(_is_infinite(answer) & ~_is_infinite(array))
    else:
        good = _is_equal(array, _cast(answer, array.type))
    fits: Array = missing | (good & np.asarray(answer.is_valid()))
    return fits


def _is_equal(array: pa.Array, back: pa.Array) -> Array:
    if not pa.types.is_floating(array.type):
        return np.asarray(pc.fill_null(pc.equal(array, back), False))
    left, right = (np.asarray(each.cast(pa.float64()).fill_null(0.0)) for each in (array, back))
    equal: Array = ((left == right) | (np.isnan(left) & np.isnan(right))) & np.asarray(back.is_valid())
    return equal


def _is_infinite(array: pa.Array) -> Array:
    if not pa.types.is_floating(array.type):
        return np.zeros(len(array), bool)
    infinite: Array = np.isinf(np.asarray(array.cast(pa.float64()).fill_null(0.0)))
    return infinite


def _says(text: str | None, number: pa.Scalar, lossy: bool) -> bool:
    """Whether the digits of a text are those that the number is written with."""
    if text is None or not number.is_valid:
        return True
    value = number.as_py()
    if isinstance(value, float) and not np.isfinite(value):
        return not any(each.isdigit() for each in text)  # 1e400 is not infinite
    is_narrow = isinstance(value, float) and number.type != pa.float64()
    written = str(np.dtype(f"f{number.type.bit_width // 8}").type(value)) if is_narrow else str(value)
    try:
        is_same = Decimal(text) == Decimal(written)  # which knows no 0x1f
        return lossy or is_same
    except InvalidOperation:
        return False


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
