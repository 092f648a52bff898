"""Kernel: an encoding and its tables as the numbers that the compiled encoder takes. Used by encoder.py, with numba."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from penstock.loader.batches import Array
from penstock.loader.compiled import events, pages, plan
from penstock.loader.compiled.address import parse_texts
from penstock.loader.compiled.fields import find_texts
from penstock.loader.compiled.places import places_of
from penstock.loader.feeding.readahead import read_ahead
from penstock.loader.order.order import Draws
from penstock.loader.tables import Made, Tables, address
from penstock.loader.tokens.binding import BoundField, Encoding, parsed_slot
from penstock.loader.tokens.vocabulary import KINDS

_NUMBERS = {name: number for number, name in enumerate(KINDS)}


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
        size = bound.field.kind.text_bytes if bound.offsets else 0
        return (len(self._tables.shards[shard][bound.offsets]) - 1) * size if size else 0

    def hold_texts(self, places: Iterable[tuple[int, int]]) -> None:
        """Hold the addresses or categories that texts stand for: of fields, each in one shard."""
        for number, shard in places:
            self._hold(number, shard)

    def _hold(self, number: int, shard: int) -> None:
        bound, columns = self._fields[number], self._tables.shards[shard]
        texts, offsets = columns[bound.value], columns[bound.offsets]
        count, size = len(offsets) - 1, bound.field.kind.text_bytes
        texts.check(0, len(texts))
        offsets.check(0, len(offsets))
        held = np.empty((count, size), "u1")
        places = (address(texts.array), address(offsets.array), count, address(held))
        if bound.field.kind.is_address:
            parse_texts(*places)
        else:
            find_texts(self._plan, number, *places)
        self._tables.put(shard, self._tables.names.index(parsed_slot(number)), held, items=count)


def _make_facts(tables: Tables, encoding: Encoding) -> tuple[Array, Array, Array]:
    """The vocabulary and its columns, as numbers; the values of its categories, and the bytes of texts among them."""
    slots = {name: slot for slot, name in enumerate(tables.names)} | {"": -1}
    facts = np.zeros((len(encoding.fields), plan.FIELD_FACTS), "i8")
    categories: list[tuple[int, int, int]] = []
    texts = b""
    for number, each in enumerate(encoding.fields):
        field, row = each.field, facts[number]
        kind = field.kind
        row[plan.KIND] = _NUMBERS[kind.name]
        row[plan.MARKER : plan.MARKER + 3] = (*field.tokens[:3], 0, 0)[:3]
        row[plan.OF_EVENTS], row[plan.VERSION_OF_EVENTS] = each.of_events, each.version_of_events
        row[plan.VALUE], row[plan.VALID] = slots[each.value], slots[each.valid]
        row[plan.CODES], row[plan.OFFSETS] = slots[each.codes], slots[each.offsets]
        row[plan.PARSED] = slots[parsed_slot(number)] if kind.text_bytes and each.offsets else -1
        row[plan.VERSION], row[plan.VERSION_VALID] = slots[each.version], slots[each.version_valid]
        row[plan.TICKS], row[plan.WIDTH] = each.ticks, kind.width
        row[plan.FIRST_CATEGORY], row[plan.CATEGORIES] = len(categories), len(kind.values)
        for value, place in kind.ordered():
            if isinstance(value, bytes):
                categories.append((len(texts), place, len(value)))
                texts += value
            else:
                categories.append((value, place, 0))
    return facts, np.array(categories, "i8").reshape(-1, plan.CATEGORY_FACTS), np.frombuffer(texts + b"\0", "u1")


def _make_plan(tables: Tables, encoding: Encoding, facts: Any, categories: Any, texts: Any) -> plan.Plan:
    fields, vocabulary = encoding.fields, encoding.vocabulary
    return plan.Plan(
        fields=len(fields),
        facts=facts,
        categories=categories,
        texts=texts,
        offsets=tables.names.index(encoding.offsets),
        address_field=next((i for i, each in enumerate(fields) if _is_own_address(each)), -1),
        time_field=next((i for i, each in enumerate(fields) if each.field.kind.is_time), -1),
        packed=encoding.fill == "packed",
        augment=int(encoding.augment),
        length=encoding.length,
        byte_base=vocabulary.byte_base,
        smallest=vocabulary.smallest_event,
        typical=vocabulary.typical_event(4),
        typical_ipv6=vocabulary.typical_event(16),
    )


def _is_own_address(bound: BoundField) -> bool:
    """Whether it is the address of the record itself."""
    return bound.field.kind.is_address and not bound.of_events
