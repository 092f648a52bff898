"""Encoder: draws -> rows of tokens, from mapped columns. By the kernel, or in plain Python without numba.

Both give the same bytes. Used by events.py, and by old_records.py for columns that it makes on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.loader.engine import compiled
from penstock.loader.feeding.readahead import read_ahead
from penstock.loader.kind import TOKEN_ARRAYS, Array
from penstock.loader.order.order import Draws, Fill
from penstock.loader.tables import Made, Shard, Tables, address
from penstock.loader.tokens.binding import Bound
from penstock.loader.tokens.counts import COUNTED
from penstock.loader.tokens.reference import encode_rows
from penstock.loader.tokens.vocabulary import KINDS
from penstock.shards.schema import Schema

_PARSED = "/parsed"  # slots of the loader's own: no column's name begins with a slash
_HELD = ("ip", "category")  # kinds whose texts are read once and held as numbers, where there is room


class EventEncoder:
    """Rows of `length` tokens from `shards`."""

    def __init__(
        self,
        shards: Sequence[Shard],
        schema: Schema,
        bound: Bound,
        length: int,
        fill: Fill,
        augment: bool,
        larger_than_memory: bool = False,
    ) -> None:
        self._shards, self._schema, self._bound, self._length = shards, schema, bound, length
        self._fill, self._augment = fill, augment
        self.tables = _make_tables(shards, bound)
        self.tables.larger_than_memory = larger_than_memory
        self._compiled: _CompiledEvents | None = None
        if compiled():
            self._compiled = _CompiledEvents(self.tables, bound, fill == "packed", augment, length)

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
            self._augment,
            self._length,
            out,
            counts,
            used,
        )
        return counts, used

    def hold(self, room: int) -> int:
        """Hold what rows are made faster with, in at most `room` bytes; how many that took. No token depends on it.

        The offsets of data larger than memory, and what the texts of dictionaries and keys stand for: 17 bytes per
        address, 4 per category. The others are read as text at every use.
        """
        if not self._compiled:
            return 0
        held = self.tables.hold_column(self._bound.offsets, room) if self.tables.larger_than_memory else 0
        for field in range(len(self._bound.fields)):
            for shard in range(len(self._shards)):
                held += self._compiled.hold_texts(field, shard, room - held)
        return held


def _make_tables(shards: Sequence[Shard], bound: Bound) -> Tables:
    own = [f"{_PARSED}/{number}" for number in range(len(bound.fields))]
    return Tables(shards, [*bound.columns, *own])


class _CompiledEvents:
    """The kernel and what it is called with."""

    def __init__(self, tables: Tables, bound: Bound, packed: bool, augment: bool, length: int) -> None:
        from penstock.loader.compiled import events, pages, plan, token_rows

        self._kernel, self._pages, self._token_rows = events, pages, token_rows
        self._tables, self._bound = tables, bound
        self._facts, self._categories, self._texts = _make_facts(plan, tables, bound)
        arrays = (self._facts, self._categories, self._texts)
        self._plan = _make_plan(plan, tables, bound, packed, augment, length, *map(address, arrays))
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

    def hold_texts(self, number: int, shard: int, room: int) -> int:
        """Hold the addresses or categories that a field's texts stand for, in one shard; how many bytes that took."""
        from penstock.loader.compiled.address import ENTRY, parse_texts
        from penstock.loader.compiled.fields import find_texts

        bound, columns = self._bound.fields[number], self._tables.shards[shard]
        if bound.field.kind not in _HELD or not bound.offsets:
            return 0
        texts, offsets = columns[bound.value], columns[bound.offsets]
        count, size = len(offsets) - 1, ENTRY if bound.field.kind == "ip" else 4
        if not count or size * count > room:
            return 0
        texts.check(0, len(texts))
        offsets.check(0, len(offsets))
        held = np.empty((count, size), "u1")
        places = (address(texts.array), address(offsets.array), count, address(held))
        if bound.field.kind == "ip":
            parse_texts(*places)
        else:
            find_texts(self._plan, number, *places)
        self._tables.put(shard, self._tables.names.index(f"{_PARSED}/{number}"), held, items=count)
        return held.nbytes


def _make_facts(words: Any, tables: Tables, bound: Bound) -> tuple[Array, Array, Array]:
    """The vocabulary and its columns, as numbers; the values of its categories, and the bytes of texts among them."""
    slots = {name: slot for slot, name in enumerate(tables.names)} | {"": -1}
    facts = np.zeros((len(bound.fields), words.FIELD_FACTS), "i8")
    categories: list[tuple[int, int, int]] = []
    texts = b""
    for number, each in enumerate(bound.fields):
        field, row = each.field, facts[number]
        is_parsed = field.kind in _HELD and each.offsets
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
            categories += sorted((_as_i8(int(value)), place, 0) for place, value in enumerate(field.values))
        elif field.kind == "category":
            for text, place in sorted((str(value).encode(), place) for place, value in enumerate(field.values)):
                categories.append((len(texts), place, len(text)))
                texts += text
    return facts, np.array(categories, "i8").reshape(-1, words.CATEGORY_FACTS), np.frombuffer(texts + b"\0", "u1")


def _as_i8(value: int) -> int:
    """As a kernel reads it: the upper half of uint64 is negative there."""
    return value - 2**64 if value >= 2**63 else value


def _make_plan(
    words: Any,
    tables: Tables,
    bound: Bound,
    packed: bool,
    augment: bool,
    length: int,
    facts: Any,
    categories: Any,
    texts: Any,
) -> Any:
    own_addresses = [i for i, each in enumerate(bound.fields) if each.field.kind == "ip" and not each.of_events]
    times = [i for i, each in enumerate(bound.fields) if each.field.kind == "time"]
    return words.Plan(
        fields=len(bound.fields),
        facts=facts,
        categories=categories,
        texts=texts,
        offsets=tables.names.index(bound.offsets),
        address_field=own_addresses[0] if own_addresses else -1,
        time_field=times[0] if times else -1,
        packed=packed,
        augment=int(augment),
        length=length,
        byte_base=bound.vocabulary.byte_base,
        smallest=bound.vocabulary.smallest_event,
        typical=bound.vocabulary.typical_event(4),
        typical_ipv6=bound.vocabulary.typical_event(16),
    )
