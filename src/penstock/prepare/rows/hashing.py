"""Hashing: a 64-bit number for each value of a column, the same on every machine and in every version.

Equal values hash equally whatever their Arrow type's width (int32 5 and int64 5, string and large_string), so a
row keeps its split when a file is written again with another type. Pinned by literal values in the tests.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

Array = np.ndarray[Any, Any]
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6E756C6C)  # "null"
_SHORT = 64  # longer text goes to xxh3: word by word is only faster while there are few words


def hash_array(array: pa.Array) -> Array:
    """One uint64 a row. NaNs are equal to each other, -0.0 to 0.0, nulls to nulls."""
    if pa.types.is_dictionary(array.type):
        return hash_array(array.dictionary_decode())
    if pa.types.is_null(array.type):
        array = array.cast(pa.int8())
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        hashes = np.full(len(array), mix(np.array([_NULL]))[0])
        hashes[valid] = hash_array(array.drop_null())
        return hashes
    if is_text(array.type):
        return _hash_text(array.cast(pa.large_binary()))
    return mix(_words(array))


def hash_distinct(array: pa.Array) -> Array:
    """Hashes as of hash_array; each distinct text is hashed once: keys repeat."""
    if not is_text(array.type) and not pa.types.is_dictionary(array.type):
        return hash_array(array)
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    hashes = np.append(hash_array(encoded.dictionary), mix(np.array([_NULL])))
    indices = encoded.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(-1)
    found: Array = hashes[np.asarray(indices)]
    return found


def hash_positions(paths: Sequence[str], files: Array | None, ordinals: Array) -> Array:
    """Hashes of the rows at these ordinals. `files` has the number of each row's path; none: all are of the first."""
    known = np.array([_xxh3(path.encode()) for path in paths])
    hashes = np.full(len(ordinals), known[0]) if files is None else known[files]
    return combine(hashes, mix(ordinals.astype("u8")))


def combine(left: Array, right: Array) -> Array:
    with np.errstate(over="ignore"):
        return mix(left * np.uint64(3) + right)


def is_text(kind: pa.DataType) -> bool:
    is_a = pa.types
    is_plain = is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_binary(kind) or is_a.is_large_binary(kind)
    return bool(is_plain or is_a.is_fixed_size_binary(kind) or is_a.is_string_view(kind) or is_a.is_binary_view(kind))


def has_hash(kind: pa.DataType) -> bool:
    """Whether values of the type are single ones, which hash_array knows."""
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return has_hash(kind.value_type)
    number = is_a.is_boolean(kind) or is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind)
    time = is_a.is_temporal(kind) and kind.bit_width <= 64
    return bool(number or time or is_text(kind) or is_a.is_null(kind))


def _words(array: pa.Array) -> Array:
    """Each value of a fixed-width column as one 64-bit word."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return np.asarray(array.cast(pa.uint8())).astype("u8")
    if pa.types.is_floating(kind):
        with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
            values = np.asarray(array).astype("f8") + 0.0  # -0.0 + 0.0 is 0.0
        values[np.isnan(values)] = np.nan
        return values.view("u8")
    if pa.types.is_integer(kind):
        return np.asarray(array).astype("i8" if pa.types.is_signed_integer(kind) else "u8").view("u8")
    if pa.types.is_decimal(kind) or pa.types.is_nested(kind):
        return np.array([_xxh3(_as_text(value).encode()) for value in array.to_pylist()], "u8")
    wide = kind.bit_width == 64
    return np.asarray(array.view(pa.int64() if wide else pa.int32())).astype("i8").view("u8")


def _as_text(value: Any) -> str:
    """A decimal without the zeros at its end: 1.50 is 1.5 whatever the column's scale."""
    if isinstance(value, Decimal):
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return str(value)


def _hash_text(array: pa.Array) -> Array:
    if not len(array):
        return np.zeros(0, "u8")
    offsets = np.frombuffer(array.buffers()[1], "i8")[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"", "u1")[offsets[0] : offsets[-1]]
    return hash_ranges(data, offsets[:-1] - offsets[0], np.diff(offsets))


def hash_ranges(data: Array, starts: Array, lengths: Array) -> Array:
    """A hash of each range of bytes: of up to 64 bytes word by word over all ranges at once, of more by xxh3."""
    padded = np.zeros(len(data) + _SHORT, "u1")
    padded[: len(data)] = data
    words = np.ndarray(len(padded) - 7, "<u8", padded.data, strides=(1,))  # a word may start at any byte
    hashes: Array = combine(_OF_LENGTHS[np.minimum(lengths, _SHORT)], words[starts] & _masks(lengths))
    hashes[lengths == 0] = _OF_LENGTHS[0]
    longest = int(lengths.max(initial=0))
    for place in range(8, min(longest, _SHORT), 8):
        rows = np.flatnonzero(lengths > place)
        hashes[rows] = combine(hashes[rows], words[starts[rows] + place] & _masks(lengths[rows] - place))
    for row in np.flatnonzero(lengths > _SHORT) if longest > _SHORT else ():
        hashes[row] = _xxh3(data[starts[row] : starts[row] + lengths[row]].data)
    return hashes


def _masks(lengths: Array) -> Array:
    """Masks of the bytes that belong to a range with so many left, at most a word."""
    return _MASKS[np.minimum(lengths, 8)]


def _xxh3(data: bytes | memoryview) -> np.uint64:
    return np.uint64(xxhash.xxh3_64_intdigest(data))


def mix(words: Array) -> Array:
    """Splitmix64's finish: every input bit reaches every output bit."""
    with np.errstate(over="ignore"):
        words = words + _INCREMENT
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Array = words ^ (words >> np.uint64(31))
        return mixed


_OF_LENGTHS = mix(np.arange(_SHORT + 1, dtype="u8"))
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], "u8")
