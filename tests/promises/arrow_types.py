"""Every Arrow type as a column: the same ten rows, eight values with the extremes of the type and two nulls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import cycle, islice
from typing import Any

import numpy as np
import pyarrow as pa

VALUES, ROWS = 8, 10  # rows 0 to 7 have a value, rows 8 and 9 have none
_UNITS = ("s", "ms", "us", "ns")
_TEXTS = ["", "a", "ä€😀", "a\0b", "x" * 300, "a", " ", "\U0010ffff"]
_BYTES = [b"", b"a", b"\xff\xfe", b"a\0b", b"x" * 300, b"a", b" ", b"\0"]
_WHOLE = [-(2**63), 2**63 - 1, -1, 0, 1, 1_700_000_000_123_456_789, 2**53 + 1, 1]


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values over and over, and then two nulls."""
    return pa.array([*islice(cycle(values), VALUES), None, None], kind)


def _numbers(dtype: str, values: Sequence[Any], kind: pa.DataType | None = None) -> pa.Array:
    """Numbers by their bits, so that no conversion touches them."""
    array = np.array([*islice(cycle(values), VALUES), 0, 0], dtype)
    plain = pa.array(array, mask=np.arange(ROWS) >= VALUES)
    return plain if kind is None else plain.view(kind)


def _integers() -> Iterator[pa.Array]:
    for bits in (8, 16, 32, 64):
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        yield _numbers(f"i{bits // 8}", [low, high, 0, 1, -1, high - 1, low + 1, 1])
        yield _numbers(f"u{bits // 8}", [0, 2**bits - 1, high, high + 1, 1, 2**bits - 2, 3, 1])


def _floats() -> Iterator[pa.Array]:
    for bits in (2, 4, 8):
        end = np.finfo(f"f{bits}")
        yield _numbers(f"f{bits}", [np.nan, -0.0, np.inf, -np.inf, end.smallest_subnormal, end.max, end.min, 0.1])


def _decimals() -> Iterator[pa.Array]:
    for make, precision in ((pa.decimal32, 9), (pa.decimal64, 18), (pa.decimal128, 38), (pa.decimal256, 76)):
        most = Decimal((0, (9,) * precision, -2))
        few = [Decimal("0.01"), Decimal("-0.01"), Decimal("0.00"), Decimal("1.50")]
        yield _column([most, most.copy_negate(), *few], make(precision, 2))
    yield _column([Decimal("1E+3"), Decimal("-5E+3")], pa.decimal128(5, -3))


def _times() -> Iterator[pa.Array]:
    for unit in _UNITS:
        for zone in (None, "UTC", "Europe/Berlin", "+02:00"):
            yield _numbers("i8", _WHOLE, pa.timestamp(unit, zone))
        yield _numbers("i8", _WHOLE, pa.duration(unit))
    yield _numbers("i4", [0, -1, 20_000, 2**31 - 1, -(2**31), 1], pa.date32())
    yield _numbers("i8", [day * 86_400_000 for day in (0, -1, 20_000, 10**6, -(10**6), 1)], pa.date64())
    for kind, most in ((pa.time32("s"), 86_400), (pa.time32("ms"), 86_400_000)):
        yield _numbers("i4", [0, most - 1, 1, 3600], kind)
    for kind, most in ((pa.time64("us"), 86_400 * 10**6), (pa.time64("ns"), 86_400 * 10**9)):
        yield _numbers("i8", [0, most - 1, 1, 3600], kind)
    yield _column([pa.MonthDayNano([1, -2, 3]), pa.MonthDayNano([0, 0, 0])], pa.month_day_nano_interval())


def _texts() -> Iterator[pa.Array]:
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        yield _column(_TEXTS, kind)
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield _column(_BYTES, kind)
    yield _column([b"abc", b"\0\0\0", b"\xff\xff\xff"], pa.binary(3))
    yield _column([b""], pa.binary(0))


def _dictionaries() -> Iterator[pa.Array]:
    for index in (pa.int8(), pa.uint16(), pa.int32(), pa.int64()):
        yield _column(_TEXTS, pa.string()).dictionary_encode().cast(pa.dictionary(index, pa.string()))
    yield _column(_TEXTS, pa.large_string()).dictionary_encode()
    yield _column(_BYTES, pa.binary()).dictionary_encode()
    yield _column([1, 2**63 - 1, -5], pa.int64()).dictionary_encode()
    yield _column([0.1, -0.0], pa.float64()).dictionary_encode()
    yield pa.DictionaryArray.from_arrays(  # the dictionary itself holds a null
        pa.array([0, 1, 2, 0, 1, 2, 0, 0, 3, None], pa.int16()), pa.array(["a", "", "b", None])
    )


def _lists() -> Iterator[pa.Array]:
    numbers = [[1, 2, 3], [], [-1], [2**31 - 1, -(2**31)]]
    for kind in (pa.list_(pa.int32()), pa.large_list(pa.int32()), pa.list_view(pa.int32())):
        yield _column(numbers, kind)
    yield _column(numbers, pa.large_list_view(pa.int32()))
    yield _column([[1.5, float("nan")], [], [-0.0]], pa.list_(pa.float32()))
    yield _column([["a", ""], [], ["ä"]], pa.list_(pa.string()))
    yield _column([["a", ""], [], ["ä"]], pa.list_(pa.string_view()))
    yield _column([[b"a", b"\xff"], []], pa.large_list(pa.large_binary()))
    yield _column([[True, False], []], pa.list_(pa.bool_()))
    yield _column([[1, -1], []], pa.list_(pa.timestamp("ns", "UTC")))
    yield _column([[Decimal("1.5")], []], pa.list_(pa.decimal128(9, 1)))
    yield _column([["a", "b", "a"], []], pa.list_(pa.dictionary(pa.int32(), pa.string())))
    yield _column([[[1, 2], []], []], pa.list_(pa.list_(pa.int8())))
    yield _column([[[1, 2]], []], pa.list_(pa.list_(pa.int8(), 2)))
    yield _column([[[1, 2], []], []], pa.list_(pa.list_view(pa.int8())))
    yield _column([[{"a": 1}], []], pa.list_(pa.struct({"a": pa.int8()})))
    yield _column([[1.5, -0.0, float("inf")]], pa.list_(pa.float32(), 3))
    yield _column([[1, 2, 3]], pa.list_(pa.timestamp("ms"), 3))
    yield _column([[True, False]], pa.list_(pa.bool_(), 2))
    yield _column([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int8(), 2), 2))
    yield _column([["a", "b"]], pa.list_(pa.string(), 2))
    yield _column([[]], pa.list_(pa.int8(), 0))


def _nested() -> Iterator[pa.Array]:
    yield _column([{"a": 1, "b": "x"}, {"a": None, "b": ""}], pa.struct({"a": pa.int64(), "b": pa.string()}))
    yield _column([{"a": {"b": 1.5}}], pa.struct({"a": pa.struct({"b": pa.float64()})}))
    yield _column([{"a": [1, 2]}, {"a": None}], pa.struct({"a": pa.list_view(pa.int8())}))
    yield _column([[("k", 1)], []], pa.map_(pa.string(), pa.int64()))
    yield _column([[("k", [1])], []], pa.map_(pa.string(), pa.list_view(pa.int8())))
    yield pa.UnionArray.from_sparse(
        pa.array([0] * ROWS, pa.int8()), [pa.array(range(ROWS)), pa.array(["a"] * ROWS)], ["n", "t"]
    )


def _others() -> Iterator[pa.Array]:
    yield _column([True, False], pa.bool_())
    yield pa.nulls(ROWS)
    for values in (pa.array([1, 2, None]), pa.array(["x" * 30, "", None], pa.string_view())):
        yield pa.RunEndEncodedArray.from_arrays(pa.array([4, 8, 10], pa.int32()), values)
    yield pa.ExtensionArray.from_storage(pa.uuid(), _column([b"0123456789abcdef", b"\0" * 16], pa.binary(16)))
    yield pa.ExtensionArray.from_storage(pa.json_(pa.string()), _column(['{"a": 1}', "[]"], pa.string()))
    yield pa.ExtensionArray.from_storage(pa.bool8(), _column([1, 0], pa.int8()))
    tensor = pa.fixed_shape_tensor(pa.float32(), [2, 2])
    yield pa.ExtensionArray.from_storage(tensor, _column([[1, 2, 3, 4]], pa.list_(pa.float32(), 4)))


def _inner_nulls() -> dict[str, pa.Array]:
    return {
        "list<int32> with nulls inside": _column([[1, None], [None], []], pa.list_(pa.int32())),
        "list<string> with nulls inside": _column([["a", None], [None], []], pa.list_(pa.string())),
        "fixed_size_list<float32>[2] with nulls inside": _column([[1.5, None]], pa.list_(pa.float32(), 2)),
    }


def columns() -> dict[str, pa.Array]:
    """A column of every type, by its name."""
    makers = (_integers, _floats, _decimals, _times, _texts, _dictionaries, _lists, _nested, _others)
    named: dict[str, pa.Array] = {}
    for array in (array for make in makers for array in make()):
        name = name_of(array.type)
        named[name if name not in named else f"{name} with a null in its dictionary"] = array
    return named | _inner_nulls()


def name_of(kind: pa.DataType) -> str:
    """How the page about types writes it."""
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return f"dictionary<{name_of(kind.index_type)}, {name_of(kind.value_type)}>"
    if is_a.is_fixed_size_list(kind):
        return f"fixed_size_list<{name_of(kind.value_type)}>[{kind.list_size}]"
    for word in ("large_list_view", "list_view", "large_list", "list"):
        if str(kind).startswith(f"{word}<"):
            return f"{word}<{name_of(kind.value_type)}>"
    if is_a.is_run_end_encoded(kind):
        return f"run_end_encoded<{name_of(kind.value_type)}>"
    if isinstance(kind, pa.BaseExtensionType):
        return kind.extension_name
    if is_a.is_union(kind) or (is_a.is_struct(kind) and is_a.is_struct(kind.field(0).type)):
        return "sparse_union" if is_a.is_union(kind) else "struct<a: struct<b: float64>>"
    words = {"halffloat": "float16", "float": "float32", "double": "float64", "date32[day]": "date32"}
    return {**words, "date64[ms]": "date64"}.get(str(kind), str(kind).replace("tz=", ""))


# Comparing.


def exact(array: pa.Array) -> list[Any]:
    """The values so that two of them are equal only if every bit is: floats as their bits, times as their number."""
    kind, is_a = array.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return exact(array.storage)
    if is_a.is_dictionary(kind):
        return exact(array.dictionary_decode())
    if is_a.is_run_end_encoded(kind):
        return exact(pa.array([each.as_py() for each in array], kind.value_type))
    if is_a.is_struct(kind):
        fields = [exact(array.field(number)) for number in range(kind.num_fields)]
        rows = zip(*fields, strict=True)
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    if hasattr(kind, "value_type") or is_a.is_map(kind):
        return [exact(each.values) if each.is_valid else None for each in array]
    if is_a.is_floating(kind) or (is_a.is_temporal(kind) and kind.bit_width <= 64):
        words = array.view(f"{'uint' if is_a.is_floating(kind) else 'int'}{kind.bit_width}")
        return words.to_pylist()
    return array.to_pylist()
