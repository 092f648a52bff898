"""Kernel: an encoding and its tables as the numbers that the compiled encoder takes. Used by encoder.py, with numba."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from penstock.loader.batches import Array
from penstock.loader.compiled import events, pages, plan
from penstock.loader.compiled.address import ENTRY, parse_texts
from penstock.loader.compiled.fields import find_texts
from penstock.loader.compiled.places import places_of
from penstock.loader.feeding.readahead import read_ahead
from penstock.loader.order.order import Draws
from penstock.loader.tables import Made, Tables, address
from penstock.loader.tokens.binding import BoundField, Encoding, parsed_slot
from penstock.loader.tokens.vocabulary import KINDS

_HELD = ("ip", "category")  # kinds whose texts are read once and held as numbers, where there is room


class Kernel:
    """The kernel and what it is called with."""

    def __init__(self, tables: Tables, encoding: Encoding) -> None:
        self._tables, self._fields = tables, encoding.fields
        self._kept = _make_facts(tables, encoding)  # the plan has their addresses
        self._plan = _make_plan(tables, encoding, *map(address, self._kept))
        self._scratch_words = plan.scratch_words(len(self._fields), encoding.length, self._plan.typical)

    def encode(self, draws: Draws, out: Mapping[str, Array], made: Made) -> tuple[Array, Array]:
        used = np.zeros(len(draws.keys), "i4")
        drawn = (draws.shards, draws.records, draws.keys)
        rows = places_of(out)
        memory = np.empty(self._scratch_words, "i8")

        def encode(tables: Any, notes: Any) -> None:
            events.encode_rows(tables, self._plan, address(memory), *drawn, rows, notes, used)

        if self._tables.larger_than_memory:
            tables = self._tables.addresses
            read_ahead(lambda wanted: pages.list_events(tables, self._plan, address(memory), *drawn, wanted))
        return self._tables.run(encode, made), used

    def texts_bytes(self, number: int, shard: int) -> int:
        """Bytes that holding a field's texts takes in one shard; 0 for a field that has none to hold."""
        bound = self._fields[number]
        if bound.field.kind not in _HELD or not bound.offsets:
            return 0
        return (len(self._tables.shards[shard][bound.offsets]) - 1) * _entry_bytes(bound)

    def hold_texts(self, places: Iterable[tuple[int, int]]) -> None:
        """Hold the addresses or categories that texts stand for: of fields, each in one shard."""
        for number, shard in places:
            self._hold(number, shard)

    def _hold(self, number: int, shard: int) -> None:
        bound, columns = self._fields[number], self._tables.shards[shard]
        texts, offsets = columns[bound.value], columns[bound.offsets]
        count, size = len(offsets) - 1, _entry_bytes(bound)
        texts.check(0, len(texts))
        offsets.check(0, len(offsets))
        held = np.empty((count, size), "u1")
        places = (address(texts.array), address(offsets.array), count, address(held))
        if bound.field.kind == "ip":
            parse_texts(*places)
        else:
            find_texts(self._plan, number, *places)
        self._tables.put(shard, self._tables.names.index(parsed_slot(number)), held, items=count)


def _entry_bytes(bound: BoundField) -> int:
    return ENTRY if bound.field.kind == "ip" else 4


def _make_facts(tables: Tables, encoding: Encoding) -> tuple[Array, Array, Array]:
    """The vocabulary and its columns, as numbers; the values of its categories, and the bytes of texts among them."""
    slots = {name: slot for slot, name in enumerate(tables.names)} | {"": -1}
    facts = np.zeros((len(encoding.fields), plan.FIELD_FACTS), "i8")
    categories: list[tuple[int, int, int]] = []
    texts = b""
    for number, each in enumerate(encoding.fields):
        field, row = each.field, facts[number]
        is_parsed = field.kind in _HELD and each.offsets
        row[plan.KIND] = KINDS.index(field.kind)
        row[plan.MARKER : plan.MARKER + 3] = (*field.tokens[:3], 0, 0)[:3]
        row[plan.OF_EVENTS], row[plan.VERSION_OF_EVENTS] = each.of_events, each.version_of_events
        row[plan.VALUE], row[plan.VALID] = slots[each.value], slots[each.valid]
        row[plan.CODES], row[plan.OFFSETS] = slots[each.codes], slots[each.offsets]
        row[plan.PARSED] = slots[parsed_slot(number)] if is_parsed else -1
        row[plan.VERSION], row[plan.VERSION_VALID] = slots[each.version], slots[each.version_valid]
        row[plan.TICKS], row[plan.WIDTH] = each.ticks, field.width
        row[plan.FIRST_CATEGORY], row[plan.CATEGORIES] = len(categories), len(field.values)
        if field.kind == "category" and not is_parsed:
            categories += sorted((_as_i8(int(value)), place, 0) for place, value in enumerate(field.values))
        elif field.kind == "category":
            for text, place in sorted((str(value).encode(), place) for place, value in enumerate(field.values)):
                categories.append((len(texts), place, len(text)))
                texts += text
    return facts, np.array(categories, "i8").reshape(-1, plan.CATEGORY_FACTS), np.frombuffer(texts + b"\0", "u1")


def _as_i8(value: int) -> int:
    """The number as a kernel reads it: the upper half of uint64 becomes negative."""
    return value - 2**64 if value >= 2**63 else value


def _make_plan(tables: Tables, encoding: Encoding, facts: Any, categories: Any, texts: Any) -> plan.Plan:
    fields, vocabulary = encoding.fields, encoding.vocabulary
    return plan.Plan(
        fields=len(fields),
        facts=facts,
        categories=categories,
        texts=texts,
        offsets=tables.names.index(encoding.offsets),
        address_field=next((i for i, each in enumerate(fields) if each.field.kind == "ip" and not each.of_events), -1),
        time_field=next((i for i, each in enumerate(fields) if each.field.kind == "time"), -1),
        packed=encoding.fill == "packed",
        augment=int(encoding.augment),
        length=encoding.length,
        byte_base=vocabulary.byte_base,
        smallest=vocabulary.smallest_event,
        typical=vocabulary.typical_event(4),
        typical_ipv6=vocabulary.typical_event(16),
    )
