"""Arrays: draws -> rows of the columns as they are, each under its own name. Next: maker.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.loader.asked.opening import Asked
from penstock.loader.batches import Array, Layout
from penstock.loader.engine import compiled
from penstock.loader.feeding.readahead import read_ahead
from penstock.loader.kinds.chosen import Chosen, mask_of, refuse_nulls, refuse_unknown, usual
from penstock.loader.order.order import Draws, Held, Stream
from penstock.loader.tables import Datasets, Made, Tables, address
from penstock.loader.tokens.binding import is_grouped
from penstock.shards.schema import NUMBERS, Field, Schema, short_type

VALID = "valid"  # array of a batch: False for a row that only fills the last batch
_UNUSED = {
    "augment": "events",
    "documents": "tokens",
    "fill": "events",
    "fields": "events",
    "length": "tokens",
    "mix_by": "tokens",
}


class Arrays:
    """Columns of numbers, and of fixed-size lists of them, in any number of dimensions.

    `columns` names those wanted; None is all. With `marks_rows` a batch also has `valid`, one bool per row. Those that
    `nulls` names have zeros for nulls, and a mask beside them.
    """

    name, unit, vocabulary = "arrays", "rows", None

    def __init__(
        self,
        datasets: Datasets,
        schema: Schema,
        columns: Sequence[str] | None,
        larger_than_memory: bool = False,
        marks_rows: bool = False,
        nulls: Sequence[str] = (),
    ) -> None:
        fields = _wanted(schema, columns)
        refuse_unknown(nulls, [field.name for field in fields], "nulls")
        self._masks = [mask_of(field) for field in fields if field.name in nulls]
        _refuse_names(fields, self._masks, marks_rows)
        self._shards = [shard for dataset in datasets for shard in dataset]
        refuse_nulls([field for field in fields if field.name not in nulls], self._shards)
        self._marks_rows, self._rows = marks_rows, {field.name: _row(field) for field in fields}
        masks = {each.name: (each.shape, each.dtype) for each in self._masks}
        self.layout: Layout = {**self._rows, **masks, **({VALID: ((), "?")} if marks_rows else {})}
        names = [*self._rows, *(each.column for each in self._masks)]
        self.tables = Tables(self._shards, names, larger_than_memory)
        first = fields[0].name
        self.streams = tuple(Stream(tuple(len(shard[first]) for shard in dataset)) for dataset in datasets)

    @staticmethod
    def serves(asked: Asked) -> bool:
        columns, fields = asked.options["columns"], asked.options["fields"]
        is_events = fields is not None or (is_grouped(asked.schema) and not asked.holds_samples)
        return not asked.is_old and (columns is not None or not is_events)

    @classmethod
    def of(cls, asked: Asked) -> Arrays:
        pads = asked.options["remainder"] == "pad"
        columns, nulls = asked.options["columns"], asked.options["nulls"] or ()
        made = cls(asked.shards, asked.schema, columns, asked.larger_than_memory, pads, nulls)
        asked.refuse_unused("columns as they are", _UNUSED)  # last: what is wrong with the columns matters more
        return made

    def holds(self, draws: Draws) -> Held:
        return Held(draws)

    def hold(self, room: int) -> None:
        """Hold nothing: only the columns are used."""

    def fill(self, draws: Draws, out: Mapping[str, Array]) -> Made:
        shards, records = np.ascontiguousarray(draws.shards[:, 0]), np.ascontiguousarray(draws.records[:, 0])
        drawn = int(np.count_nonzero(shards >= 0))
        made = Made(rows=len(shards), room=len(shards), tokens=drawn, filled=drawn, draws=drawn, draws_used=drawn)
        if compiled():
            self._fill_compiled(shards, records, out, made)
        else:  # in plain numpy: what the kernel does
            for name in self._rows:
                for i, (shard, record) in enumerate(zip(shards.tolist(), records.tolist(), strict=True)):
                    out[name][i] = self._shards[shard][name].read(record, record + 1)[0] if shard >= 0 else 0
            for each in self._masks:
                for i, (shard, record) in enumerate(zip(shards.tolist(), records.tolist(), strict=True)):
                    column = self._shards[shard].get(each.column) if shard >= 0 else None
                    out[each.name][i] = shard >= 0 if column is None else column.read(record, record + 1)[0]
        if self._marks_rows:
            np.greater_equal(shards, 0, out=out[VALID])
        return made

    def _fill_compiled(self, shards: Array, records: Array, out: Mapping[str, Array], made: Made) -> None:
        from penstock.loader.compiled import pages, rows

        drawn, places = (shards >= 0).astype("i8"), np.arange(len(shards) + 1, dtype="i8")

        def list_pages(wanted: Any) -> None:
            for slot, name in enumerate(self._rows):
                pages.list_rows(addresses, slot, out[name][0].size, shards, records, wanted)

        def copy(tables: Any, notes: Any) -> None:
            for slot, name in enumerate(self._rows):
                array = out[name]
                rows.copy_rows(tables, notes, slot, array.nbytes // max(1, len(array)), shards, records, address(array))
            for slot, each in enumerate(self._masks, start=len(self._rows)):
                rows.copy_valid(tables, notes, slot, shards, records, drawn, places, address(out[each.name]))

        if self.tables.larger_than_memory and len(shards):
            addresses = self.tables.addresses
            read_ahead(list_pages)
        self.tables.run(copy, made)

    def describe(self) -> dict[str, Any]:
        nulls = {"nulls": [each.name for each in self._masks]} if self._masks else {}
        return {"columns": {name: [list(shape), dtype] for name, (shape, dtype) in self._rows.items()}, **nulls}


def _row(field: Field) -> tuple[tuple[int, ...], str]:
    kind = field.parsed
    return kind.shape, "?" if kind.number.name == "bool" else NUMBERS[kind.number.name]


def _is_array(field: Field) -> bool:
    return field.parsed.is_number or field.parsed.is_fixed_list


def _is_text(field: Field) -> bool:
    """Whether a column is text, such as the name of a group. Text is left out unless it is asked for."""
    return field.parsed.is_text or field.parsed.is_dictionary


def _wanted(schema: Schema, columns: Sequence[str] | None) -> list[Field]:
    known = {field.name: field for field in schema}
    refuse_unknown(columns or (), list(known), "columns")
    numbers = [field for field in usual(schema) if not _is_text(field)]
    fields = numbers if columns is None else [known[name] for name in columns]
    if columns is None and not fields:
        raise ConfigError(
            f"only text columns could be loaded: {', '.join(known)}",
            where="the columns of the dataset",
            next_step="prepare it with `tokenize` and `pack`, which turn text into rows of tokens",
        )
    ragged = [f"{field.name} ({short_type(field.type)})" for field in fields if not _is_array(field)]
    if ragged or not fields:
        arrays = [field.name for field in usual(schema) if _is_array(field)]
        raise ConfigError(
            f"a batch holds numbers and fixed-size lists of numbers, not {', '.join(ragged) or 'no column'}",
            where="load(columns=...)",
            next_step=f"name the columns to load: columns={arrays}; encode='raw' also loads lists of any length"
            if arrays
            else "encode='raw' loads lists of any length: load(..., encode='raw', length=...)",
        )
    return fields


def _refuse_names(fields: Sequence[Field], masks: Sequence[Chosen], marks_rows: bool) -> None:
    """Refuse a column whose name another array of the batch has."""
    names = {field.name for field in fields}
    if marks_rows and VALID in names:
        raise ConfigError(
            f"with remainder='pad' the array {VALID!r} of a batch tells rows from padding, and the dataset has a "
            "column of this name",
            where="load(remainder=...)",
            next_step=f"name the other columns (columns=), or rename it with `select: {{new_name: {VALID}}}` when the "
            "dataset is made",
        )
    for each in masks:
        if each.name in names:
            raise ConfigError(
                f"the mask {each.name!r} of a column with nulls has the name of another column",
                where="load(nulls=...)",
                next_step="name the other columns (columns=), or rename one with `select:` when the dataset is made",
            )
