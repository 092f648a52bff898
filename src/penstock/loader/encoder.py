"""Encoder: draws -> rows of tokens, from mapped columns. By the kernel, or in plain Python without numba.

Both give the same bytes. Used by events.py, and by old_records.py for columns that it makes on the way.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.loader.binding import Bound, BoundField
from penstock.loader.counts import COUNTED
from penstock.loader.engine import compiled
from penstock.loader.kind import TOKEN_ARRAYS, Array
from penstock.loader.order import Draws, Fill
from penstock.loader.readahead import read_ahead
from penstock.loader.reference import encode_rows
from penstock.loader.tables import Made, Shard, Tables, address
from penstock.loader.vocabulary import KINDS
from penstock.shards.columns import Column
from penstock.shards.schema import Schema

_PARSED = "/parsed"  # slots of the loader's own: no column's name begins with a slash


class EventEncoder:
    """Rows of `length` tokens from `shards`; `room` bytes may be used to hold parsed addresses."""

    def __init__(
        self,
        shards: Sequence[Shard],
        schema: Schema,
        bound: Bound,
        length: int,
        fill: Fill,
        room: int = 0,
        larger_than_memory: bool = False,
    ) -> None:
        self._shards, self._schema, self._bound, self._length, self._fill = shards, schema, bound, length, fill
        self.tables = _make_tables(shards, bound)
        self.tables.larger_than_memory = larger_than_memory
        self.parsed_bytes = 0
        self._compiled: _CompiledEvents | None = None
        if compiled():
            if self.tables.larger_than_memory:
                room -= self.tables.hold_column(bound.offsets, room)
            self._parse(room)
            self._compiled = _CompiledEvents(self.tables, bound, fill == "packed", length)

    def encode(self, draws: Draws, out: Mapping[str, Array], made: Made) -> tuple[Array, Array]:
        """Fill the rows; what was counted, and how many draws each row used."""
        if self._compiled:
            return self._compiled.encode(draws, out, made)
        counts, used = np.zeros(len(COUNTED), "i8"), np.zeros(len(draws.keys), "i4")
        encode_rows(
            self._shards,
            self._schema,
            self._bound.vocabulary,
            draws.shards,
            draws.records,
            draws.keys,
            self._fill,
            self._length,
            out,
            counts,
            used,
        )
        return counts, used

    def _parse(self, room: int) -> None:
        """Addresses of dictionaries and keys as bytes, while there is room: 17 bytes each, and no text at every use."""
        from penstock.loader.compiled.address import ENTRY, parse_texts

        for slot, bound in enumerate(self._bound.fields):
            if bound.field.kind not in ("ip", "category") or not bound.offsets:
                continue
            place = self.tables.names.index(f"{_PARSED}/{slot}")
            for number, shard in enumerate(self._shards):
                texts, offsets = shard[bound.value], shard[bound.offsets]
                count = len(offsets) - 1
                if bound.field.kind == "category":
                    self.tables.put(number, place, _categories(bound, texts, offsets))
                elif ENTRY * count <= room - self.parsed_bytes and count:
                    texts.check(0, len(texts))
                    offsets.check(0, len(offsets))
                    entries = np.empty((count, ENTRY), "u1")
                    parse_texts(address(texts.array), address(offsets.array), count, address(entries))
                    self.tables.put(number, place, entries, items=count)
                    self.parsed_bytes += entries.nbytes


def _make_tables(shards: Sequence[Shard], bound: Bound) -> Tables:
    own = [f"{_PARSED}/{number}" for number in range(len(bound.fields))]
    return Tables(shards, [*bound.columns, *own])


def _categories(bound: BoundField, texts: Column, offsets: Column) -> Array:
    """For each text of a column the number of its category; one more than the last for any other."""
    numbers = {str(value).encode(): number for number, value in enumerate(bound.field.values)}
    edges, flat = offsets.read(0, len(offsets)).tolist(), texts.read(0, len(texts)).tobytes()
    found = [numbers.get(flat[low:high], len(numbers)) for low, high in itertools.pairwise(edges)]
    return np.array(found, "i4")


class _CompiledEvents:
    """The kernel and what it is called with."""

    def __init__(self, tables: Tables, bound: Bound, packed: bool, length: int) -> None:
        from penstock.loader.compiled import events, pages, plan, token_rows

        self._kernel, self._pages, self._token_rows = events, pages, token_rows
        self._tables = tables
        self._facts, self._categories = _make_facts(plan, tables, bound)
        self._plan = _make_plan(plan, tables, bound, packed, length, self._facts, self._categories)
        self._scratch_words = plan.scratch_words(len(bound.fields), length, self._plan.typical)

    def encode(self, draws: Draws, out: Mapping[str, Array], made: Made) -> tuple[Array, Array]:
        used = np.zeros(len(draws.keys), "i4")
        drawn = (draws.shards, draws.records, draws.keys)
        rows = self._token_rows.Rows(*(address(out[name]) for name in TOKEN_ARRAYS))
        memory = np.empty(self._scratch_words, "i8")

        def encode(tables: Any, notes: Any) -> None:
            self._kernel.encode_rows(tables, self._plan, address(memory), *drawn, rows, notes, used)

        if self._tables.larger_than_memory:
            tables = self._tables.addresses
            read_ahead(lambda pages: self._pages.list_events(tables, self._plan, address(memory), *drawn, pages))
        return self._tables.run(encode, made), used


def _make_facts(words: Any, tables: Tables, bound: Bound) -> tuple[Array, Array]:
    """The vocabulary and its columns, as numbers; and the whole numbers of its categories."""
    slots = {name: slot for slot, name in enumerate(tables.names)} | {"": -1}
    facts = np.zeros((len(bound.fields), words.FIELD_FACTS), "i8")
    categories: list[tuple[int, int]] = []
    for number, each in enumerate(bound.fields):
        field, row = each.field, facts[number]
        is_parsed = field.kind in ("ip", "category") and each.offsets
        row[words.KIND] = KINDS.index(field.kind)
        row[words.MARKER : words.MARKER + 3] = (*field.tokens[:3], 0, 0)[:3]
        row[words.OF_EVENTS], row[words.VERSION_OF_EVENTS] = each.of_events, each.version_of_events
        row[words.VALUE], row[words.VALID] = slots[each.value], slots[each.valid]
        row[words.CODES], row[words.OFFSETS] = slots[each.codes], slots[each.offsets]
        row[words.PARSED] = slots[f"{_PARSED}/{number}"] if is_parsed else -1
        row[words.VERSION], row[words.VERSION_VALID] = slots[each.version], slots[each.version_valid]
        row[words.TICKS], row[words.WIDTH] = each.ticks, field.width
        row[words.FIRST_CATEGORY], row[words.CATEGORIES] = len(categories), len(field.values)
        if field.kind == "category" and not is_parsed:
            categories += sorted((_as_i8(int(value)), place) for place, value in enumerate(field.values))
    return facts, np.array(categories, "i8").reshape(-1, 2)


def _as_i8(value: int) -> int:
    """As a kernel reads it: the upper half of uint64 is negative there."""
    return value - 2**64 if value >= 2**63 else value


def _make_plan(
    words: Any, tables: Tables, bound: Bound, packed: bool, length: int, facts: Array, categories: Array
) -> Any:
    own_addresses = [i for i, each in enumerate(bound.fields) if each.field.kind == "ip" and not each.of_events]
    times = [i for i, each in enumerate(bound.fields) if each.field.kind == "time"]
    return words.Plan(
        fields=len(facts),
        facts=address(facts),
        categories=address(categories),
        offsets=tables.names.index(bound.offsets),
        address_field=own_addresses[0] if own_addresses else -1,
        time_field=times[0] if times else -1,
        packed=packed,
        length=length,
        byte_base=bound.vocabulary.byte_base,
        smallest=bound.vocabulary.smallest_event,
        typical=bound.vocabulary.typical_event(4),
        typical_ipv6=bound.vocabulary.typical_event(16),
    )
