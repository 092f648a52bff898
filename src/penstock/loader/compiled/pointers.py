"""Pointers: read and write item `index` of an array by the array's address.

A batch draws from any shard, and a kernel cannot take thousands of arrays as arguments; it takes one table of
addresses. Inside a kernel arrays would also be counted in and out at every call, which costs ten times the work
itself (benchmarks/LOG.md). Whoever calls a kernel keeps the arrays alive, and every index that was read from a column
is held against the next column's length before it is used, so that damaged data cannot lead outside of a map.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from penstock.loader.compiled.jit import jit_part, keep_apart
from penstock.loader.tables import CODES


def _pointer(context: Any, builder: Any, item: Any, arguments: Any) -> Any:
    """The place of an item, by an array's address and the item's index."""
    distance = builder.mul(arguments[1], ir.Constant(ir.IntType(64), item.bitwidth // 8))
    return builder.inttoptr(builder.add(arguments[0], distance), context.get_value_type(item).as_pointer())


def _reader(item: Any, wide: Any) -> Any:
    """An intrinsic (address: uint64, index: int64) -> the item, as a type kernels count in."""

    @intrinsic  # type: ignore[untyped-decorator]
    def read(typing_context: Any, address: Any, index: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = builder.load(_pointer(context, builder, item, arguments), align=1)
            return context.cast(builder, value, item, signature.return_type)

        return wide(types.uint64, types.int64), generate

    return read


def _writer(item: Any, given: Any) -> Any:
    """An intrinsic (address: uint64, index: int64, value) that stores the value as an item."""

    @intrinsic  # type: ignore[untyped-decorator]
    def write(typing_context: Any, address: Any, index: Any, value: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            stored = context.cast(builder, arguments[2], signature.args[2], item)
            builder.store(stored, _pointer(context, builder, item, arguments), align=1)
            return context.get_dummy_value()

        return types.void(types.uint64, types.int64, given), generate

    return write


@intrinsic  # type: ignore[untyped-decorator]
def shifted(typing_context: Any, address: Any, distance: Any) -> Any:  # noqa: ARG001
    """The address plus an offset in bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.add(arguments[0], arguments[1])

    return types.uint64(types.uint64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def fetch(typing_context: Any, address: Any, distance: Any) -> Any:  # noqa: ARG001
    """Prefetch the cache line at an address plus an offset. Nothing is read, so any address is safe."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        to_read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
        place = builder.inttoptr(builder.add(arguments[0], arguments[1]), pointer)
        builder.call(function, [place, to_read, keep, data])
        return context.get_dummy_value()

    return types.void(types.uint64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def copy_bytes(typing_context: Any, to: Any, source: Any, size: Any) -> Any:  # noqa: ARG001
    """Copy bytes, like memcpy of C."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        byte = ir.IntType(8).as_pointer()
        cgutils.raw_memcpy(
            builder, builder.inttoptr(arguments[0], byte), builder.inttoptr(arguments[1], byte), arguments[2], 1
        )
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def clear_bytes(typing_context: Any, to: Any, size: Any) -> Any:  # noqa: ARG001
    """Write zeros, like memset of C: a loop over bytes takes ten times as long."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        place = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        cgutils.memset(builder, place, arguments[1], 0)
        return context.get_dummy_value()

    return types.void(types.uint64, types.int64), generate


read_i1 = _reader(types.int8, types.int64)
read_i2 = _reader(types.int16, types.int64)
read_i4 = _reader(types.int32, types.int64)
read_i8 = _reader(types.int64, types.int64)
read_u1 = _reader(types.uint8, types.int64)
read_u2 = _reader(types.uint16, types.int64)
read_u4 = _reader(types.uint32, types.int64)
read_u8 = _reader(types.uint64, types.uint64)
read_f4 = _reader(types.float32, types.float64)
read_f8 = _reader(types.float64, types.float64)
write_u1 = _writer(types.uint8, types.int64)
write_i4 = _writer(types.int32, types.int64)
write_i8 = _writer(types.int64, types.int64)
write_u8 = _writer(types.uint64, types.uint64)


@intrinsic  # type: ignore[untyped-decorator]
def bits_of(typing_context: Any, number: Any) -> Any:  # noqa: ARG001
    """The bits of a float64, as a whole number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


I1, I2, I4, I8, U1, U2, U4, U8, F2, F4, F8 = CODES.values()


@jit_part
def read_whole(address: Any, index: int, kind: int) -> int:
    """A whole number of any width; a uint64 beyond int64 comes out negative."""
    if kind == I4:
        return read_i4(address, index)
    if kind == I1:
        return read_i1(address, index)
    if kind == U1:
        return read_u1(address, index)
    if kind == I2:
        return read_i2(address, index)
    if kind == U2:
        return read_u2(address, index)
    if kind == U4:
        return read_u4(address, index)
    return read_i8(address, index)


@jit_part
def read_real(address: Any, index: int, kind: int) -> float:
    if kind == F4:
        return read_f4(address, index)
    if kind == F8:
        return read_f8(address, index)
    if kind == F2:
        return _half(read_u2(address, index))
    if kind == U8:
        return float(read_u8(address, index))
    return float(read_whole(address, index, kind))


@jit_part
def ieee_bits(value: float, width: int) -> int:
    """Bits of the nearest number of IEEE half (2 bytes) or single precision (4), ties to even; NaN has one pattern."""
    keep_apart()
    mantissa_bits = 10 if width == 2 else 23
    bias = 15 if width == 2 else 127
    infinite = ((2 * bias) + 1) << mantissa_bits
    bits = bits_of(value)
    exponent, mantissa = (bits >> 52) & 2047, bits & ((1 << 52) - 1)
    sign = (1 << (8 * width - 1)) if bits < 0 else 0
    if exponent == 2047:
        return infinite | 1 << (mantissa_bits - 1) if mantissa else sign | infinite
    power = exponent - 1023
    if power > bias:
        return sign | infinite
    dropped = 52 - mantissa_bits + max(0, 1 - bias - power)  # a subnormal has fewer bits
    if exponent == 0 or dropped > 53:
        return sign
    significand = mantissa | (1 << 52)
    kept, rest, half = significand >> dropped, significand & ((1 << dropped) - 1), 1 << (dropped - 1)
    if rest > half or (rest == half and kept & 1):
        kept += 1
    # The highest of the kept bits of a normal number is not stored, and a carry goes on into the exponent.
    return sign | (kept + (max(0, power + bias - 1) << mantissa_bits))


@jit_part
def _half(bits: int) -> float:
    """IEEE half precision from its 16 bits; every step is exact."""
    keep_apart()
    exponent, mantissa = (bits >> 10) & 31, bits & 1023
    if exponent == 31:
        value = float("nan") if mantissa else float("inf")
    else:
        value = float(mantissa if exponent == 0 else mantissa | 1024)
        for _ in range(max(exponent, 1), 25):
            value *= 0.5
        for _ in range(25, exponent):
            value *= 2.0
    return -value if bits >> 15 else value
