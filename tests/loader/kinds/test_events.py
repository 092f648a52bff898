"""Events as rows: how many records a row draws, how full it is, and what is noted on the way."""

from __future__ import annotations

import re
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import ConfigError
from penstock.base.memory import make_budget
from penstock.loader.kinds.events import Events
from penstock.loader.kinds.old_records import OldEvents
from penstock.loader.kinds.sizing import sizing_draws
from penstock.loader.order.counter import SIZING, key, permute
from penstock.loader.order.order import Draws, Fill
from penstock.loader.tokens.binding import Encoding, TokenOptions
from penstock.loader.tokens.counts import COUNTED
from penstock.loader.tokens.encoder import EventEncoder
from penstock.loader.tokens.reference import encode_rows
from penstock.loader.tokens.vocabulary import PINGS, Vocabulary, make_vocabulary
from penstock.shards.dataset import ArrayRecordDataset
from tests.loader.making import TOKEN_NAMES, Datasets
from tests.loader.tokens.test_reference import PING_TYPES, Data, make_data, make_pings, pings_of
from tests.shards.foreign.records import foreign, write_records

DEFINITION = Path(__file__).parents[3] / "docs" / "reference" / "tokens.md"
NUMBERS = make_vocabulary({"a": {"int": 2}})
NO_LIMIT = make_budget("100%")


def bound(vocabulary: Vocabulary, data: Data, length: int = 60, fill: Fill = "packed") -> Encoding:
    return TokenOptions(vocabulary, length, fill, vocabulary == PINGS).bind(data.schema, "")


def draws_by_definition(data: Data, vocabulary, length: int, augment: bool = False) -> int:
    """The last paragraph of docs/reference/tokens.md, word for word, in plain Python."""
    counts = [
        len(next(column for name, column in shard.items() if name.endswith("/offsets"))) - 1 for shard in data.shards
    ]
    places = [(shard, record) for shard, count in enumerate(counts) for record in range(count)]
    total, most = len(places), min(len(places), 1024)
    order = key(0, SIZING, 0)
    draws = [[places[permute((row * most + j) % total, total, order)] for j in range(most)] for row in range(128)]
    numbers = np.array(draws, "i8")
    keys = np.array([key(0, SIZING, 0, row) for row in range(128)], "u8")
    out = {name: np.zeros((128, length), "i4") for name in TOKEN_NAMES}
    used = np.zeros(128, "i4")
    shards, records = numbers[..., 0].astype("i4"), numbers[..., 1]
    noted = np.zeros(len(COUNTED), "i8")
    options = TokenOptions(vocabulary, length, "packed", augment)
    encode_rows(data.shards, data.schema, options, Draws(shards, records, keys), out, noted, used)
    (rank,) = re.findall(r"S is the (\d+)th smallest", DEFINITION.read_text())
    return int(np.sort(used)[int(rank) - 1])


def open_data(path) -> Data:
    dataset = penstock.open(path)
    return Data(dataset.schema, [dataset.columns(shard) for shard in range(len(dataset.counts))])


@pytest.mark.proof
@pytest.mark.parametrize("length", [40, 128, 700])
def test_a_row_draws_as_many_records_as_the_definition_says(datasets: Datasets, length):
    data = open_data(datasets.more_pings)
    with penstock.load(datasets.more_pings, batch_size=4, length=length) as loader:
        assert loader._parts.phases.first.order.streams[0].draws == draws_by_definition(
            data, PINGS, length, augment=True
        )


@pytest.mark.proof
@pytest.mark.parametrize("empty", [0.0, 0.5, 0.97])
def test_records_without_events_do_not_change_what_is_counted(empty):
    rng = np.random.default_rng(3)
    records = [{"a": [] if rng.random() < empty else [1] * int(rng.integers(1, 4))} for _ in range(300)]
    data = make_data([records[:200], records[200:]], {"a": "list<int16>"})
    kind = Events([data.shards], data.schema, bound(NUMBERS, data), NO_LIMIT)
    assert kind.streams[0].draws == draws_by_definition(data, NUMBERS, 60)


def test_rows_that_would_hold_no_event_are_refused():
    """An IPv6 ping takes 40 tokens; the smallest there is, 12."""
    data = make_pings(*[{"dst_addr": "::1", "ip_version": 6}] * 9, source="::2")
    with pytest.raises(ConfigError, match="rows would be empty") as refused:
        Events([data.shards], data.schema, bound(PINGS, data, 20), NO_LIMIT)
    assert "larger length" in refused.value.next_step


def test_lists_of_other_lengths_are_refused_by_column():
    types = {"a": "list<int16>", "host": "list<string>", "version": "list<int8>"}
    for name, record in (
        ("host", {"a": [1, 2], "host": ["::1"], "version": [4, 4]}),
        ("version", {"a": [1, 2], "host": ["::1", None], "version": [4]}),
    ):
        data = make_data([[record]], types)
        vocabulary = make_vocabulary({"a": {"int": 2}, "host": {"ip": "version"}})
        with pytest.raises(ConfigError, match=f"column '{name}' has lists of other lengths"):
            Events([data.shards], data.schema, bound(vocabulary, data), NO_LIMIT)


@pytest.mark.parametrize("length", [512, 1024])
def test_packed_rows_are_nearly_full(datasets: Datasets, length):
    """This dataset is so small that a row draws a tenth of it; benchmarks/RESULTS.md has the figure for a large one."""
    with penstock.load(datasets.pings, batch_size=16, length=length, workers=0) as loader:
        for _ in range(20):
            next(loader)
        stats = loader.stats()
    assert stats.padding < 0.1
    assert 0.5 < stats.coverage <= 1
    assert stats.draws == stats.draws_unused + stats.coverage * stats.draws
    assert stats.counts["events"] > 0


def test_what_is_odd_about_events_is_counted_by_name(datasets: Datasets):
    with penstock.load(datasets.pings, batch_size=64, length=500, workers=0) as loader:
        for _ in range(20):
            next(loader)
        counts = loader.stats().counts
    assert list(counts) == list(COUNTED)
    odd = ("nulls", "addresses_of_other_version", "addresses_unreadable", "values_not_a_number", "values_negative")
    assert all(counts[name] > 0 for name in odd)
    assert counts["ints_out_of_range"] == 0


def test_addresses_are_parsed_beforehand_as_far_as_there_is_room():
    data = make_data([[pings_of(5, source="10.0.0.1")], [pings_of(5, source="::1")]], PING_TYPES)
    facts = (data.shards, data.schema, bound(PINGS, data, 50))
    all_of_them = EventEncoder(*facts).hold(10**6)
    assert all_of_them > 0
    assert 0 < EventEncoder(*facts).hold(all_of_them - 1) < all_of_them
    assert EventEncoder(*facts).hold(0) == 0


@pytest.mark.proof
@pytest.mark.parametrize("empty", [0.0, 0.6])
def test_old_records_without_events_do_not_change_what_is_counted(tmp_path, empty):
    rng = np.random.default_rng(4)
    records = [{"a": [] if rng.random() < empty else [1] * int(rng.integers(1, 4))} for _ in range(300)]
    written = [
        foreign({"a": pa.array(each["a"], pa.int16())}, n_measurements=len(each["a"]), src_id=number)
        for number, each in enumerate(records)
    ]
    dataset = ArrayRecordDataset("old", [write_records(tmp_path / "old.arrayrecord", written)])
    data = make_data([records], {"a": "list<int16>"})
    kind = OldEvents([dataset], TokenOptions(NUMBERS, 60, "packed", False), NO_LIMIT)
    assert kind.streams[0].draws == draws_by_definition(data, NUMBERS, 60)


@pytest.mark.proof
@pytest.mark.parametrize(("records", "few"), [((1,), 1), ((7, 0, 30), 16), ((0, 3000, 1, 0, 4096), 1024)])
def test_compiled_and_plain_sizing_draw_the_same_records(monkeypatch, records, few):
    found = []
    for plain in ("0", "1"):
        monkeypatch.setenv("PENSTOCK_PLAIN", plain)
        found.append(sizing_draws(3, 5, records, min(sum(records), 1024), 128, few))
    for compiled, plain in zip(astuple(found[0]), astuple(found[1]), strict=True):
        np.testing.assert_array_equal(compiled, plain)
        assert compiled.dtype == plain.dtype


def test_contexts_are_those_of_every_shard_in_turn():
    records = [{"a": [1] * count} for count in (0, 1, 30, 31, 60, 61, 1000)]
    data = make_data([records[:3], records[3:]], {"a": "list<int16>"})
    (stream,) = Events([data.shards], data.schema, bound(NUMBERS, data, fill="one_key"), NO_LIMIT).streams
    assert stream.shard_records == (3, 4)
    assert stream.contexts.tolist() == [1, 1, 1, 2, 2, 3, 16]
    assert stream.contexts.dtype == np.uint8


@pytest.mark.parametrize("word", ["float32", "list<float64>", "string", "list<string>"])
def test_a_version_that_is_no_whole_number_is_refused(word):
    value = {"float32": 6.0, "list<float64>": [6.0], "string": "6", "list<string>": ["6"]}[word]
    data = make_data([[{"host": ["::1"], "version": value}]], {"host": "list<string>", "version": word})
    with pytest.raises(ConfigError, match="column 'version' holds") as refused:
        bound(make_vocabulary({"host": {"ip": "version"}}), data)
    assert "int8" in refused.value.next_step


def test_a_misspelled_version_is_refused_and_pings_may_do_without():
    data = make_data([[{"host": ["::1"], "ip_version": [6]}]], {"host": "list<string>", "ip_version": "list<int8>"})
    with pytest.raises(ConfigError, match=r"no column 'ip_versoin'.*Did you mean 'ip_version'"):
        bound(make_vocabulary({"host": {"ip": "ip_versoin"}}), data)
    types = {name: word for name, word in PING_TYPES.items() if name != "ip_version"}
    pings = make_data([[{**pings_of(2), "ip_version": None}]], types)
    assert all(not field.version for field in bound(PINGS, pings).fields)
