"""Every sentence of docs/reference/tokens.md about events, blocks and rows, held against the plain encoder."""

from __future__ import annotations

import itertools
import math
import socket
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import InputError, IntegrityError
from penstock.loader.order.counter import below, draw, key, log_uniform, permute, segment_key
from penstock.loader.order.order import Draws
from penstock.loader.tokens.address import format_address, parse_address
from penstock.loader.tokens.binding import TokenOptions
from penstock.loader.tokens.counts import COUNTED
from penstock.loader.tokens.decode import decode
from penstock.loader.tokens.reference import encode_rows
from penstock.loader.tokens.vocabulary import PINGS, Vocabulary, make_vocabulary
from penstock.shards.columns import Column
from penstock.shards.schema import Schema, declared_type
from tests.shards.making import write_dataset

ROW_ARRAYS = [name + part for name in ("inputs", "targets") for part in ("", "_position", "_segmentation")]
PING_TYPES = {
    "src_addr": "string",
    "ip_version": "list<int8>",
    "dst_addr": "list<dictionary<string>>",
    "event_time": "list<timestamp[s]>",
    "rtt": "list<float64>",
}
LONG = 8000  # a one_key row of it takes up to 266 events, and holds any of the small records here


# Making records and rows of them.


def make_column(values: list[Any], word: str) -> pa.Array:
    kind = declared_type(word)
    if not (pa.types.is_list(kind) and pa.types.is_dictionary(kind.value_type)):
        return pa.array(values, kind)
    plain = pa.array(values, pa.list_(kind.value_type.value_type))
    inner = plain.values.dictionary_encode().cast(kind.value_type)
    return pa.ListArray.from_arrays(plain.offsets, inner, type=kind)


@dataclass
class Data:
    """Shards of records on disk, mapped."""

    schema: Schema
    shards: list[dict[str, Column]]


def make_data(shards: list[list[dict[str, Any]]], types: dict[str, str]) -> Data:
    batches = [
        pa.RecordBatch.from_arrays(
            [make_column([record[name] for record in records], word) for name, word in types.items()], list(types)
        )
        for records in shards
    ]
    with tempfile.TemporaryDirectory() as folder:  # what is mapped stays there when the name is gone
        write_dataset(Path(folder), {"train": [[batch] for batch in batches]})
        dataset = penstock.open(folder)
        return Data(dataset.schema, [dataset.columns(shard) for shard in range(len(shards))])


@dataclass
class Rows:
    arrays: dict[str, np.ndarray]
    counts: Counter
    used: list[int]
    tokens: list[list[int]] = field(default_factory=list)  # of each row, all length + 1 that were filled

    def __post_init__(self) -> None:
        for inputs, targets in zip(self.arrays["inputs"], self.arrays["targets"], strict=True):
            self.tokens.append([*inputs.tolist(), int(targets[-1])])


def encode(
    data: Data,
    draws: list[list[tuple[int, int]]],
    row_keys: list[int],
    vocabulary: Vocabulary = PINGS,
    fill: str = "one_key",
    length: int = LONG,
    augment: bool = True,
) -> Rows:
    arrays = {name: np.full((len(draws), length), -7, np.int32) for name in ROW_ARRAYS}
    counts, used = np.zeros(len(COUNTED), np.int64), np.full(len(draws), -7, np.int32)
    numbers = np.array(draws, np.int64)
    draws = Draws(numbers[..., 0].astype(np.int32), numbers[..., 1], np.array(row_keys, np.uint64))
    options = TokenOptions(vocabulary, length, fill, augment)
    encode_rows(data.shards, data.schema, options, draws, arrays, counts, used)
    return Rows(arrays, Counter({name: int(n) for name, n in zip(COUNTED, counts, strict=True) if n}), used.tolist())


def make_pings(*events: dict[str, Any], source: str | None = "10.0.0.1", types: dict[str, str] | None = None) -> Data:
    """One record of pings; each event says what is not usual about it."""
    usual = {"ip_version": 4, "dst_addr": "10.0.0.2", "event_time": 0, "rtt": 1.0}
    record = {name: [{**usual, **event}[name] for event in events] for name in usual}
    return make_data([[{"src_addr": source, **record}]], {**PING_TYPES, **(types or {})})


def row_key_of(mode: str, before: int = 0) -> int:
    """A row key under which segment 0 has that time mode, `before` being how many draws come before it."""
    modes = {"full": range(4), "partial": range(4, 7), "none": range(7, 10)}
    return next(k for k in itertools.count() if below(draw(segment_key(k, 0), before), 10) in modes[mode])


def take_apart(tokens: list[int], base: int = 11) -> list[dict[int, bytes]]:
    """Events as {marker: the bytes behind it}, in the order of their blocks. Padding is left out."""
    events: list[dict[int, bytes]] = []
    marker = 0
    for token in tokens:
        if token == 0:
            events.append({})
        elif token < base:
            marker = token
            assert marker not in events[-1]
            events[-1][marker] = b""
        else:
            events[-1][marker] += bytes([token - base])
    return [event for event in events if event]


def encode_one(
    data: Data, vocabulary: Vocabulary = PINGS, mode: str = "full"
) -> tuple[list[dict[int, bytes]], Counter]:
    """The events of the only record, taken apart, and what was counted besides events and segments."""
    rows = encode(data, [[(0, 0)]], [row_key_of(mode)], vocabulary)
    counts = Counter({name: n for name, n in rows.counts.items() if name not in ("events", "segments")})
    return take_apart(rows.tokens[0], vocabulary.byte_base), counts


def one_field(asked: Any, word: str, values: list[Any]) -> tuple[list[dict[int, bytes]], Counter]:
    """A record whose events have one column, encoded: markers are numbered from 1."""
    return encode_one(make_data([[{"a": values}]], {"a": f"list<{word}>"}), make_vocabulary({"a": asked}))


# Addresses, as text.


ADDRESSES = st.one_of(
    st.ip_addresses().map(str),
    st.ip_addresses(v=6).map(lambda address: address.exploded),
    st.ip_addresses(v=4).map(lambda address: f"::ffff:{address}"),
    st.text("0123456789abcdefABCDEFg:.", max_size=24),
    st.lists(st.sampled_from(["", "0", "1", "ffff", "00001", "255", "256", "1.2.3.4", "01.2.3.4"]), max_size=10).map(
        ":".join
    ),
    st.lists(st.sampled_from(["", "0", "00", "1", "255", "256", "1000", "-1", " 1"]), max_size=5).map(".".join),
    st.text(max_size=12),
)


def read_by_the_system(text: str) -> tuple[int, bytes]:
    for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
        try:
            return version, socket.inet_pton(family, text).ljust(16, b"\0")
        except (OSError, ValueError):
            continue
    return 0, bytes(16)


@given(ADDRESSES.filter(lambda text: "%" not in text))
def test_an_address_is_what_the_operating_system_reads(text):
    assert parse_address(text.encode()) == read_by_the_system(text)


@given(st.ip_addresses())
def test_an_address_and_its_text_are_one(address):
    family, packed = parse_address(str(address).encode())
    assert family == address.version
    assert format_address(packed[: 4 if family == 4 else 16]) == str(address)


@pytest.mark.parametrize("text", ["fe80::1%eth0", "FE80::0001%1", "fe80:0:0:0:0:0:0:1%a:b", "fe80::1%\xff"])
def test_a_zone_is_not_part_of_an_address(text):
    assert parse_address(text.encode("latin-1")) == parse_address(b"fe80::1")


@pytest.mark.parametrize(
    "text",
    ["", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.256", "1.2.3.4%eth0", " 1.2.3.4", "1.2.3.4\n", "1.2.3.4/8", "::1%"]
    + [
        "::1%a%b",
        ":::",
        "1::2::3",
        "12345::",
        "1:2:3:4:5:6:7",
        "1:2:3:4:5:6:7:8:9",
        "::1.2.3",
        "1.2.3.4::",
        "a",
        "NaN",
    ],
)
def test_nothing_else_is_an_address(text):
    assert parse_address(text.encode()) == (0, bytes(16))


def test_bytes_that_are_no_text_are_no_address():
    assert parse_address(b"\xff\xfe") == (0, bytes(16))


# The ip block.


LOOPBACK = bytes(15) + b"\1"
MAPPED = bytes(10) + b"\xff\xff\1\2\3\4"


@pytest.mark.parametrize(
    ("address", "version", "marker", "payload", "counted"),
    [
        ("1.2.3.4", 4, 3, b"\1\2\3\4", None),
        ("::1", 6, 4, LOOPBACK, None),
        ("fe80::1%eth0", 6, 4, b"\xfe\x80" + bytes(13) + b"\1", None),
        ("::ffff:1.2.3.4", 6, 4, MAPPED, None),
        ("::ffff:1.2.3.4", 4, 4, MAPPED, "addresses_of_other_version"),
        ("::1", 4, 4, LOOPBACK, "addresses_of_other_version"),
        ("1.2.3.4", 6, 3, b"\1\2\3\4", "addresses_of_other_version"),
        ("1.2.3.4", None, 3, b"\1\2\3\4", None),
        ("::1", None, 4, LOOPBACK, None),
        (None, 4, 3, bytes(4), "nulls"),
        (None, 6, 4, bytes(16), "nulls"),
        (None, None, 3, bytes(4), "nulls"),
        ("nonsense", 4, 3, bytes(4), "addresses_unreadable"),
        ("1.2.3.04", 6, 4, bytes(16), "addresses_unreadable"),
        ("", None, 3, bytes(4), "addresses_unreadable"),
    ],
)
def test_an_address_is_encoded_by_what_it_is(address, version, marker, payload, counted):
    (event,), counts = encode_one(make_pings({"dst_addr": address, "ip_version": version}, source=None))
    assert {each: event[each] for each in event if each in (3, 4)} == {marker: payload}
    assert counts == Counter(["nulls", *([counted] if counted else [])]), "the source is null"


def test_the_address_of_the_record_is_that_of_each_event():
    events, counts = encode_one(make_pings({"ip_version": 4}, {"ip_version": 6, "dst_addr": "::1"}, source="::1"))
    assert [event[2] for event in events] == [LOOPBACK, LOOPBACK]
    assert counts == {"addresses_of_other_version": 1}  # the source of the first event


def test_a_version_may_be_said_once_for_the_record():
    vocabulary = make_vocabulary({"to": {"ip": "version"}})
    data = make_data([[{"to": [None, "::1"], "version": 6}]], {"to": "list<string>", "version": "uint8"})
    assert encode_one(data, vocabulary) == ([{2: bytes(16)}, {2: LOOPBACK}], Counter(["nulls"]))


def test_pings_without_a_version_column_say_none():
    types = {name: word for name, word in PING_TYPES.items() if name != "ip_version"}
    (event,), counts = encode_one(make_data([[pings_of(1, source="::1")]], types))
    assert event[2] == LOOPBACK
    assert not counts


def test_without_a_column_for_it_no_version_is_said():
    events, counts = one_field("ip", "string", [None, "::1", "1.2.3.4"])
    assert events == [{1: bytes(4)}, {2: LOOPBACK}, {1: b"\1\2\3\4"}]
    assert counts == {"nulls": 1}


@pytest.mark.parametrize(
    "word", ["string", "binary", "large_string", "dictionary<string>", "dictionary<binary>", "dictionary<large_binary>"]
)
def test_text_gives_the_same_tokens_in_every_type(word):
    values = [None, "1.2.3.4", "::1", "1.2.3.4"]
    stored = [each if each is None or "string" in word else each.encode() for each in values]
    assert one_field("ip", word, stored)[0] == [{1: bytes(4)}, {1: b"\1\2\3\4"}, {2: LOOPBACK}, {1: b"\1\2\3\4"}]
    assert one_field("bytes", word, stored)[0] == [{2: b""}, {1: b"\x071.2.3.4"}, {1: b"\x03::1"}, {1: b"\x071.2.3.4"}]
    assert one_field({"category": ["::1"]}, word, stored)[0] == [{2: b""}, {2: b""}, {1: b""}, {2: b""}]


# The time block.


@pytest.mark.parametrize(
    ("times", "blocks"),
    [
        ([0], [(5, 0)]),
        ([1_704_110_400], [(5, 1_704_110_400)]),
        ([-1], [(5, -1)]),
        ([-(2**63)], [None]),  # no time, as numpy has it
        ([2**63 - 1], [(5, 2**63 - 1)]),
        ([100, 100], [(5, 100), (6, 0)]),
        ([100, 355], [(5, 100), (6, 255)]),
        ([100, 356], [(5, 100), (7, 256)]),
        ([0, 2**32 - 1], [(5, 0), (7, 2**32 - 1)]),
        ([0, 2**32], [(5, 0), (5, 2**32)]),
        ([0, 2**32, 2**32 + 1], [(5, 0), (5, 2**32), (6, 1)]),
        ([-(2**63) + 1, 2**63 - 1], [(5, -(2**63) + 1), (5, 2**63 - 1)]),
        ([2**63 - 1, -(2**63) + 1], [(5, 2**63 - 1), (6, 0)]),
        ([100, 50, 60], [(5, 100), (6, 0), (6, 10)]),
        ([100, None, 103], [(5, 100), None, (6, 3)]),
        ([None, 100, 103], [None, (5, 100), (6, 3)]),
        ([None, None], [None, None]),
    ],
)
def test_a_time_is_absolute_first_and_then_a_delta(times, blocks):
    events, _ = encode_one(make_pings(*({"event_time": time} for time in times)))
    sizes = {5: 8, 6: 1, 7: 4}
    found = [{marker: event[marker] for marker in event if marker in sizes} for event in events]
    assert found == [
        {} if block is None else {block[0]: block[1].to_bytes(sizes[block[0]], "big", signed=block[0] == 5)}
        for block in blocks
    ]


@pytest.mark.parametrize(
    ("times", "counted"),
    [
        ([100, 50, 60, 59], {"times_going_back": 2}),
        ([2**63 - 1, -(2**63) + 1], {"times_going_back": 1}),
        ([100, None, 100, -(2**63)], {"nulls": 2}),
        ([0, 0, 2**32, 2**63 - 1], {}),
    ],
)
def test_a_time_before_the_last_and_one_that_is_missing_are_counted(times, counted):
    assert one_field("time", "timestamp[s]", times)[1] == counted


def test_a_time_that_is_left_out_is_not_missed():
    data = make_data([[{"a": [None, 1, None]}]], {"a": "list<timestamp[s]>"})
    assert not encode_one(data, make_vocabulary({"a": "time"}), mode="none")[1]


@pytest.mark.parametrize(
    ("word", "second"),
    [("timestamp[s]", 1), ("timestamp[ms, UTC]", 10**3), ("timestamp[us, +05:30]", 10**6), ("timestamp[ns]", 10**9)],
)
def test_every_unit_gives_whole_seconds(word, second):
    assert one_field("time", word, [-second, 3 * second])[0] == [{1: b"\xff" * 8}, {2: b"\4"}]


def test_parts_of_seconds_are_rounded_down():
    ms = 10**6
    assert one_field("time", "timestamp[ns]", [1999 * ms])[0] == [{1: (1).to_bytes(8, "big")}]
    assert one_field("time", "timestamp[ns]", [-1])[0] == [{1: b"\xff" * 8}]
    # The difference is rounded, not the times: 1.1 s lie between the first two, 0.9 s between the next.
    assert one_field("time", "timestamp[ns]", [900 * ms, 2000 * ms, 2900 * ms])[0] == [
        {1: bytes(8)},
        {2: b"\1"},
        {2: b"\0"},
    ]
    assert one_field("time", "timestamp[ns]", [900 * ms, 1100 * ms])[0] == [{1: bytes(8)}, {2: b"\0"}]


def test_a_time_of_the_record_is_that_of_each_event():
    vocabulary = make_vocabulary({"at": "time", "port": {"int": 1}})
    data = make_data([[{"at": 77, "port": [1, 2]}]], {"at": "timestamp[s]", "port": "list<int8>"})
    events, _ = encode_one(data, vocabulary)
    assert events == [{1: (77).to_bytes(8, "big"), 4: b"\1"}, {2: b"\0", 4: b"\2"}]


# The float11 block.


def float11(exponent: int, mantissa: int) -> dict[int, bytes]:
    return {8: (exponent << 11 | mantissa).to_bytes(2, "big")}


@pytest.mark.parametrize(
    ("rtt", "block", "counted"),
    [
        (0.0, float11(0, 1), "values_too_small"),
        (-0.0, float11(0, 1), "values_too_small"),
        (5e-324, float11(0, 1), "values_too_small"),
        (0.0004, float11(0, 1), "values_too_small"),
        (0.000999, float11(0, 1), "values_too_small"),
        (0.001, float11(0, 1), None),
        (0.0019, float11(0, 1), None),
        (0.002, float11(0, 2), None),
        (2.047, float11(0, 2047), None),
        (2.0475, float11(0, 2047), None),
        (2.048, float11(1, 1024), None),
        (15.123, float11(3, 1890), None),
        (1e9, float11(29, 1862), None),
        (2047 * 2.0**31 / 1000, float11(31, 2047), None),
        (4_398_046_511.103, float11(31, 2047), None),
        (4_398_046_511.104, float11(31, 2047), "values_too_large"),
        (1e300, float11(31, 2047), "values_too_large"),
        (1e308, float11(31, 2047), "values_too_large"),
        (math.inf, float11(31, 2047), "values_too_large"),
        (-1.0, {10: b""}, "values_negative"),
        (-12.5, {10: b""}, "values_negative"),
        (-5e-324, {10: b""}, "values_negative"),
        (-math.inf, {10: b""}, "values_negative"),
        (math.nan, {10: b""}, "values_not_a_number"),
        (None, {10: b""}, "nulls"),
    ],
)
def test_an_rtt_has_five_bits_of_exponent_and_eleven_of_mantissa(rtt, block, counted):
    (event,), counts = encode_one(make_pings({"rtt": rtt}))
    assert {marker: event[marker] for marker in event if marker in (8, 10)} == block
    assert counts == Counter([counted] if counted else [])


@given(st.floats(0, 4.39e9))
def test_an_rtt_is_floored_to_its_mantissa(rtt):
    us = max(1, math.floor(1000 * rtt))
    exponent = max(0, us.bit_length() - 11)
    assert one_field("float11", "float64", [rtt])[0] == [{1: (exponent << 11 | us >> exponent).to_bytes(2, "big")}]


@pytest.mark.parametrize("word", ["float16", "float32", "int8", "int64", "uint16", "uint64"])
def test_every_type_of_number_can_be_a_float11(word):
    assert one_field("float11", word, [3, None])[0] == [{1: (1 << 11 | 1500).to_bytes(2, "big")}, {2: b""}]


def test_whole_numbers_are_multiplied_as_float64():
    largest = one_field("float11", "uint64", [2**64 - 1])[0]
    assert largest == one_field("float11", "float64", [2.0**64])[0] == [{1: b"\xff\xff"}]
    assert one_field("float11", "int64", [-1])[0] == [{2: b""}]


# The int, category and bytes blocks.


@pytest.mark.parametrize(
    ("width", "word", "values", "found", "out_of_range"),
    [
        (1, "int8", [-128, -1, 0, 127], [-128, -1, 0, 127], 0),
        (1, "uint8", [127, 128, 255], [127, 127, 127], 2),
        (1, "int64", [-129, 2**63 - 1, -(2**63)], [-128, 127, -128], 3),
        (2, "int32", [32767, 32768, -32768, -32769], [32767, 32767, -32768, -32768], 2),
        (4, "uint32", [2**31 - 1, 2**32 - 1], [2**31 - 1, 2**31 - 1], 1),
        (8, "int64", [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)], 0),
        (8, "uint64", [2**63 - 1, 2**63, 2**64 - 1], [2**63 - 1] * 3, 2),
        (1, "bool", [True, False], [1, 0], 0),
        (4, "date32", [19723], [19723], 0),
        (8, "duration[us]", [-5], [-5], 0),
        (8, "timestamp[ms, UTC]", [1_704_110_400_123], [1_704_110_400_123], 0),
    ],
)
def test_an_int_is_brought_to_what_its_bytes_hold(width, word, values, found, out_of_range):
    events, counts = one_field({"int": width}, word, values)
    assert events == [{1: each.to_bytes(width, "big", signed=True)} for each in found]
    assert counts["ints_out_of_range"] == out_of_range


def test_a_missing_int_has_a_marker_of_its_own():
    assert one_field({"int": 4}, "int32", [None, 5]) == ([{2: b""}, {1: b"\0\0\0\5"}], Counter(["nulls"]))


@pytest.mark.parametrize("word", ["string", "large_string", "dictionary<string>"])
def test_a_category_of_text_is_a_marker(word):
    events, counts = one_field({"category": ["tcp", "naïve"]}, word, ["naïve", "tcp", "udp", None, "", "tcp\0"])
    assert [list(event) for event in events] == [[2], [1], [3], [3], [3], [3]]
    assert counts == {"categories_other": 3, "nulls": 1}


@pytest.mark.parametrize("word", ["int8", "uint64", "int32"])
def test_a_category_of_numbers_is_a_marker(word):
    events, counts = one_field({"category": [17, 6]}, word, [6, 17, 1, None])
    assert [list(event) for event in events] == [[2], [1], [3], [3]]
    assert counts == {"categories_other": 1, "nulls": 1}


def test_bytes_have_their_length_before_them_and_are_cut():
    events, counts = one_field({"bytes": 3}, "binary", [b"", b"ab", b"abc", b"abcd", None])
    assert events == [{1: b"\0"}, {1: b"\2ab"}, {1: b"\3abc"}, {1: b"\3abc"}, {2: b""}]
    assert counts == {"bytes_cut": 1, "nulls": 1}


def test_text_is_cut_by_its_bytes():
    assert one_field({"bytes": 2}, "string", ["aé"])[0] == [{1: b"\2a\xc3"}]


# Which events a segment takes, and in which order.


def numbered(count: int) -> Data:
    """A record whose event i has time 10 * i and says its number i."""
    numbers = list(range(count))
    types = {"at": "list<timestamp[s]>", "number": "list<int32>"}
    return make_data([[{"at": [10 * i for i in numbers], "number": numbers}]], types)


NUMBERED = make_vocabulary({"at": "time", "number": {"int": 4}})


def taken(data: Data, row_key: int, length: int = LONG) -> list[tuple[int, bool]]:
    """(number, whether it has its time) of each event of a one_key row."""
    rows = encode(data, [[(0, 0)]], [row_key], NUMBERED, length=length)
    events = take_apart(rows.tokens[0], NUMBERED.byte_base)
    return [(int.from_bytes(event[4], "big"), sum(map(len, event.values())) > 4) for event in events]


def test_a_record_with_few_events_gives_all():
    data = numbered(9)
    for row_key in range(20):
        assert sorted(number for number, _ in taken(data, row_key, length=300)) == list(range(9))


def test_a_record_with_enough_events_gives_those_of_a_window():
    data, target = numbered(1000), 10
    for row_key in range(60):
        own = segment_key(row_key, 0)
        window = log_uniform(draw(own, 0), 1000)
        offset = below(draw(own, 1), 1000 - window + 1)
        expected = range(offset, offset + window)
        if window > target:
            expected = [offset + permute(i, window, draw(own, 2)) for i in range(target)]
        assert sorted(number for number, _ in taken(data, row_key, length=300)) == sorted(expected)


def test_as_many_events_as_the_target_are_drawn_from_already():
    row_key = next(k for k in itertools.count() if log_uniform(draw(segment_key(k, 0), 0), 10) == 3)
    assert len(taken(numbered(10), row_key, length=300)) == 3


def test_a_row_below_30_tokens_still_takes_an_event():
    assert len(taken(numbered(10), 0, length=20)) == 1


def test_with_full_time_events_are_in_order_and_timed():
    assert taken(numbered(12), row_key_of("full")) == [(i, True) for i in range(12)]


def test_without_time_events_come_as_the_permutation_says():
    row_key = row_key_of("none")
    own = draw(segment_key(row_key, 0), 1)
    assert taken(numbered(12), row_key) == [(permute(i, 12, own), False) for i in range(12)]


def test_with_partial_time_some_events_lose_it_and_are_put_between_the_others_by_coin():
    row_key = row_key_of("partial")
    own = segment_key(row_key, 0)
    lost = 12 * (2**32 + 8 * (draw(own, 1) >> 32)) // (10 * 2**32)
    without = [permute(i, 12, draw(own, 2)) for i in range(lost)]
    timed = [i for i in range(12) if i not in without]
    expected, coin = [], 3
    while without and timed:
        if draw(own, coin) >= 2**63:
            expected.append((without.pop(0), False))
        else:
            expected.append((timed.pop(0), True))
        coin += 1
    expected += [(i, False) for i in without] + [(i, True) for i in timed]
    assert taken(numbered(12), row_key) == expected


@given(st.integers(0, 2**64 - 1), st.integers(1, 60))
def test_events_with_time_are_in_time_order_and_a_tenth_to_nine_tenths_lose_it(row_key, count):
    found = taken(numbered(count), row_key)
    timed = [number for number, has_time in found if has_time]
    mode = below(draw(segment_key(row_key, 0), 0), 10)
    assert timed == sorted(timed)
    assert sorted(number for number, _ in found) == list(range(count))
    if mode < 4:
        assert len(timed) == count
    elif mode < 7:
        assert max(1, count // 10) <= count - len(timed) <= max(1, 9 * count // 10)
    else:
        assert not timed


def test_only_one_event_may_lose_its_time_in_partial():
    assert taken(numbered(1), row_key_of("partial")) == [(0, False)]


def test_time_is_full_for_four_tenths_partial_for_three_and_none_for_three():
    rows = encode(numbered(6), [[(0, 0)]] * 2000, list(range(2000)), NUMBERED, length=210)
    timed = Counter()
    for tokens in rows.tokens:
        with_time = sum(len(event) == 2 for event in take_apart(tokens, NUMBERED.byte_base))
        timed["none" if not with_time else "full" if with_time == 6 else "partial"] += 1
    assert all(abs(timed[mode] - 2000 * share) < 80 for mode, share in (("full", 0.4), ("partial", 0.3), ("none", 0.3)))


def test_the_blocks_of_each_event_are_ordered_by_a_draw_of_its_own():
    row_key = row_key_of("full")
    events = take_apart(encode(make_pings({}, {}, {}), [[(0, 0)]], [row_key]).tokens[0])
    for number, event in enumerate(events):
        blocks, rest = [1, 3, 5 if number == 0 else 6, 8], draw(segment_key(row_key, 0), 1 + number) >> 32
        for i in (3, 2, 1):
            j = rest % (i + 1)
            rest //= i + 1
            blocks[i], blocks[j] = blocks[j], blocks[i]
        assert list(event) == blocks


def test_every_order_of_blocks_comes_about_equally_often():
    rows = encode(make_pings({}), [[(0, 0)]] * 2400, list(range(2400)), length=60)
    orders = Counter(tuple(event) for tokens in rows.tokens for event in take_apart(tokens))
    timed, without = [{o: n for o, n in orders.items() if len(o) == size} for size in (4, 3)]
    assert (len(timed), len(without)) == (24, 6)
    assert all(15 < n < 75 for n in timed.values())
    assert all(180 < n < 320 for n in without.values())


# What a row becomes.

LONGEST_PING = 1 + 5 + 5 + 9 + 3  # of IPv4


def pings_of(count: int, start: int = 0, source: str | None = "10.0.0.1") -> dict[str, Any]:
    """A record of events without surprises; the destination says which event of which record it is."""
    return {
        "src_addr": source,
        "ip_version": [4] * count,
        "dst_addr": [f"172.16.{start}.{i}" for i in range(count)],
        "event_time": [1_700_000_000 + 60 * i for i in range(count)],
        "rtt": [1.0 + i for i in range(count)],
    }


def test_a_row_of_one_key_is_one_segment_and_padding():
    rows = encode(make_data([[pings_of(3)]], PING_TYPES), [[(0, 0)]], [row_key_of("none")], length=120)
    filled = 3 * 14
    assert rows.arrays["inputs_segmentation"].tolist() == [[1] * filled + [0] * (120 - filled)]
    assert rows.arrays["inputs_position"].tolist() == [[*range(filled)] + [0] * (120 - filled)]
    assert rows.arrays["targets_segmentation"].tolist() == [[1] * (filled - 1) + [0] * (121 - filled)]
    assert rows.arrays["targets_position"].tolist() == [[*range(1, filled)] + [0] * (121 - filled)]
    assert not rows.arrays["inputs"][0, filled:].any()
    assert rows.arrays["targets"][0, :-1].tolist() == rows.arrays["inputs"][0, 1:].tolist()
    assert rows.counts == {"events": 3, "segments": 1}
    assert rows.used == [1]


def test_a_row_of_one_key_is_cut_wherever_it_ends():
    data = make_data([[pings_of(1, source="::1")]], PING_TYPES)
    whole = encode(data, [[(0, 0)]], [5], length=59)
    for length in range(1, 59):  # all have a target of one event
        rows = encode(data, [[(0, 0)]], [5], length=length)
        assert rows.tokens[0] == whole.tokens[0][: length + 1]
        assert rows.counts == whole.counts


@pytest.mark.parametrize(("length", "begun"), [(150, 1), (201, 1), (202, 1), (203, 2), (404, 2), (405, 2), (406, 3)])
def test_an_event_is_counted_when_it_is_begun(length, begun):
    """Each takes 203 tokens, and a row one more than its length."""
    data = make_data([[{"text": ["x" * 201] * 4}]], {"text": "list<string>"})
    rows = encode(data, [[(0, 0)]], [0], make_vocabulary({"text": {"bytes": 200}}), length=length)
    assert rows.counts == {"events": begun, "segments": 1, "bytes_cut": begun}


def test_packed_segments_follow_each_other_with_whole_events():
    records = [pings_of(3, start) for start in range(40)]
    data = make_data([records], PING_TYPES)
    rows = encode(data, [[(0, j) for j in range(40)]] * 50, list(range(50)), fill="packed", length=255)
    for row, tokens in enumerate(rows.tokens):
        arrays = {name: array[row] for name, array in rows.arrays.items()}
        segments = arrays["inputs_segmentation"]
        last = int(segments.max())
        filled = int((segments > 0).sum())
        assert segments[:filled].tolist() == sorted(segments[:filled].tolist())
        assert set(segments[:filled].tolist()) == set(range(1, last + 1))
        for number in range(1, last + 1):
            own = np.flatnonzero(segments == number)
            assert arrays["inputs_position"][own].tolist() == list(range(len(own)))
            sources = {event[3][2] for event in take_apart([tokens[i] for i in own]) if len(event.get(3, b"")) == 4}
            assert len(sources) == 1  # the events of one record
        crossing = np.flatnonzero(segments[1:] != segments[:-1])
        assert not arrays["targets_segmentation"][crossing].any()
        assert not arrays["targets_position"][crossing].any()
        inside = np.flatnonzero(segments[1:] == segments[:-1])
        assert arrays["targets_segmentation"][inside].tolist() == segments[inside].tolist()
        assert np.array_equal(arrays["targets_position"][inside], arrays["inputs_position"][inside + 1])
        blocks = {1: 4, 3: 4, 5: 8, 6: 1, 7: 4, 8: 2}
        assert all(len(data) == blocks[marker] for event in take_apart(tokens) for marker, data in event.items())
        assert filled > 256 - LONGEST_PING
        assert rows.used[row] == last
    assert rows.counts["segments"] == sum(rows.used)


@pytest.mark.parametrize(("source", "typical"), [("10.0.0.1", 16), ("::1", 40), (None, 16), ("nonsense", 16)])
def test_a_packed_segment_is_sized_to_what_is_left(source, typical):
    """Room for 7 usual events asks for 8, and takes all 7; with one token less 7 are asked for, and a window drawn."""
    data = make_data([[pings_of(7, source=source)]], PING_TYPES)
    all_of_them = encode(data, [[(0, 0)]], [row_key_of("none")], fill="packed", length=7 * typical - 1)
    assert all_of_them.counts["events"] == 7
    row_key = row_key_of("none", before=2)
    window = log_uniform(draw(segment_key(row_key, 0), 0), 7)
    drawn = encode(data, [[(0, 0)]], [row_key], fill="packed", length=7 * typical - 2)
    assert drawn.counts["events"] == window < 7


def test_the_second_segment_is_sized_to_what_the_first_left():
    data = make_data([[pings_of(2), pings_of(200, 1)]], PING_TYPES)
    rows = encode(data, [[(0, 0), (0, 1)]] * 40, list(range(40)), fill="packed", length=639)
    for row_key, tokens in enumerate(rows.tokens):
        second = [event[3][3] for event in take_apart(tokens) if event[3][2] == 1]
        first_size = int((rows.arrays["inputs_segmentation"][row_key] == 1).sum())
        own = segment_key(row_key, 1)
        window = log_uniform(draw(own, 0), 200)
        offset = below(draw(own, 1), 200 - window + 1)
        places = range(window)
        if window > (target := (640 - first_size) // 16 + 1):
            places = [permute(i, window, draw(own, 2)) for i in range(target)]
        assert set(second) <= {offset + place for place in places}
        is_full = int((rows.arrays["inputs_segmentation"][row_key] > 0).sum()) > 640 - LONGEST_PING
        assert len(second) == len(places) or is_full


def test_an_event_that_does_not_fit_ends_the_row():
    """The second record's events are too long for what is left; the third's would fit, and is not asked."""
    types = {"text": "list<string>"}
    vocabulary = make_vocabulary({"text": {"bytes": 50}})
    data = make_data([[{"text": ["a" * 10]}, {"text": ["b" * 50]}, {"text": ["c"]}]], types)
    rows = encode(data, [[(0, 0), (0, 1), (0, 2)]], [1], vocabulary, fill="packed", length=39)
    assert rows.used == [1]
    assert rows.counts == {"events": 1, "segments": 1}
    assert decode(rows.arrays["inputs"][0], vocabulary) == [{"text": b"a" * 10}]


def test_what_an_event_that_does_not_fit_would_have_noted_is_not_counted():
    vocabulary = make_vocabulary({"text": {"bytes": 20}})
    data = make_data([[{"text": ["a"]}, {"text": ["b" * 30]}]], {"text": "list<string>"})
    rows = encode(data, [[(0, 0), (0, 1)]], [1], vocabulary, fill="packed", length=15)
    assert rows.counts == {"events": 1, "segments": 1}


def test_a_row_ends_when_less_is_left_than_the_smallest_event_takes():
    vocabulary = make_vocabulary({"number": {"int": 2}, "other": {"int": 2}})
    record = {"number": [1], "other": [2]}
    data = make_data([[record, {"number": [None], "other": [None]}]], {"number": "list<int16>", "other": "list<int16>"})
    for left, used in ((2, 1), (3, 2)):
        rows = encode(data, [[(0, 0), (0, 1)]], [1], vocabulary, fill="packed", length=7 + left - 1)
        assert rows.used == [used]


def test_a_record_without_events_gives_nothing_and_no_segment():
    data = make_data([[pings_of(0), pings_of(2, 1), pings_of(0), pings_of(2, 3), pings_of(0)]], PING_TYPES)
    rows = encode(data, [[(0, j) for j in range(5)]], [4], fill="packed", length=400)
    assert sorted(set(rows.arrays["inputs_segmentation"][0].tolist())) == [0, 1, 2]
    assert rows.used == [4]
    assert rows.counts == {"events": 4, "segments": 2}
    empty = encode(data, [[(0, 0)]], [4])
    assert empty.used == [0]
    assert not empty.counts
    assert not any(array.any() for array in empty.arrays.values())


def test_a_segment_has_the_key_of_its_draw_also_behind_an_empty_record():
    data = make_data([[pings_of(0), pings_of(5, 1)]], PING_TYPES)
    behind, first = (
        encode(data, [draws], [9], fill="packed", length=400).tokens[0]
        for draws in ([(0, 0), (0, 1)], [(0, 1), (0, 0)])
    )
    assert behind != first
    assert sorted(event[3] for event in take_apart(behind)) == sorted(event[3] for event in take_apart(first))


def test_a_shard_of_minus_one_ends_the_row():
    data = make_data([[pings_of(2), pings_of(2, 1)]], PING_TYPES)
    draws = [[(0, 0), (-1, 0), (0, 1)], [(-1, 0)] * 3, [(0, 0), (0, 1), (-1, 0)]]
    rows = encode(data, draws, [1, 2, 3], fill="packed", length=400)
    assert rows.used == [1, 0, 2]
    assert not any(array[1].any() for array in rows.arrays.values())
    one_key = encode(data, [[(-1, 0)], [(0, 1)]], [1, 2])
    assert one_key.used == [0, 1]
    assert not any(array[0].any() for array in one_key.arrays.values())


def test_one_key_takes_its_first_draw_alone():
    data = make_data([[pings_of(2), pings_of(2, 1)]], PING_TYPES)
    rows = encode(data, [[(0, 0), (0, 1)]], [1])
    assert rows.used == [1]
    assert rows.counts["events"] == 2


def test_counts_are_added_to():
    data = make_pings({"rtt": None}, {"dst_addr": "x"})
    rows = encode(data, [[(0, 0)], [(0, 0)]], [1, 2])
    assert rows.counts == {"events": 4, "segments": 2, "nulls": 2, "addresses_unreadable": 2}


def test_a_row_does_not_depend_on_the_rows_beside_it():
    data = make_data([[pings_of(9, start) for start in range(5)], [pings_of(9, 7)]], PING_TYPES)
    draws = [[(0, 4), (1, 0)], [(1, 0), (0, 2)], [(0, 1), (0, 1)]]
    together = encode(data, draws, [7, 8, 9], fill="packed", length=300)
    alone = [
        encode(data, [own], [k], fill="packed", length=300).tokens[0] for own, k in zip(draws, (7, 8, 9), strict=True)
    ]
    assert together.tokens == alone


def test_nulls_may_be_in_some_shards_alone():
    types = {"number": "list<int16>", "name": "dictionary<string>"}
    shards = [[{"number": [1, 2], "name": "a"}], [{"number": [None, 4], "name": None}]]
    data = make_data(shards, types)
    assert "number/values/valid" not in data.shards[0]
    rows = encode(
        data,
        [[(0, 0)], [(1, 0)]],
        [row_key_of("full")] * 2,
        vocabulary := make_vocabulary({"number": {"int": 2}, "name": "bytes"}),
    )
    first, second = (take_apart(tokens, vocabulary.byte_base) for tokens in rows.tokens)
    assert first == [{1: b"\0\1", 3: b"\1a"}, {1: b"\0\2", 3: b"\1a"}]
    assert second == [{2: b"", 4: b""}, {1: b"\0\4", 4: b""}]


def test_a_null_list_is_a_record_without_events():
    data = make_data([[{"a": None}, {"a": [1]}]], {"a": "list<int8>"})
    rows = encode(data, [[(0, 0), (0, 1)]], [1], make_vocabulary({"a": {"int": 1}}), fill="packed", length=50)
    assert rows.used == [2]
    assert rows.counts == {"events": 1, "segments": 1}


def test_lists_of_different_lengths_are_refused_with_their_lengths():
    data = make_data([[{"a": [1, 2], "b": [1]}]], {"a": "list<int8>", "b": "list<int8>"})
    with pytest.raises(InputError, match="a 2, b 1"):
        encode(data, [[(0, 0)]], [1], make_vocabulary({"a": {"int": 1}, "b": {"int": 1}}))


def test_a_damaged_block_is_found_when_it_is_touched():
    data = make_data([[pings_of(2)]], PING_TYPES)
    column = data.shards[0]["rtt/values"]
    changed = column.array.copy()
    changed[1] += 1
    data.shards[0]["rtt/values"] = Column(column.file, column.name, changed, column._hashes)
    with pytest.raises(IntegrityError, match="rtt/values"):
        encode(data, [[(0, 0)]], [1])


ONE_KEY_PINNED = [
    [0, 8, 55, 174, 2, 43, 12, 24, 195, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 12, 3, 183, 27, 12, 48]
    + [0, 2, 43, 12, 24, 195, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11, 12, 8, 55, 205, 3, 183, 27, 12, 49]
    + [0] * 9
]
PACKED_PINNED = [
    [0, 3, 183, 27, 11, 11, 1, 21, 11, 11, 12, 5, 11, 11, 11, 11, 112, 94, 252, 11, 8, 14, 243]
    + [0, 6, 71, 1, 21, 11, 11, 12, 3, 183, 27, 11, 12, 8, 18, 219]
    + [0, 1, 21, 11, 11, 12, 8, 24, 231, 3, 183, 27, 11, 13, 6, 71]
    + [0, 1, 21, 11, 11, 12, 3, 183, 27, 13, 12, 8, 18, 219, 5, 11, 11, 11, 11, 112, 94, 252, 71]
    + [0, 1, 21, 11, 11, 12, 3, 183, 27, 13, 11, 8, 14, 243]
    + [0] * 9
]


def test_rows_are_pinned():
    data = make_data([[pings_of(3), pings_of(50, 1, source="2001:db8::1"), pings_of(2, 2)]], PING_TYPES)
    one_key = encode(data, [[(0, 1)]], [key(0, 3, 0, 0, 0)], length=60)
    packed = encode(data, [[(0, 0), (0, 2), (0, 1)]], [key(0, 3, 0, 0, 1)], fill="packed", length=100)
    assert one_key.tokens == ONE_KEY_PINNED
    assert packed.tokens == PACKED_PINNED


# There and back.


def smallest_rtt(rtt: float | None) -> float | None:
    """What is left of an rtt in two bytes."""
    if rtt is None or not rtt >= 0:
        return None
    us = max(1, math.floor(min(1000 * rtt, 2.0**42 - 1)))
    exponent = max(0, us.bit_length() - 11)
    return (us >> exponent << exponent) / 1000


TEXT_ADDRESSES = st.none() | st.ip_addresses().map(str)
PING_EVENTS = st.lists(
    st.tuples(
        TEXT_ADDRESSES,
        st.sampled_from([4, 6, None]),
        st.none() | st.integers(-(2**34), 2**34),
        st.none() | st.floats(allow_nan=True),
    ),
    max_size=12,
)


@given(TEXT_ADDRESSES, PING_EVENTS, st.integers(0, 2**64 - 1))
def test_pings_come_back_from_their_tokens(source, events, row_key):
    events = sorted(events, key=lambda event: math.inf if event[2] is None else event[2])
    names = ("dst_addr", "ip_version", "event_time", "rtt")
    record = {name: [event[i] for event in events] for i, name in enumerate(names)}
    rows = encode(make_data([[{"src_addr": source, **record}]], PING_TYPES), [[(0, 0)]], [row_key], length=3000)
    found = decode(rows.arrays["inputs"][0], segmentation=rows.arrays["inputs_segmentation"][0])

    def expected(event: tuple, is_timed: bool) -> tuple:
        zeros = "::" if event[1] == 6 else "0.0.0.0"
        time = np.datetime64(event[2], "s") if is_timed and event[2] is not None else None
        return source or zeros, event[0] or zeros, time, smallest_rtt(event[3])

    mode = below(draw(segment_key(row_key, 0), 0), 10)
    back = [tuple(each[name] for name in ("source", "destination", "time", "rtt")) for each in found]
    if mode < 4:
        assert back == [expected(event, True) for event in events]
    else:
        assert Counter(each[:2] + each[3:] for each in back) == Counter(
            each[:2] + each[3:] for each in (expected(event, False) for event in events)
        )
        assert not Counter(each for each in back if each[2] is not None) - Counter(expected(e, True) for e in events)
    assert all("cut" not in each and each["segment"] == 1 for each in found)


OTHER_FIELDS = {
    "number": {"int": 4},
    "at": "time",
    "port": {"int": 2},
    "protocol": {"category": ["tcp", "udp"]},
    "payload": {"bytes": 5},
    "kind": {"category": [1, 2]},
    "host": "ip",
}
OTHER_TYPES = {
    "number": "list<int32>",
    "at": "list<timestamp[s, UTC]>",
    "port": "list<int64>",
    "protocol": "list<dictionary<string>>",
    "payload": "list<binary>",
    "kind": "uint8",
    "host": "dictionary<string>",
}
OTHER_EVENTS = st.fixed_dictionaries(
    {
        "at": st.integers(0, 2**33),
        "port": st.none() | st.integers(-(2**63), 2**63 - 1),
        "protocol": st.sampled_from(["tcp", "udp", "icmp", None]),
        "payload": st.none() | st.binary(max_size=8),
    }
)
OTHER_RECORDS = st.lists(
    st.tuples(st.lists(OTHER_EVENTS, max_size=20), st.sampled_from([1, 2, 3, None]), TEXT_ADDRESSES),
    min_size=1,
    max_size=6,
)


@given(OTHER_RECORDS, st.integers(0, 2**64 - 1), st.integers(20, 400))
def test_other_events_come_back_from_packed_rows(records, row_key, length):
    made, events = [], []
    for unsorted, kind, host in records:
        own = sorted(unsorted, key=lambda event: event["at"])
        made.append({name: [event[name] for event in own] for name in ("at", "port", "protocol", "payload")})
        made[-1] |= {"kind": kind, "host": host, "number": list(range(len(events), len(events) + len(own)))}
        events += [{**event, "kind": kind, "host": host} for event in own]
    vocabulary, draws = make_vocabulary(OTHER_FIELDS), [[(0, record) for record in range(len(made))]]
    rows = encode(make_data([made], OTHER_TYPES), draws, [row_key], vocabulary, fill="packed", length=length)

    found = decode(rows.arrays["inputs"][0], vocabulary, rows.arrays["inputs_segmentation"][0])
    assert rows.counts["events"] == len(found)
    whole = [each for each in found if "cut" not in each]  # the last token of the row may be a target alone
    assert len({each["number"] for each in whole}) == len(whole) >= len(found) - 1
    for each in whole:
        event = events[each["number"]]
        port, payload = event["port"], event["payload"]
        assert each["at"] in (None, np.datetime64(event["at"], "s"))
        assert each["port"] == (None if port is None else min(max(port, -32768), 32767))
        assert each["protocol"] == (event["protocol"] if event["protocol"] in ("tcp", "udp") else None)
        assert each["payload"] == (None if payload is None else payload[:5])
        assert each["kind"] == (event["kind"] if event["kind"] in (1, 2) else None)
        assert each["host"] == (event["host"] or "0.0.0.0")
