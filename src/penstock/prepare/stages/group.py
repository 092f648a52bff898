"""Group: bring the rows of a key together, in order, as one record; a long one is cut."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigError
from penstock.base.sizes import parse_size
from penstock.prepare.rows.hashing import is_text
from penstock.prepare.rows.order import Array, Exchange, Sorted
from penstock.prepare.rows.rows import Rows
from penstock.prepare.rows.spill import codes_of, combined
from penstock.prepare.stages.fitting.group_summary import GroupSummary
from penstock.prepare.stages.interfaces import Exchanges, Fit, Fits
from penstock.prepare.stages.stage import require_columns
from penstock.shards.schema import type_from_arrow

_TEXT_ROW_BYTES = 4  # an offset or a code


@dataclass(frozen=True, kw_only=True)
class Group(Exchanges, Fits):
    """`group: {by: user, order: time}` makes one record per key: the key, and a list of values per other column.

    Values are sorted by `order`. Ties keep the order of the input. A record holds at most `max_record` bytes of rows
    (a number counts as wide as its type, a text as its bytes plus 4). A key with more rows has several records, one
    after the other. A row whose key is null is set aside, or grouped like any other key with `null_keys: group`.
    """

    unit_in: ClassVar[str] = "events"
    unit_out: ClassVar[str] = "records"

    by: tuple[str, ...]
    order: tuple[str, ...] = ()
    max_record: str = "8MiB"
    null_keys: Literal["set_aside", "group"] = "set_aside"

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        options = dict(super().options_from_yaml(written))
        for name in ("by", "order"):
            if isinstance(options.get(name), str):
                options[name] = [options[name]]
        if isinstance(options.get("max_record"), int):
            options["max_record"] = str(options["max_record"])
        return options

    def __post_init__(self) -> None:
        if not self.by:
            raise ConfigError("by: name at least one column to group by")
        twice = [name for name in (*self.by, *self.order) if (*self.by, *self.order).count(name) > 1]
        if twice:
            raise ConfigError(f"column {twice[0]!r} is named twice in by and order")
        if parse_size(self.max_record) < 1:
            raise ConfigError("max_record: it is too small for one row")

    def exchange(self) -> Exchange:
        return Exchange(self.by, self.order)

    def keeps_bytes(self) -> int:
        return parse_size(self.max_record)

    def fit(self) -> Fit:
        return GroupSummary(self.by, self.order)

    def __call__(self, rows: Rows) -> Rows:
        """Before the exchange: rows without a key go no further."""
        missing = [rows.batch.column(name).is_null() for name in self.by if rows.batch.column(name).null_count]
        if self.null_keys == "group" or not missing:
            return rows
        mask = np.logical_or.reduce([np.asarray(each) for each in missing])
        return rows.keep(~mask, "null key", keep_rejected=True)

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_columns(schema, [*self.by, *self.order])
        for each in schema:
            _refuse_unknown(each)
        for option, names in (("by", self.by), ("order", self.order)):
            for name in names:
                _refuse_unordered(option, schema.field(name))
        keys = [pa.field(name, _key_type(schema.field(name).type)) for name in self.by]
        return pa.schema([*keys, *(pa.field(each.name, pa.list_(_stored(each.type))) for each in self._fields(schema))])

    def _fields(self, schema: pa.Schema) -> list[pa.Field]:
        return [each for each in schema if each.name not in self.by]

    def takes_codes(self) -> bool:
        return True

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None else after | frozenset((*self.by, *self.order))

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "max_record": parse_size(self.max_record)}

    def reduce(self, runs: Iterator[Sorted]) -> Iterator[pa.RecordBatch]:
        """Records from sorted rows. The last record may continue in the next rows: its own rows wait, in pieces."""
        waiting: list[pa.RecordBatch] = []
        waiting_bytes = 0
        for run in runs:
            batch = run.batch
            starts = _record_starts(batch, run.starts, parse_size(self.max_record), waiting_bytes)
            first = int(starts[0]) if len(starts) else batch.num_rows
            if first:
                waiting.append(_copy(batch, 0, first))
                waiting_bytes += _bytes_of(waiting[-1])
            if not len(starts):
                continue
            if waiting:
                yield self._records(combined(waiting), np.zeros(1, "i8"))
            last = int(starts[-1])
            if last > first:
                yield self._records(batch.slice(first, last - first), starts[:-1] - first)
            waiting = [_copy(batch, last, batch.num_rows)]
            waiting_bytes = _bytes_of(waiting[0])
        if waiting:
            yield self._records(combined(waiting), np.zeros(1, "i8"))

    def _records(self, batch: pa.RecordBatch, starts: Array) -> pa.RecordBatch:
        first = pa.array(starts)
        keys = [batch.column(name).take(first) for name in self.by]
        keys = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in keys]
        offsets = pa.array(np.append(starts, batch.num_rows).astype("i4"))
        fields = [each.name for each in self._fields(batch.schema)]
        lists = [pa.ListArray.from_arrays(offsets, _as_stored(batch.column(name))) for name in fields]
        return pa.RecordBatch.from_arrays([*keys, *lists], names=[*self.by, *fields])


def _refuse_unknown(column: pa.Field) -> None:
    if pa.types.is_null(column.type):
        raise ConfigError(
            f"column {column.name!r} has no values, so its type is unknown",
            next_step="leave it out with `select:`, or declare it under `types:` of a text input",
        )
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_nested(kind):
        raise ConfigError(
            f"column {column.name!r} is {column.type}, but group takes no nested columns",
            next_step="leave it out with `select:`, take a field of a struct (`select: {part: column.field}`), or "
            "flatten it in a stage of your own (`module:function`)",
        )
    if type_from_arrow(_stored(kind)) is None:
        raise ConfigError(
            f"column {column.name!r} is {column.type}, which cannot be stored",
            next_step=f"leave it out with `select:`, or give it another type: `cast: {{{column.name}: string}}`",
        )


def _refuse_unordered(option: str, column: pa.Field) -> None:
    kind, is_a = _key_type(column.type), pa.types
    known = is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_boolean(kind) or is_text(kind)
    if not (known or (is_a.is_temporal(kind) and kind.bit_width <= 64)):
        raise ConfigError(f"{option}: column {column.name!r} is {column.type}, which cannot be a key or an order")


def _key_type(kind: pa.DataType) -> pa.DataType:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _stored(kind: pa.DataType) -> pa.DataType:
    """Text of events is stored once per shard and named by codes: it repeats."""
    kind = _key_type(kind)
    return pa.dictionary(pa.int32(), kind) if is_text(kind) and not pa.types.is_fixed_size_binary(kind) else kind


def _as_stored(array: pa.Array) -> pa.Array:
    wanted = _stored(_key_type(array.type))
    if pa.types.is_dictionary(array.type) and not pa.types.is_dictionary(wanted):
        return array.dictionary_decode()
    return array.dictionary_encode() if pa.types.is_dictionary(wanted) and array.type != wanted else array


def _copy(batch: pa.RecordBatch, first: int, last: int) -> pa.RecordBatch:
    """Some rows by themselves: a slice would keep the whole batch."""
    return batch.take(pa.array(np.arange(first, last)))


def _record_starts(batch: pa.RecordBatch, keys: Array, most: int, waiting_bytes: int) -> Array:
    """Starts of records: at every key, and within a key before the row that would make one larger than `most`.

    The rows before the first key continue a record that already has `waiting_bytes`.
    """
    bounds = np.concatenate([[0] if not len(keys) or keys[0] else [], keys, [batch.num_rows]]).astype("i8")
    if int(np.diff(bounds).max()) * _widest_row(batch) + waiting_bytes <= most:
        return keys
    ends_at = _row_ends(batch)
    before = np.append(0, ends_at)[bounds]
    goes_on = len(bounds) > len(keys) + 1
    held = np.zeros(len(bounds) - 1, "i8")
    held[0] = waiting_bytes if goes_on else 0
    large = np.flatnonzero(np.diff(before) + held > most)
    cuts = [_cuts(ends_at, int(bounds[key]), int(bounds[key + 1]), most, int(held[key])) for key in large]
    return np.sort(np.concatenate([keys, *cuts])) if cuts else keys


def _cuts(ends_at: Array, first: int, last: int, most: int, held: int) -> Array:
    """Rows from `first` on at which a new record begins; every record has a row, however large."""
    found = []
    while first < last:
        before = int(ends_at[first - 1]) if first else 0
        fits = int(np.searchsorted(ends_at, before + most - held, side="right"))
        first, held = max(fits, first if held else first + 1), 0
        found.append(first)
    return np.array(found[:-1], "i8")


def _bytes_of(batch: pa.RecordBatch) -> int:
    return int(_row_ends(batch)[-1])


def _row_ends(batch: pa.RecordBatch) -> Array:
    """Bytes of rows 0 to i, for each i."""
    sizes = np.full(batch.num_rows, sum(map(_fixed_bytes, batch.columns)))
    for column in filter(_is_coded, batch.columns):
        sizes += np.append(_lengths(column), 0)[codes_of(column, -1)]
    return np.cumsum(sizes)


def _widest_row(batch: pa.RecordBatch) -> int:
    """Upper bound for the size of a row, in bytes."""
    texts = sum(int(_lengths(column).max(initial=0)) for column in filter(_is_coded, batch.columns))
    return texts + sum(map(_fixed_bytes, batch.columns))


def _is_coded(column: pa.Array) -> bool:
    """Text arrives as codes; of a fixed width it counts as a number."""
    return pa.types.is_dictionary(column.type) and not pa.types.is_fixed_size_binary(column.type.value_type)


def _fixed_bytes(column: pa.Array) -> int:
    return _TEXT_ROW_BYTES if _is_coded(column) else max(1, int(_key_type(column.type).bit_width) // 8)


def _lengths(column: pa.DictionaryArray) -> Array:
    return np.asarray(pc.binary_length(column.dictionary)).astype("i8")
