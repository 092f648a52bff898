"""Example: rows of tokens -> serialized tf.train.Example messages with one feature of int64.

As protocol buffers nest them, with the field's number in front of each level:

    Example { features = 1 { feature = 1 { key = 1: name, value = 2 { int64_list = 3 { value = 1: packed varints }}}}}

A varint has seven bits a byte, the low ones first, and the eighth bit says that more follow.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def encode_examples(name: str, values: Array, edges: Array) -> Iterator[bytes]:
    """One message a row: those of `values` from one of `edges` to the next, as the feature `name`."""
    data, places = _varints(values)
    key = _field(1, name.encode())
    cuts = places[edges].tolist()
    for low, high in itertools.pairwise(cuts):
        packed = _field(1, data[low:high].tobytes()) if high > low else b""
        yield _field(1, _field(1, key + _field(2, _field(3, packed))))


def _varints(values: Array) -> tuple[Array, Array]:
    """The bytes of all values, which are 0 to 2^31 - 1, and where each begins.

    Every value is spread over a word, and of the word's bytes those that it has are picked out.
    """
    wide = int(values.max(initial=0)) >= 2**28
    left = values.astype("<u8" if wide else "<u4")
    words, sizes = np.zeros_like(left), np.ones(len(left), "u1")
    for byte in range(left.itemsize):
        words |= (left & 127) << (8 * byte)
        left >>= 7
        more = left != 0
        if not more.any():
            break
        words |= more.astype(left.dtype) << (8 * byte + 7)
        sizes += more
    own = np.array([256**size // 255 for size in range(left.itemsize + 1)], left.dtype)[sizes]  # 1 in `size` bytes
    return words.view("u1")[own.view("?")], np.concatenate([[0], np.cumsum(sizes, dtype="i8")])


def _field(number: int, data: bytes) -> bytes:
    """A field of bytes: its number with wire type 2, the length, the bytes."""
    return bytes([number << 3 | 2]) + _length(len(data)) + data


def _length(size: int) -> bytes:
    data = bytearray()
    while size > 127:
        data.append(size & 127 | 128)
        size >>= 7
    return bytes([*data, size])
