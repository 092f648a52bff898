"""A vocabulary gives every field markers of its own, and the 256 bytes follow them."""

from __future__ import annotations

import json

import pytest

from penstock.base.errors import ConfigError
from penstock.base.fingerprint import fingerprint
from penstock.loader.compiled import plan
from penstock.loader.tokens.binding import suggested_fields
from penstock.loader.tokens.kinds.category import Category
from penstock.loader.tokens.kinds.ip import Ip
from penstock.loader.tokens.vocabulary import KINDS, MOST_FIELDS, PINGS, START, make_vocabulary
from penstock.shards.schema import Field


def test_pings_have_the_267_tokens_of_the_seed():
    assert PINGS.size == 267
    assert {field.name: field.tokens for field in PINGS.fields} == {
        "source": (1, 2),
        "destination": (3, 4),
        "time": (5, 6, 7),
        "rtt": (8, 10),
    }
    assert PINGS.byte_base == 11


def test_the_smallest_ping_takes_12_tokens_and_a_usual_one_16_or_40():
    assert PINGS.smallest_event == 12
    assert [PINGS.typical_event(4), PINGS.typical_event(16)] == [16, 40]


def test_markers_are_numbered_in_the_order_of_the_fields():
    vocabulary = make_vocabulary(
        {
            "dst": {"ip": "version"},
            "at": "time",
            "delay": "float11",
            "port": {"int": 2},
            "protocol": {"category": ["tcp", "udp"]},
            "payload": "bytes",
        }
    )
    assert [field.tokens for field in vocabulary.fields] == [
        (1, 2),
        (3, 4, 5),
        (6, 7),
        (8, 9),
        (10, 11, 12),
        (13, 14),
    ]
    assert vocabulary.byte_base == 15
    assert vocabulary.size == 15 + 256
    assert [field.name for field in vocabulary.fields] == [field.column for field in vocabulary.fields]
    assert START not in [token for field in vocabulary.fields for token in field.tokens]


def test_options_go_to_their_fields():
    address, port, protocol, payload, short = make_vocabulary(
        {
            "dst": {"ip": "version"},
            "port": {"int": 2},
            "protocol": {"category": [6, 17]},
            "payload": "bytes",
            "short": {"bytes": 3},
        }
    ).fields
    assert address.kind == Ip(version="version")
    assert [field.kind.width for field in (port, payload, short)] == [2, 32, 3]
    assert protocol.kind == Category(values=(6, 17))


def test_kinds_with_a_number_of_tokens_of_their_own_come_in_order():
    vocabulary = make_vocabulary(
        {"level": {"bins": [0, 1.5, 2]}, "is_on": "boolean", "half": "float16", "single": "float32"}
    )
    assert [field.tokens for field in vocabulary.fields] == [(1, 2, 3), (4, 5, 6), (7, 8), (9, 10)]
    assert vocabulary.typical_event(4) == 1 + 1 + 1 + 3 + 5
    assert vocabulary.smallest_event == 1 + 4


def test_a_vocabulary_is_described_as_it_always_was():
    """Its digest is in every recipe: a state of an earlier version can be restored."""
    fields = PINGS.describe()["fields"]
    assert fields[0] == {
        "name": "source",
        "column": "src_addr",
        "kind": "ip",
        "tokens": (1, 2),
        "version": "ip_version",
        "values": (),
        "width": 0,
    }
    assert fingerprint(json.loads(json.dumps(PINGS.describe())))[:16] == "09ea93cd28a84df2"


def test_kinds_have_the_numbers_of_the_kernel():
    numbers = [getattr(plan, name.upper()) for name in KINDS]
    assert numbers == list(range(len(KINDS)))


def test_sizes_follow_the_kinds():
    vocabulary = make_vocabulary({"port": {"int": 2}, "protocol": {"category": ["tcp"]}, "payload": {"bytes": 255}})
    assert vocabulary.smallest_event == 1 + 1 + 1 + 1
    assert vocabulary.typical_event(4) == vocabulary.typical_event(16) == 1 + (1 + 2) + 1 + (2 + 8)
    assert make_vocabulary({"payload": {"bytes": 3}}).typical_event(4) == 1 + 2 + 3
    assert make_vocabulary({"at": "time"}).smallest_event == 1


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "names 0 columns"),
        ({f"c{i}": "ip" for i in range(MOST_FIELDS + 1)}, "names 13 columns"),
        ({"a": "tiem"}, "Did you mean 'time'?"),
        ({"a": {"ip": "v", "int": 1}}, "is not an encoding"),
        ({"a": "time", "b": "time"}, "two columns of kind time"),
        ({"a": {"ip": 4}}, "4 is not an option of ip"),
        ({"a": {"time": "s"}}, "'s' is not an option of time"),
        ({"a": {"float11": 2}}, "2 is not an option of float11"),
        ({"a": {"int": 3}}, "3 is not an option of int"),
        ({"a": {"bytes": 0}}, "0 is not an option of bytes"),
        ({"a": {"bytes": 256}}, "256 is not an option of bytes"),
        ({"a": "category"}, "category needs an option"),
        ({"a": {"category": []}}, "is not an option of category"),
        ({"a": {"category": "tcp"}}, "is not an option of category"),
        ({"a": {"category": ["tcp", "tcp"]}}, "is not an option of category"),
        ({"a": {"category": ["tcp", 6]}}, "is not an option of category"),
        ({"a": {"category": [True, False]}}, "is not an option of category"),
        ({"a": {"float16": 2}}, "2 is not an option of float16"),
        ({"a": {"float32": 4}}, "4 is not an option of float32"),
        ({"a": {"boolean": True}}, "True is not an option of boolean"),
        ({"a": "bins"}, "bins needs an option"),
        ({"a": {"bins": 16}}, "16 is not an option of bins"),
        ({"a": {"bins": [1.0]}}, "[1.0] is not an option of bins"),
        ({"a": {"bins": [2, 1]}}, "[2, 1] is not an option of bins"),
        ({"a": {"bins": [1, 1, 2]}}, "[1, 1, 2] is not an option of bins"),
        ({"a": {"bins": [0, float("nan")]}}, "[0, nan] is not an option of bins"),
        ({"a": {"bins": [0, float("inf")]}}, "[0, inf] is not an option of bins"),
        ({"a": {"bins": [0, 10**400]}}, "is not an option of bins"),
        ({"a": {"bins": [0, True]}}, "is not an option of bins"),
        ({"a": {"bins": [0, "1"]}}, "is not an option of bins"),
        ({"a": {"bins": "01"}}, "'01' is not an option of bins"),
        ({"a": ["ip"]}, "['ip'] is not an encoding"),
    ],
)
def test_what_cannot_be_encoded_is_refused_by_name(fields, said):
    with pytest.raises(ConfigError, match="load") as refused:
        make_vocabulary(fields)
    assert said in refused.value.what
    assert refused.value.next_step


def test_as_many_fields_as_their_order_can_tell_are_taken():
    assert len(make_vocabulary({f"c{i}": "ip" for i in range(MOST_FIELDS)}).fields) == MOST_FIELDS


def test_the_fields_to_start_with_follow_the_types_of_the_columns():
    words = {"who": "string", "at": "list<timestamp[s]>", "left": "list<timestamp[s]>", "degrees": "list<float32>"}
    words |= {"room": "list<dictionary<string>>", "days": "list<int64>", "again": "list<bool>"}
    schema = tuple(Field(name, word) for name, word in words.items())
    fields = suggested_fields(schema)
    assert fields == {"at": "time", "degrees": "float32", "room": {"bytes": 16}, "days": "int", "again": "boolean"}
    make_vocabulary(fields)
