"""The compiled kernels and the plain code give the same bytes, whatever the events, rows and orders are."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.base.errors import ConfigError
from penstock.loader.batches import shape_in_batch
from penstock.loader.compiled import address as compiled_address
from penstock.loader.compiled import order as compiled_order
from penstock.loader.kinds.arrays import Arrays
from penstock.loader.kinds.documents import Documents
from penstock.loader.kinds.rows import Rows
from penstock.loader.order.order import Draws, Order, Stream, contexts_of
from penstock.loader.tables import Made, address
from penstock.loader.tokens.address import parse_address
from penstock.loader.tokens.binding import TokenOptions
from penstock.loader.tokens.counts import COUNTED
from penstock.loader.tokens.encoder import EventEncoder
from penstock.loader.tokens.reference import encode_rows
from penstock.loader.tokens.vocabulary import PINGS, Vocabulary, make_vocabulary
from tests.loader.making import TOKEN_NAMES
from tests.loader.tokens.test_reference import ADDRESSES, PING_TYPES, Data, make_data

FILLS = st.sampled_from(["packed", "one_key"])
ROOM = 1 << 20  # for parsed addresses and categories
LEFT_OVER = -7  # in the arrays before they are filled: nothing of it may stay


@dataclass
class Filled:
    arrays: dict[str, np.ndarray]
    counts: list[int]
    used: list[int]


def blank(rows: int, length: int) -> dict[str, np.ndarray]:
    return {name: np.full((rows, length), LEFT_OVER, np.int32) for name in TOKEN_NAMES}


def by_reference(data: Data, draws: Draws, vocabulary: Vocabulary, fill: str, augment: bool, length: int) -> Filled:
    rows = len(draws.keys)
    filled = Filled(blank(rows, length), [], [])
    counts, used = np.zeros(len(COUNTED), "i8"), np.full(rows, LEFT_OVER, "i4")
    options = TokenOptions(vocabulary, length, fill, augment)
    encode_rows(data.shards, data.schema, options, draws, filled.arrays, counts, used)
    return replace(filled, counts=counts.tolist(), used=used.tolist())


def by_kernel(
    data: Data, draws: Draws, vocabulary: Vocabulary, fill: str, augment: bool, length: int, room: int
) -> Filled:
    encoding = TokenOptions(vocabulary, length, fill, augment).bind(data.schema, "a test")
    encoder = EventEncoder(data.shards, data.schema, encoding)
    encoder.hold(room)
    filled = Filled(blank(len(draws.keys), length), [], [])
    used = encoder.encode(draws, filled.arrays, made := Made())
    return replace(filled, counts=list(made.counts.values()), used=used.tolist())


def assert_equal(data: Data, draws: Draws, vocabulary: Vocabulary, fill: str, length: int) -> None:
    vocabulary = (
        TokenOptions(vocabulary, 1, "packed", False).bind(data.schema, "a test").vocabulary
    )  # with every width decided
    for augment in (True, False):
        expected = by_reference(data, draws, vocabulary, fill, augment, length)
        for room in (0, ROOM):
            found = by_kernel(data, draws, vocabulary, fill, augment, length, room)
            for name in TOKEN_NAMES:
                told = f"{name}, room={room}, augment={augment}"
                np.testing.assert_array_equal(found.arrays[name], expected.arrays[name], err_msg=told)
            assert found.counts == expected.counts
            assert found.used == expected.used


@st.composite
def draws_of(draw: Any, shards: list[list[Any]], fill: str) -> Draws:
    """Rows of a few draws each; a draw of -1 ends its row."""
    places = [(shard, record) for shard, records in enumerate(shards) for record in range(len(records))]
    rows, width = draw(st.integers(1, 4)), 1 if fill == "one_key" else draw(st.integers(1, 5))
    chosen = [[draw(st.sampled_from([*places, (-1, 0)])) for _ in range(width)] for _ in range(rows)]
    numbers = np.array(chosen, "i8").reshape(rows, width, 2)
    keys = np.array(draw(st.lists(st.integers(0, 2**64 - 1), min_size=rows, max_size=rows)), "u8")
    return Draws(numbers[..., 0].astype("i4"), np.ascontiguousarray(numbers[..., 1]), keys)


# Few different texts in a test, as in a user's data, so that dictionaries have codes that repeat.
TEXTS = st.none() | st.sampled_from(["10.0.0.1", "::1", "fe80::1%eth0", "1.2.3", "", "naïve", "\U0001f600"]) | ADDRESSES
RTTS = st.none() | st.floats(width=32) | st.floats(-1, 5000, width=32) | st.sampled_from([0.0, -0.0, 2.047, 2.048])
INT64 = st.integers(-(2**63), 2**63 - 1)
LIMITS = {"s": 2**40, "ms": 2**50, "us": 2**62, "ns": 2**63 - 1}


def times(unit: str) -> st.SearchStrategy[int | None]:
    """Near each other, so that there are short deltas, and anywhere; not in order."""
    near = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    limit = LIMITS[unit]
    return st.none() | st.integers(0, min(limit, 600 * near)) | st.integers(-limit, limit)


def lengths() -> st.SearchStrategy[int]:
    return st.sampled_from([0, 1, 1, 2, 3, 7]) | st.integers(0, 400)


@st.composite
def records_of(draw: Any, events: dict[str, st.SearchStrategy[Any]], own: dict[str, st.SearchStrategy[Any]]) -> Any:
    """Shards of records: `events` are lists, `own` values of the record. A long list repeats a few generated values."""
    shards = []
    for _ in range(draw(st.integers(1, 3))):
        records = []
        for _ in range(draw(st.integers(1, 4))):
            count = draw(lengths())
            record = {name: draw(values) for name, values in own.items()}
            for name, values in events.items():
                few = draw(st.lists(values, min_size=1, max_size=9))
                record[name] = [few[(i * i + i) % len(few)] for i in range(count)]
            records.append(record)
        shards.append(records)
    return shards


@st.composite
def pings(draw: Any) -> tuple[Data, Draws, str]:
    unit = draw(st.sampled_from(list(LIMITS)))
    events = {"ip_version": st.sampled_from([4, 6, None, 5]), "dst_addr": TEXTS, "event_time": times(unit), "rtt": RTTS}
    shards = draw(records_of(events, {"src_addr": TEXTS}))
    types = {
        **PING_TYPES,
        "event_time": f"list<timestamp[{unit}]>",
        "rtt": draw(st.sampled_from(["list<float64>", "list<float32>"])),
        "src_addr": draw(st.sampled_from(["string", "dictionary<string>"])),
    }
    fill = draw(FILLS)
    return make_data(shards, types), draw(draws_of(shards, fill)), fill


@pytest.mark.proof
@given(pings(), st.integers(1, 300))
def test_pings_are_encoded_alike(made, length):
    data, draws, fill = made
    assert_equal(data, draws, PINGS, fill, length)


OTHER_FIELDS = {
    "at": "time",
    "whole": "int",
    "narrow": {"int": 1},
    "huge": "int",
    "proto": {"category": ["tcp", "naïve", ""]},
    "flags": {"category": [1, 0, -5, 2**40]},
    "payload": {"bytes": 5},
    "name": {"bytes": 255},
    "delay": "float11",
    "host": {"ip": "version"},
    "kind": {"category": ["a", "b"]},
    "count": "float11",
    "half": "float16",
    "single": "float32",
    "is_on": "boolean",
    "level": {"bins": [-5.5, 0.0, 1e-3, 2.0, 2.0**70]},
    "rank": {"bins": [-3, 7, 7]},
    "share": "float16",
    "total": {"bins": [0.0, 2.0**63, 2.0**64]},
}
OTHER_TYPES = {
    "at": "list<timestamp[us, UTC]>",
    "whole": "list<int32>",
    "narrow": "list<int64>",
    "huge": "list<uint64>",
    "proto": "list<dictionary<string>>",
    "flags": "list<int64>",
    "payload": "list<binary>",
    "name": "list<string>",
    "delay": "list<float16>",
    "host": "list<string>",
    "version": "list<int16>",
    "kind": "string",
    "count": "uint64",
    "half": "list<float64>",
    "single": "list<float64>",
    "is_on": "list<bool>",
    "level": "list<float32>",
    "rank": "list<int64>",
    "share": "float16",
    "total": "uint64",
}
REALS = st.none() | st.floats() | st.floats(width=16) | st.floats(width=32) | st.floats(-1e5, 1e5)
WORDS = st.sampled_from(["tcp", "udp", "naïve", "", "a", "b", "x" * 300])
OTHER_EVENTS = {
    "at": times("us"),
    "whole": st.none() | st.integers(-(2**31), 2**31 - 1),
    "narrow": st.none() | INT64 | st.integers(-129, 128),
    "huge": st.none() | st.sampled_from([0, 2**63 - 1, 2**63, 2**64 - 1]),
    "proto": st.none() | WORDS,
    "flags": st.none() | st.sampled_from([0, 1, -5, 2**40, 2]) | INT64,
    "payload": st.none() | st.binary(max_size=9),
    "name": st.none() | st.text(max_size=20) | WORDS,
    "delay": st.none() | st.floats(width=16),
    "host": TEXTS,
    "version": st.sampled_from([4, 6, None]),
    "half": REALS,
    "single": REALS,
    "is_on": st.sampled_from([True, False, None]),
    "level": st.none() | st.floats(width=32) | st.sampled_from([-5.5, 0.0, -0.0, 2.0]),
    "rank": st.none() | INT64 | st.integers(-5, 9),
}
OTHER_OWN = {
    "kind": st.none() | WORDS,
    "count": st.none() | st.sampled_from([0, 3, 2**63, 2**64 - 1]),
    "share": st.none() | st.floats(width=16),
    "total": st.none() | st.integers(0, 2**64 - 1) | st.sampled_from([2**63 - 1, 2**63 + 1025, 2**64 - 1]),
}


@st.composite
def others(draw: Any) -> tuple[Data, Draws, Vocabulary, str]:
    """Some of the fields, in any order, and the columns that they are read from."""
    chosen = draw(st.lists(st.sampled_from(list(OTHER_FIELDS)), min_size=1, max_size=6, unique=True))
    if all(name in OTHER_OWN for name in chosen):
        chosen.append("whole")  # one list at least, or there are no events
    columns = [*chosen, *(["version"] if "host" in chosen else [])]
    events = {name: OTHER_EVENTS[name] for name in columns if name in OTHER_EVENTS}
    shards = draw(records_of(events, {name: OTHER_OWN[name] for name in columns if name in OTHER_OWN}))
    vocabulary, fill = make_vocabulary({name: OTHER_FIELDS[name] for name in chosen}), draw(FILLS)
    data = make_data(shards, {name: OTHER_TYPES[name] for name in columns})
    return data, draw(draws_of(shards, fill)), vocabulary, fill


@pytest.mark.proof
@given(others(), st.integers(1, 300))
def test_other_events_are_encoded_alike(made, length):
    data, draws, vocabulary, fill = made
    assert_equal(data, draws, vocabulary, fill, length)


@pytest.mark.proof
@pytest.mark.parametrize("fill", ["packed", "one_key"])
@pytest.mark.parametrize("length", [4096, 9000])
def test_long_rows_of_long_records_are_encoded_alike(fill, length):
    rng = np.random.default_rng(3)
    record = {
        "src_addr": "2001:db8::1",
        "ip_version": [6] * 20_000,
        "dst_addr": [f"10.0.0.{i}" for i in rng.integers(0, 9, 20_000)],
        "event_time": sorted(rng.integers(0, 10**6, 20_000).tolist()),
        "rtt": rng.gamma(2, 20, 20_000).tolist(),
    }
    data = make_data([[record, {**record, "src_addr": "10.0.0.1"}]], PING_TYPES)
    records = np.tile(np.arange(2, dtype="i8"), (6, 20))[:, : 1 if fill == "one_key" else None].copy()
    draws = Draws(np.zeros(records.shape, "i4"), records, np.arange(6, dtype="u8"))
    assert_equal(data, draws, PINGS, fill, length)


@pytest.mark.parametrize("values", [[7, 2**63], [2**64 - 1, 2**63 - 1, 0]])
def test_categories_beyond_int64_are_told_apart(values):
    data = make_data([[{"a": [2**64 - 1, 7, 2**63, 2**63 - 1]}]], {"a": "list<uint64>"})
    draws = Draws(np.zeros((8, 1), "i4"), np.zeros((8, 1), "i8"), np.arange(8, dtype="u8"))
    assert_equal(data, draws, make_vocabulary({"a": {"category": values}}), "packed", 20)


def test_a_version_said_once_for_the_record_is_that_of_all_its_addresses():
    records = [{"host": [None, "::1", "1.2.3.4"], "version": version} for version in (4, 6, None)]
    data = make_data([records], {"host": "list<string>", "version": "int16"})
    draws = Draws(np.zeros((3, 1), "i4"), np.arange(3, dtype="i8").reshape(3, 1), np.arange(3, dtype="u8"))
    assert_equal(data, draws, make_vocabulary({"host": {"ip": "version"}}), "packed", 100)


def test_a_time_that_numpy_calls_none_is_encoded_alike():
    data = make_data([[{"at": [-(2**63), 5, -(2**63), 7]}]], {"at": "list<timestamp[ns]>"})
    draws = Draws(np.zeros((20, 1), "i4"), np.zeros((20, 1), "i8"), np.arange(20, dtype="u8"))
    assert_equal(data, draws, make_vocabulary({"at": "time"}), "packed", 60)


def test_a_category_that_a_column_cannot_hold_is_refused():
    data = make_data([[{"a": [7]}]], {"a": "list<uint64>"})
    with pytest.raises(ConfigError, match="cannot hold the category -1"):
        TokenOptions(make_vocabulary({"a": {"category": [7, -1]}}), 1, "packed", False).bind(data.schema, "a test")


# Addresses.


def parse_compiled(texts: list[bytes]) -> list[tuple[int, bytes]]:
    flat = np.frombuffer(b"".join(texts) + b"\0", "u1")
    offsets = np.cumsum([0, *map(len, texts)], dtype="i8")
    entries = np.full((len(texts), 17), 255, "u1")
    compiled_address.parse_texts(address(flat), address(offsets), len(texts), address(entries))
    return [(int(entry[0]), entry[1:].tobytes() if entry[0] else bytes(16)) for entry in entries]


ZONED = st.builds("{}%{}".format, ADDRESSES, st.text(max_size=3))
CHANGED = st.builds(
    lambda text, place, other: text[:place] + other + text[place + 1 :],
    st.ip_addresses(v=6).map(str) | st.ip_addresses(v=4).map(str) | st.ip_addresses(v=4).map("1:2::{}".format),
    st.integers(0, 20),
    st.sampled_from(["", ":", "::", ".", "0", "g", "%", "%a", "1.2.3.4"]),
)


@given(st.lists(ADDRESSES | ZONED | CHANGED, min_size=1, max_size=20))
@example(
    ["1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8", "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:7:1.2.3.4", "::1.2.3.4", "1::", ":1"]
)
def test_addresses_are_parsed_alike(texts):
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    assert parse_compiled(encoded) == [parse_address(text) for text in encoded]


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=20))
def test_bytes_that_are_no_text_are_parsed_alike(texts):
    assert parse_compiled(texts) == [parse_address(text) for text in texts]


# Orders.


@st.composite
def orders(draw: Any) -> Order:
    streams = []
    for _ in range(draw(st.integers(1, 3))):
        shards = draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
        shards[0] += 1
        if draw(st.booleans()):
            streams.append(Stream(tuple(shards), draws=draw(st.integers(1, sum(shards)))))
        else:
            events = draw(st.lists(st.integers(0, 900), min_size=sum(shards), max_size=sum(shards)))
            streams.append(Stream(tuple(shards), contexts=contexts_of(np.array(events))))
    shares = tuple(draw(st.integers(1, 7)) for _ in streams) if len(streams) > 1 else (1,)
    seed, shuffle = draw(st.integers(0, 2**64 - 1)), draw(st.booleans())
    return Order(tuple(streams), shares, seed, shuffle, draw(st.none() | st.integers(1, 3)))


@given(orders(), st.integers(0, 200) | st.integers(0, 2**40), st.integers(1, 20))
def test_orders_are_computed_alike(order, first, count):
    expected, found = order.draw(first, count), compiled_order.draw(compiled_order.make_table(order), first, count)
    for name in ("shards", "records", "keys"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def test_orders_of_many_records_are_computed_alike():
    contexts = contexts_of(np.random.default_rng(1).integers(0, 900, 100_000))
    order = Order((Stream((30_000, 1, 69_999), contexts=contexts),), (1,), seed=5)
    found = compiled_order.draw(compiled_order.make_table(order), 10, 50)
    np.testing.assert_array_equal(found.records, order.draw(10, 50).records)


# Rows of tokens, and arrays.


def plain_and_compiled(kind: Any, draws: Draws, monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, Any], Made]]:
    filled = []
    for plain in ("1", "0"):
        monkeypatch.setenv("PENSTOCK_PLAIN", plain)
        out = {
            name: np.frombuffer(b"\xa5" * 10**6, array[1])[: int(np.prod(shape))].reshape(shape).copy()
            for name, array in kind.layout.items()
            for shape in [shape_in_batch(array, len(draws.keys))]
        }
        made = kind.fill(draws, out)
        filled.append((out, made))
    return filled


def assert_filled_alike(kind: Any, draws: Draws, monkeypatch: pytest.MonkeyPatch) -> None:
    (plain, made), (compiled, also) = plain_and_compiled(kind, draws, monkeypatch)
    for name, array in plain.items():
        assert array.tobytes() == compiled[name].tobytes(), name
    for name in ("rows", "tokens", "room", "draws", "tokens_truncated"):
        assert getattr(made, name) == getattr(also, name), name


def single_draws(places: list[tuple[int, int]]) -> Draws:
    numbers = np.array(places, "i8")
    return Draws(numbers[:, :1].astype("i4"), np.ascontiguousarray(numbers[:, 1:]), np.zeros(len(places), "u8"))


DOCUMENTS = st.lists(st.integers(-3, 40), max_size=6)  # in no order, beyond the row, twice: 0 is always a start
TOKEN_ROWS = st.lists(st.tuples(st.lists(st.integers(0, 127), max_size=30), DOCUMENTS), min_size=1, max_size=5)
TOKEN_TYPES = ["int8", "uint8", "int16", "uint16", "int32"]
START_TYPES = ["list<int8>", "list<int16>", "large_list<int32>", "list<int64>"]


@given(TOKEN_ROWS, st.integers(1, 40), st.sampled_from(TOKEN_TYPES), st.sampled_from([None, *START_TYPES]))
def test_token_rows_are_filled_alike(rows, length, word, documents_word):
    records = [{"tokens": tokens, "documents": documents} for tokens, documents in rows]
    types = {"tokens": f"list<{word}>"} | ({"documents": documents_word} if documents_word else {})
    data = make_data([records, records[::-1]], types)
    kind = Rows([data.shards], data.schema, length, overflow="truncate")
    places = [(shard, record) for shard in range(2) for record in range(len(records))]
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert_filled_alike(kind, single_draws([*places, (-1, 0)]), monkeypatch)
        assert_filled_alike(Documents(kind, most=7), single_draws([(-1, 0), *places, (-1, 0)]), monkeypatch)


@given(
    st.integers(1, 12), st.integers(1, 12), st.lists(DOCUMENTS, min_size=1, max_size=4), st.sampled_from(TOKEN_TYPES)
)
def test_token_rows_of_fixed_size_are_filled_alike(width, length, documents, word):
    records = [{"tokens": list(range(i, i + width)), "documents": each} for i, each in enumerate(documents)]
    data = make_data([records], {"tokens": f"fixed_size_list<{word}>[{width}]", "documents": "list<int32>"})
    kind = Rows([data.shards], data.schema, min(length, width), overflow="truncate")
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert_filled_alike(kind, single_draws([(0, i) for i in range(len(records))] + [(-1, 0)]), monkeypatch)


ARRAY_TYPES = [*TOKEN_TYPES, "uint32", "int64", "uint64", "float16", "float32", "float64", "bool"]


@given(st.lists(st.sampled_from(ARRAY_TYPES), min_size=1, max_size=5), st.integers(1, 20), st.data())
def test_arrays_are_filled_alike(words, rows, data):
    """Bit by bit: NaNs have their payloads, -0.0 its sign."""
    columns = {}
    for i, word in enumerate(words):
        width = data.draw(st.integers(0, 5))  # 0: a number a record
        kind = pa.bool_() if word == "bool" else pa.type_for_alias(word)
        bits = data.draw(st.binary(min_size=8 * rows * 5, max_size=8 * rows * 5))
        count = rows * max(1, width)
        flat = pa.array([byte & 1 == 1 for byte in bits[:count]]) if word == "bool" else None
        flat = flat or pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bits)])
        columns[f"c{i}"] = pa.FixedSizeListArray.from_arrays(flat, width) if width else flat
    loaded = write_columns(columns)
    kind = Arrays([loaded.shards], loaded.schema, None)
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert_filled_alike(kind, single_draws([*((0, i) for i in range(rows)), (-1, 0), (0, 0)]), monkeypatch)


def write_columns(columns: dict[str, pa.Array]) -> Data:
    import tempfile
    from pathlib import Path

    import penstock
    from tests.shards.making import write_dataset

    with tempfile.TemporaryDirectory() as folder:
        write_dataset(Path(folder), {"train": [[pa.RecordBatch.from_arrays(list(columns.values()), list(columns))]]})
        dataset = penstock.open(folder)
        return Data(dataset.schema, [dataset.columns(0)])


def test_rows_larger_than_a_block_are_filled_alike(monkeypatch):
    rng = np.random.default_rng(2)
    width = 70_000
    flat = pa.array(rng.integers(0, 2**16, 3 * width).astype("u2"))
    data = write_columns({"tokens": pa.FixedSizeListArray.from_arrays(flat, width)})
    assert_filled_alike(Rows([data.shards], data.schema, None), single_draws([(0, 2), (0, 0), (0, 1)]), monkeypatch)
    assert_filled_alike(Arrays([data.shards], data.schema, None), single_draws([(0, 2), (0, 0)]), monkeypatch)
    assert all(column.checked.all() for column in data.shards[0].values())


@pytest.mark.proof
def test_half_precision_is_read_bit_by_bit():
    """Every half there is, as a float11: the kernel has no such type of its own."""
    every = [struct.unpack("<e", struct.pack("<H", bits))[0] for bits in range(2**16)]
    data = make_data([[{"a": every[i : i + 256]} for i in range(0, 2**16, 256)]], {"a": "list<float16>"})
    records = np.arange(256, dtype="i8").reshape(256, 1)
    draws = Draws(np.zeros((256, 1), "i4"), records, np.zeros(256, "u8"))
    assert_equal(data, draws, make_vocabulary({"a": "float11"}), "one_key", 8000)
