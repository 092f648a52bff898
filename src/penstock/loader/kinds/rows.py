"""Rows: draws -> rows of tokens that were packed when the dataset was made. Next: maker.py.

The dataset has a column `tokens`: one list of whole numbers per record, of fixed size or not, that int32 can hold. If
it also has a list `documents`, that says at which token each document of the row begins (0 is understood), and segments
and positions follow from it; without, a row is one document. Neither has nulls.

Columns that `pack` kept have one value per token. Each gives two arrays, `inputs_NAME` and `targets_NAME`: the values
of the tokens that `inputs` and `targets` have in the same places, and 0 where a row has no token.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from penstock.base.errors import ConfigError
from penstock.loader.asked.opening import Asked
from penstock.loader.batches import Array, Layout, token_layout
from penstock.loader.engine import compiled
from penstock.loader.feeding.readahead import read_ahead
from penstock.loader.order.order import Draws, Held, Stream
from penstock.loader.tables import Datasets, Made, Shard, Tables, address
from penstock.shards.columns import Column
from penstock.shards.packed import DOCUMENTS, TOKEN_TYPES, TOKENS
from penstock.shards.schema import NUMBERS, Schema

_LISTS_AT_ONCE = 1 << 20
_START_TYPES = (*TOKEN_TYPES, "uint32", "int64")


class Rows:
    """Rows of tokens, padded to `length` + 1, or cut where `overflow` says so."""

    name, unit, vocabulary = "rows", "tokens", None

    def __init__(
        self,
        datasets: Datasets,
        schema: Schema,
        length: int | None,
        larger_than_memory: bool = False,
        overflow: Literal["truncate"] | None = None,
        keep: Sequence[str] = (),
    ) -> None:
        types = {field.name: field.parsed for field in schema}
        self._shards = [shard for dataset in datasets for shard in dataset]
        _refuse_types(schema)
        _refuse_nulls(self._shards)
        fixed = types[TOKENS].name == "fixed_size_list"
        self._width = types[TOKENS].width if fixed else 0
        self.length = self._check_length(length)
        self._kept = tuple(keep)
        for shard, name in itertools.product(self._shards, keep):
            _refuse_apart(shard, name)
        self.layout: Layout = {**token_layout(self.length), **_kept_layout(schema, keep, self.length)}
        self._overflow = overflow
        if overflow is None:
            self._refuse_longer()
        self._has_documents = DOCUMENTS in types
        tokens = [TOKENS] if fixed else [f"{TOKENS}/values", f"{TOKENS}/offsets"]
        documents = [f"{DOCUMENTS}/offsets", f"{DOCUMENTS}/values"] if self._has_documents else []
        kept = [name if fixed else f"{name}/values" for name in keep]
        self.tables = Tables(self._shards, [*tokens, *documents, *kept], larger_than_memory)
        slots = [0, -1 if fixed else 1, *([len(tokens), len(tokens) + 1] if documents else [-1, -1])]
        self._slots = np.array(slots, "i8")
        # The values of a kept column are found by the offsets of the tokens, which are its own.
        self._kept_slots = {name: np.array([len(tokens) + len(documents) + n, slots[1]]) for n, name in enumerate(keep)}
        pairs = [(slots[1], slots[0]), (slots[2], slots[3])]
        pairs += [(offsets, values) for values, offsets in (each.tolist() for each in self._kept_slots.values())]
        self._lists = [pair for pair in pairs if pair[0] >= 0]
        counter = tokens[-1]
        self.streams = tuple(
            Stream(tuple(len(shard[counter]) - (0 if fixed else 1) for shard in dataset)) for dataset in datasets
        )

    @staticmethod
    def serves(asked: Asked) -> bool:
        """Whether the dataset has a column `tokens` of lists of whole numbers, and no columns or fields are named."""
        if asked.is_old or asked.options["columns"] is not None or asked.options["fields"] is not None:
            return False
        kind = {field.name: field.parsed for field in asked.schema}.get(TOKENS)
        if not kind or not kind.inner or not kind.inner.is_number or kind.is_dictionary:
            return False
        return not NUMBERS[kind.inner.name].startswith("f")

    @classmethod
    def of(cls, asked: Asked) -> Self:
        asked.refuse_unused("rows of tokens", {"augment": "events", "fill": "events", "nulls": "columns"})
        length, overflow = asked.options["length"], asked.options["overflow"]
        return cls(asked.shards, asked.schema, length, asked.larger_than_memory, overflow, _kept_of(asked))

    def holds(self, draws: Draws) -> Held:
        return Held(draws, has_segments=True, by_documents=True)

    def hold(self, room: int) -> None:
        """Hold nothing: only the columns are used."""

    def _check_length(self, length: int | None) -> int:
        if length is None and self._width:
            return self._width - 1
        if length is None or (self._width and length > self._width):
            width = f"its rows have {self._width:,} tokens" if self._width else "its rows have different lengths"
            raise ConfigError(
                f"length={length} does not work with this dataset: {width}",
                where="load(length=...)",
                next_step=f"a length up to {self._width:,}; with {self._width - 1:,} every input has a target"
                if self._width
                else "give length=, the tokens per row",
            )
        return length

    def _refuse_longer(self) -> None:
        """A row of one token more than `length` is whole: each input has its target."""
        taken, longest, longer = self.length + 1, self._width, 0
        if not self._width:
            for shard in self._shards:
                most, count = _longer_lists(shard, taken)
                longest, longer = max(longest, most), longer + count
        if longest > taken:
            rows = f"its rows have {longest:,}" if self._width else f"{longer:,} rows have more, up to {longest:,}"
            raise ConfigError(
                f"length={self.length} takes {taken:,} tokens per row, and {rows}: the others would be dropped",
                where="load(length=...)",
                next_step=f"length={longest - 1}, or overflow='truncate' to drop them (stats().tokens_truncated counts "
                "them)",
            )

    def fill(self, draws: Draws, out: Mapping[str, Array]) -> Made:
        rows = len(draws.keys)
        made = Made(rows=rows, room=rows * self.length, draws=int(np.count_nonzero(draws.shards >= 0)))
        made.draws_used = made.draws
        if compiled():
            self._fill_compiled(draws, out, made)
        else:
            for row in range(rows):
                place = int(draws.shards[row, 0]), int(draws.records[row, 0])
                made.tokens_truncated += self._fill_row(*place, {n: out[n][row] for n in out})
        made.tokens = int(np.count_nonzero(out["targets_segmentation"]))
        made.filled = int(np.count_nonzero(out["inputs_segmentation"]))
        return made

    def _fill_compiled(self, draws: Draws, out: Mapping[str, Array], made: Made) -> None:
        from penstock.loader.compiled import rows

        places = rows.places_of(out)
        shards, records = np.ascontiguousarray(draws.shards[:, 0]), np.ascontiguousarray(draws.records[:, 0])

        def encode(tables: Any, notes: Any) -> None:
            numbers = (self._slots, self._width, self.length, shards, records)
            made.tokens_truncated = int(rows.encode_rows(tables, notes, *numbers, places))
            for name, kept_slots in self._kept_slots.items():
                both = (address(out[f"inputs_{name}"]), address(out[f"targets_{name}"]))
                rows.copy_kept(tables, notes, kept_slots, self._width, self.length, shards, records, *both)

        if self.tables.larger_than_memory:
            self._read_ahead(shards, records)
        self.tables.run(encode, made)

    def _read_ahead(self, shards: Array, records: Array) -> None:
        """Read ahead twice: first the offsets, then the lists that they point to."""
        from penstock.loader.compiled import pages

        tables = self.tables.addresses

        def list_rows_and_offsets(wanted: Any) -> None:
            for slot in [0, *(each[0] for each in self._kept_slots.values())] if self._width else []:
                pages.list_rows(tables, slot, self._width, shards, records, wanted)
            for offsets in {offsets: None for offsets, _ in self._lists}:
                pages.list_rows(tables, offsets, 1, shards, records, wanted)

        def list_values(wanted: Any) -> None:
            for offsets, values in self._lists:
                pages.list_lists(tables, offsets, values, shards, records, wanted)

        read_ahead(list_rows_and_offsets)
        if self._lists:
            read_ahead(list_values)

    def _fill_row(self, shard: int, record: int, row: Mapping[str, Array]) -> int:
        """Fill a row in plain numpy, like the kernel. Returns how many tokens did not fit."""
        for array in row.values():
            array[:] = 0
        if shard < 0:
            return 0
        stored = self._read_list(self._shards[shard], TOKENS, record)
        tokens = stored.astype("i4")[: self.length + 1]
        edges = self._edges(self._shards[shard], record, len(tokens))
        positions = np.concatenate([np.empty(0, "i4"), *(np.arange(high - low, dtype="i4") for low, high in edges)])
        segments = np.repeat(np.arange(1, len(edges) + 1), [high - low for low, high in edges]).astype("i4")
        inputs, shown = tokens[: self.length], min(len(tokens), self.length)
        row["inputs"][:shown], row["inputs_position"][:shown] = inputs, positions[:shown]
        row["inputs_segmentation"][:shown] = segments[:shown]
        row["targets"][: len(tokens[1:])] = tokens[1:]
        same = segments[:-1] == segments[1:]
        row["targets_segmentation"][: len(same)] = segments[:-1] * same
        row["targets_position"][: len(same)] = positions[1:] * same
        for name in self._kept:
            values = self._read_list(self._shards[shard], name, record)[: self.length + 1]
            row[f"inputs_{name}"][:shown] = values[:shown]
            row[f"targets_{name}"][: len(values[1:])] = values[1:]
        return len(stored) - len(tokens)

    def _read_list(self, shard: Shard, name: str, record: int) -> Array:
        if f"{name}/offsets" not in shard:
            return shard[name].read(record, record + 1)[0]  # type: ignore[no-any-return]
        low, high = shard[f"{name}/offsets"].read(record, record + 2).tolist()
        return shard[f"{name}/values"].read(low, high)

    def _edges(self, shard: Shard, record: int, count: int) -> list[tuple[int, int]]:
        """Start and end of each document of a row of `count` tokens."""
        begin, edges = 0, []
        starts = self._read_list(shard, DOCUMENTS, record).tolist() if self._has_documents else []
        for start in starts:
            if start >= count:
                break
            if start > begin:
                edges.append((begin, start))
                begin = start
        return [*edges, (begin, count)] if count else []

    def describe(self) -> dict[str, Any]:
        kept = {"keep": list(self._kept)} if self._kept else {}
        return {"length": self.length, "overflow": self._overflow, **kept}


def _kept_of(asked: Asked) -> tuple[str, ...]:
    """Columns that every dataset has kept. They have the same columns, so those of the first are those of all."""
    kept = [each.manifest.kept if each.manifest else () for each in asked.opened]
    for each, names in zip(asked.opened, kept, strict=True):
        if names != kept[0]:
            raise ConfigError(
                f"{each.path} and {asked.where} cannot be mixed: `pack` kept {', '.join(names) or 'no columns'} in one "
                f"and {', '.join(kept[0]) or 'no columns'} in the other",
                where=each.path,
                next_step="prepare them with the same stages, or load them apart",
            )
    return kept[0]


def _kept_layout(schema: Schema, keep: Sequence[str], length: int) -> Layout:
    """Two arrays per kept column, of its own type."""
    words = {field.name: field.parsed.inner.name for field in schema if field.parsed.inner}
    types = {name: "?" if words[name] == "bool" else NUMBERS[words[name]] for name in keep}
    return {f"{of}_{name}": ((length,), types[name]) for name in keep for of in ("inputs", "targets")}


def _refuse_apart(shard: Shard, name: str) -> None:
    """Refuse a kept column that has not as many values in each row as there are tokens."""
    parts = ("/offsets", "/values") if f"{TOKENS}/offsets" in shard else ("",)
    columns = [(shard[f"{TOKENS}{part}"], shard[f"{name}{part}"]) for part in parts]
    fits = all(tokens.array.shape == own.array.shape for tokens, own in columns)
    if not fits or (len(parts) > 1 and not _are_equal(*columns[0])):
        raise ConfigError(
            f"column {name!r} has not one value per token",
            where=columns[0][1].file,
            next_step="prepare the dataset again with `pack: {keep: ...}`, which makes it so",
        )


def _are_equal(offsets: Column, others: Column) -> bool:
    """Whether two columns of one length are equal, a piece at a time."""
    pieces = ((start, min(start + _LISTS_AT_ONCE, len(offsets))) for start in range(0, len(offsets), _LISTS_AT_ONCE))
    return all(np.array_equal(offsets.read(*piece), others.read(*piece)) for piece in pieces)


def _longer_lists(shard: Shard, most: int) -> tuple[int, int]:
    """(the longest list, how many are longer than `most`), a piece of the offsets at a time."""
    longest, longer, offsets = 0, 0, shard[f"{TOKENS}/offsets"]
    for start in range(0, len(offsets) - 1, _LISTS_AT_ONCE):
        lengths = np.diff(offsets.read(start, min(start + _LISTS_AT_ONCE + 1, len(offsets))))
        longest = max(longest, int(lengths.max(initial=0)))
        longer += int(np.count_nonzero(lengths > most))
    return longest, longer


def _refuse_types(schema: Schema) -> None:
    """Refuse columns with an unexpected type: a kernel reads raw bits."""
    for field in schema:
        kind = field.parsed
        inner = kind.inner.name if kind.inner else ""
        if field.name == TOKENS and inner not in TOKEN_TYPES:
            raise ConfigError(
                f"column {TOKENS!r} is {field.type}, but the tokens of a batch are int32",
                where=f"column {TOKENS!r}",
                next_step=f"store it as a list of {' or '.join(TOKEN_TYPES[:2])} when the dataset is made",
            )
        if field.name == DOCUMENTS and not (kind.is_list and inner in _START_TYPES):
            raise ConfigError(
                f"column {DOCUMENTS!r} is {field.type}, but must be a list of whole numbers: where documents begin",
                where=f"column {DOCUMENTS!r}",
                next_step="store it as list<int32>, or give a column that means something else another name "
                "(`select: {new_name: old_name}`)",
            )


def _refuse_nulls(shards: Sequence[Shard]) -> None:
    for shard, column, of in itertools.product(shards, (TOKENS, DOCUMENTS), ("", "/values")):
        if (found := shard.get(f"{column}{of}/valid")) is not None:
            raise ConfigError(
                f"column {column!r} has nulls, and a row of tokens cannot hold them",
                where=found.file,
                next_step="filter them out or fill them when the dataset is made",
            )
