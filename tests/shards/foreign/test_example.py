"""tf.train.Example by hand: the bytes that the protocol says, for any ids."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.shards.foreign.maxtext import encode_examples


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def plainly_encoded(row: list[int]) -> bytes:
    """One value after the other: the definition."""
    values = field(1, b"".join(map(varint, row))) if row else b""
    return field(1, field(1, field(1, b"text") + field(2, field(3, values))))


IDS = st.one_of(*[st.integers(0, 2**bits - 1) for bits in (7, 14, 16, 21, 28, 31)])


@given(st.lists(st.lists(IDS, max_size=70), max_size=8))
def test_rows_become_the_bytes_of_the_protocol(rows):
    values = np.array([value for row in rows for value in row], "i4")
    edges = np.cumsum([0, *map(len, rows)])
    assert list(encode_examples("text", values, edges)) == [plainly_encoded(row) for row in rows]


@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "i4", "u4", "i8"])
def test_the_type_in_which_ids_are_stored_does_not_matter(dtype):
    row = [0, 1, 100, 127]
    assert list(encode_examples("text", np.array(row, dtype), np.array([0, 4]))) == [plainly_encoded(row)]


@pytest.mark.parametrize("value", [127, 128, 2**14 - 1, 2**14, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**31 - 1])
def test_every_width_of_a_varint_begins_where_it_should(value):
    rows = [[value], [0, value, value], [0]]
    values, edges = np.array([value, 0, value, value, 0], "i8"), np.array([0, 1, 4, 5])
    assert list(encode_examples("text", values, edges)) == [plainly_encoded(row) for row in rows]
