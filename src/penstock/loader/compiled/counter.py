"""Counter: the random numbers of ../order/counter.py, compiled. A stream is two words at an address: key, count."""

from typing import Any

import numpy as np

from penstock.loader.compiled.jit import jit_part
from penstock.loader.compiled.pointers import read_i8, read_u8, write_i8, write_u8
from penstock.loader.order import counter

_GOLDEN = np.uint64(counter.GOLDEN)
_ROOTS = np.array(counter.ROOTS, np.uint64)
_FEW, _ROUNDS = counter.FEW, counter.ROUNDS
_ONE, _31, _32 = np.uint64(1), np.uint64(31), np.uint64(32)
_30, _27, _37 = np.uint64(30), np.uint64(27), np.uint64(37)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@jit_part
def mix(x: Any) -> Any:
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    return x ^ (x >> _31)


@jit_part
def chain(value: Any, word: int) -> Any:
    """The key extended by one word."""
    return mix((value ^ np.uint64(word)) + _GOLDEN)


@jit_part
def start_draws(stream: Any, own: Any) -> None:
    write_u8(stream, 0, own)
    write_u8(stream, 1, np.uint64(0))


@jit_part
def draw(stream: Any) -> Any:
    count = read_u8(stream, 1) + _ONE
    write_u8(stream, 1, count)
    return mix(read_u8(stream, 0) + count * _GOLDEN)


@jit_part
def below(x: Any, n: int) -> int:
    return np.int64(((x >> _32) * np.uint64(n)) >> _32)


@jit_part
def bit_length(n: int) -> int:
    bits = 0
    while n > 0:
        n >>= 1
        bits += 1
    return bits


@jit_part
def permute(place: int, n: int, own: Any) -> int:
    return _permute_few(place, n, own) if n <= _FEW else _permute_many(place, n, own)


@jit_part
def _permute_few(place: int, n: int, own: Any) -> int:
    draw_key = own + np.uint64(place + 1) * _GOLDEN
    x = below(mix(draw_key), place + 1)
    for i in range(place + 1, n):
        draw_key += _GOLDEN
        if below(mix(draw_key), i + 1) == x:
            x = i
    return x


@jit_part
def permute_all(to: Any, spare: Any, n: int, own: Any) -> None:
    """Write `permute` of every place to the address `to`. Few places are shuffled at once, in `spare`."""
    if n > _FEW:
        for place in range(n):
            write_i8(to, place, permute(place, n, own))
        return
    for i in range(n):
        own += _GOLDEN
        j = below(mix(own), i + 1)
        write_i8(spare, i, read_i8(spare, j))
        write_i8(spare, j, i)
    for i in range(n):
        write_i8(to, read_i8(spare, i), i)


@jit_part
def _permute_many(place: int, n: int, own: Any) -> int:
    low = np.uint64(bit_length(n - 1) // 2)
    low_mask = (_ONE << low) - _ONE
    x, end = np.uint64(place), np.uint64(n)
    high = (end + low_mask) >> low
    while True:
        left, right = x >> low, x & low_mask
        round_key = own
        for i in range(_ROUNDS):
            round_key += _GOLDEN
            if i % 2 == 0:
                left += ((mix(round_key ^ right) >> _32) * high) >> _32
                if left >= high:
                    left -= high
            else:
                right = (right + mix(round_key ^ left)) & low_mask
        x = (left << low) | right
        if x < end:
            return np.int64(x)


@jit_part
def log_uniform(x: Any, n: int) -> int:
    exponent = ((x >> _37) * _log2(n)) >> _27
    return min(max(np.int64(_exp2(exponent)), 1), n)


@jit_part
def _log2(n: int) -> Any:
    whole = np.uint64(bit_length(n) - 1)
    mantissa, result = np.uint64(n) << (_31 - whole), whole
    for _ in range(32):
        result <<= _ONE
        mantissa = (mantissa * mantissa) >> _31
        if mantissa >> _32:
            mantissa >>= _ONE
            result |= _ONE
    return result


@jit_part
def _exp2(y: Any) -> Any:
    result = _ONE << _31
    for i in range(32):
        if (y >> (_31 - np.uint64(i))) & _ONE:
            result = (result * _ROOTS[i]) >> _31
    return (result << (y >> _32)) >> _31
