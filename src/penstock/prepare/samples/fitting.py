"""Fitting: a value that a user's function yielded -> numbers of a given type, or why they do not fit.

Two ways to the same numbers:

- `exact`: one sample, value by value, in plain Python. It is the definition, and the tests' oracle.
- `together`: many samples in whole arrays. It never takes what `exact` refuses and never gives another bit; where it
  cannot be sure it gives None, and `exact` decides.

What fits: an int that is in range, or that a float can hold exactly; a float that is whole and in range, for an int;
any float for a float, rounded as the type says, unless a finite one becomes infinite; True and False as 1 and 0; 0 and
1 as a bool. NaN, infinities and -0.0 stay what they are. Without `rounds` a float must keep its value: nobody asked for
the type, it was inferred from another sample.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

NOT_A_SAMPLE = "not a sample"
NOT_A_BATCH = "not a batch"
LENGTHS_DIFFER = "columns differ in length"
UNEXPECTED_KEY = "unexpected key"
MISSING_KEY = "missing key"
WRONG_TYPE = "wrong type"
WRONG_SHAPE = "wrong shape"
DOES_NOT_FIT = "value does not fit its type"

_LISTS = frozenset({list, tuple})
_FLOATS = frozenset({float, np.float64})
_MIXED = frozenset({int, float, bool, np.float64})  # what float64 holds exactly, below 2**53
_NUMPY: dict[type, np.dtype[Any]] = {
    np.dtype(name).type: np.dtype(name) for name in ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4")
}
PLAIN = frozenset({int, float, bool, str, bytes, np.str_, np.float64, *_NUMPY})  # types whose values never change
_DTYPE, _SHAPE = attrgetter("dtype"), attrgetter("shape")


class Misfit(Exception):
    """Why a sample is not taken. `reason` is one of the words above, so that it can be counted; `key` has dots."""

    def __init__(self, reason: str, detail: str, key: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail, self.key = reason, detail, key


def held(value: Any, dimensions: int) -> Any:
    """`value`, or a copy of whatever in it could be changed later. Below `dimensions` lists are refused anyway."""
    kind = type(value)
    if kind is np.ndarray:
        return value.copy()
    if kind in PLAIN:
        return value
    if kind is bytearray:
        return bytes(value)
    if isinstance(value, np.ndarray):  # np.array() makes a plain array of a memmap, and would forget a mask
        return value.copy() if isinstance(value, np.ma.MaskedArray) else np.array(value)
    if dimensions and isinstance(value, list | tuple):
        values = tuple(value)
        try:
            hash(values)  # lists and arrays inside have none: half the price of looking at each type
        except TypeError:
            return tuple([held(each, dimensions - 1) for each in values])
        return values
    return value


# One sample, value by value: the definition.


def exact(value: Any, shape: Shape, number: np.dtype[Any], rounds: bool = True) -> Array:
    """The numbers of one sample in its column's shape; Misfit if one of them does not fit."""
    flat = np.empty(math.prod(shape), number)
    for place, each in enumerate(_leaves(value, shape, shape)):
        try:
            flat[place] = exact_number(each, number, rounds)
        except Misfit as misfit:
            raise Misfit(misfit.reason, misfit.detail + _at(place, shape)) from None
    return flat.reshape(shape)


def is_utf8(text: str) -> bool:
    """Whether it can be written: half a surrogate pair cannot, nor can two halves that happen to meet."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def exact_text(value: Any) -> str:
    value = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if not isinstance(value, str):
        raise Misfit(WRONG_TYPE, named(value))
    if not is_utf8(value):
        raise Misfit(DOES_NOT_FIT, f"{named(value)} cannot be written as UTF-8")
    return str(value)


def is_bytes(value: Any) -> bool:
    """Whether it is Python's own bytes: numpy's may have lost zeros at their end."""
    return isinstance(value, bytes | bytearray) and not isinstance(value, np.generic)


def exact_bytes(value: Any) -> bytes:
    if not is_bytes(value):
        raise Misfit(WRONG_TYPE, named(value))
    return bytes(value)


def exact_number(value: Any, number: np.dtype[Any], rounds: bool = True) -> Any:
    kind = kind_of(value)
    if kind not in "biuf" or (kind == "f" and number.kind == "b"):
        raise Misfit(WRONG_TYPE, named(value))
    with np.errstate(all="ignore"):
        converted = _float(value, kind, number, rounds) if number.kind == "f" else _whole(value, kind, number)
    if converted is None:
        raise Misfit(DOES_NOT_FIT, named(value))
    return converted


def _float(value: Any, kind: str, number: np.dtype[Any], rounds: bool) -> Any:
    if kind == "f":
        converted = np.asarray(value).astype(number)[()]  # number.type() would round a long double twice
        if not rounds and not (np.isnan(value) or np.asarray(converted, np.longdouble) == value):
            return None
        return None if np.isinf(converted) and not np.isinf(value) else converted
    try:
        converted = number.type(int(value))
    except OverflowError:
        return None
    return converted if np.isfinite(converted) and int(converted) == int(value) else None


def _whole(value: Any, kind: str, number: np.dtype[Any]) -> Any:
    if kind == "f" and not (np.isfinite(value) and value == np.trunc(value)):
        return None
    lowest, highest = whole_range(number)
    return number.type(int(value)) if lowest <= int(value) <= highest else None


def whole_range(number: np.dtype[Any]) -> tuple[int, int]:
    if number.kind == "b":
        return 0, 1
    return int(np.iinfo(number).min), int(np.iinfo(number).max)


def kind_of(value: Any) -> str:
    """numpy's letter for a scalar: b, i, u, f for the numbers there are columns for, O for what numpy cannot tell."""
    if isinstance(value, np.generic):
        return str(value.dtype.kind)
    if isinstance(value, bool):
        return "b"
    return "i" if isinstance(value, int) else "f" if isinstance(value, float) else "O"


def named(value: Any) -> str:
    """A value in a few words: `str 'king'`, `array of complex64`, `NoneType`."""
    if isinstance(value, np.ma.MaskedArray):
        return "masked array"
    if isinstance(value, np.ndarray):
        return f"array of {value.dtype}"
    if isinstance(value, str):
        return f"str {str(value)[:40]!r}"
    if isinstance(value, bytearray | list | tuple):  # by one name each, whether it is held (see there) or not
        return "bytes" if isinstance(value, bytearray) else "list"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"int of {value.bit_length()} bits"
    if isinstance(value, bool | int | float | np.generic):
        return f"{type(value).__name__} {value}"
    return type(value).__name__


def _leaves(value: Any, shape: Shape, whole: Shape) -> Iterator[Any]:
    """The scalars of a value in C order; Misfit where it has not this shape."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf" or isinstance(value, np.ma.MaskedArray):
            raise Misfit(WRONG_TYPE, named(value))
        if value.shape != shape:
            raise Misfit(WRONG_SHAPE, _counted(value.shape, len(whole) - len(shape)))
        yield from np.asarray(value).reshape(-1)
    elif isinstance(value, list | tuple):
        if not shape or len(value) != shape[0]:
            raise Misfit(WRONG_SHAPE, _counted((len(value),), len(whole) - len(shape)))
        for each in value:
            yield from _leaves(each, shape[1:], whole)
    elif shape and kind_of(value) in "biuf":
        raise Misfit(WRONG_SHAPE, f"a single {named(value)}")
    elif shape:
        raise Misfit(WRONG_TYPE, named(value))
    else:
        yield value


def _counted(shape: Shape, depth: int) -> str:
    size = f"{shape[0]} values" if len(shape) == 1 else f"shape {list(shape)}"
    return f"a list inside has {size}" if depth else size


def _at(place: int, shape: Shape) -> str:
    return f" at {[int(each) for each in np.unravel_index(place, shape)]}" if shape else ""


# Many samples in whole arrays. None: let `exact` decide.


def together(values: Sequence[Any], shape: Shape, number: np.dtype[Any], rounds: bool = True) -> Array | None:
    """The numbers of many samples in one array of shape (samples, *shape)."""
    if not values:
        return np.empty((0, *shape), number)
    with np.errstate(all="ignore"):
        gathered = _gathered(values, shape, number)
    found = None if gathered is None else cast(gathered, number, rounds)
    return None if found is None else found.reshape(len(values), *shape)


def _gathered(values: Sequence[Any], shape: Shape, number: np.dtype[Any]) -> Array | None:
    """All values in one array of a type that holds them exactly."""
    kinds = set(map(type, values))
    if kinds == {np.ndarray}:
        if set(map(_SHAPE, values)) != {shape} or len(set(map(_DTYPE, values))) != 1:
            return None
        return np.concatenate(values) if shape else np.stack(values)
    if not shape:
        return _scalars(values, kinds, number)
    if kinds <= _LISTS and set(map(len, values)) == {shape[0]}:
        return _gathered(list(chain.from_iterable(values)), shape[1:], number)
    return None


def _scalars(values: Sequence[Any], kinds: set[type], number: np.dtype[Any]) -> Array | None:
    if kinds == {int}:
        return _ints(values)
    if kinds == {bool}:
        return np.array(values, np.bool_)
    if kinds <= _FLOATS:
        return np.array(values, np.float64)
    if len(kinds) == 1:
        dtype = _NUMPY.get(next(iter(kinds)))
        return None if dtype is None else np.array(values, dtype)
    return _mixed(values, number) if kinds <= _MIXED and number.kind != "b" else None


def _ints(values: Sequence[int]) -> Array | None:
    for dtype in (np.int64, np.uint64):
        try:
            return np.array(values, dtype)
        except OverflowError:
            continue
    return None


def _mixed(values: Sequence[Any], number: np.dtype[Any]) -> Array | None:
    """Ints among floats, in float64 where no int can have been rounded on its way there or will be in `number`."""
    try:
        array = np.array(values, np.float64)
    except OverflowError:  # an int beyond float64
        return None
    most = _most_exact(number if number.kind == "f" else array.dtype)
    return array if np.all((np.abs(array) < most) | ~np.isfinite(array)) else None


def _most_exact(number: np.dtype[Any]) -> int:
    """Every int up to here has a float of its own; an int beyond comes out as this or more."""
    return int(2 ** (np.finfo(number).nmant + 1))


def cast(array: Array, number: np.dtype[Any], rounds: bool) -> Array | None:
    """The numbers in another type, or the array itself where it has that type."""
    with np.errstate(all="ignore"):
        return _cast(array, number, rounds)


def _cast(array: Array, number: np.dtype[Any], rounds: bool) -> Array | None:
    if array.dtype.kind not in "biuf":
        return None
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype == number:
        return array
    if array.dtype.kind == "b":
        return array.astype(number)
    if array.dtype.kind in "iu":
        return _cast_ints(array, number)
    if number.kind == "b":
        return None
    return _cast_floats(array, number, rounds) if number.kind == "f" else _cast_whole_floats(array, number)


def _cast_ints(array: Array, number: np.dtype[Any]) -> Array | None:
    if number.kind == "f":
        lowest, highest = -_most_exact(number), _most_exact(number)
    else:
        lowest, highest = whole_range(number)
    fits = lowest <= int(array.min()) and int(array.max()) <= highest
    return array.astype(number) if fits else None


def _cast_floats(array: Array, number: np.dtype[Any], rounds: bool) -> Array | None:
    cast = array.astype(number)
    if not rounds and array.dtype.itemsize > number.itemsize and not np.array_equal(cast, array, equal_nan=True):
        return None
    infinite = np.isinf(cast)
    return None if infinite.any() and np.any(infinite & ~np.isinf(array)) else cast


def _cast_whole_floats(array: Array, number: np.dtype[Any]) -> Array | None:
    if array.dtype.itemsize > 8:  # long doubles, which are compared below as float64
        return None
    values = array.astype(np.float64, copy=False)
    lowest, highest = whole_range(number)
    # The highest int64 is no float64; the power of two above it is. NaN is on no side of anything.
    fits = (values >= lowest) & (values < float(highest + 1)) & (values == np.trunc(values))
    return values.astype(number) if fits.all() else None
