"""Kept: columns that go through `pack` beside the tokens: one value per document, or one per token. Used by pack.py."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigError
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.stage import require_columns
from penstock.shards.arrays import is_list
from penstock.shards.packed import DOCUMENTS, RESERVED, TOKENS

Array = np.ndarray[Any, Any]
_ADVICE_NULL = "filter such documents out, or fill the value in a stage before `pack`"
_ADVICE_LENGTH = "give one value per token; `tokenize` may add a bos and an eos token, which need none"


class Values(Protocol):
    """Values of some documents, one per token."""

    def between(self, low: int, high: int) -> Array:
        """Values of the tokens from `low` to `high`."""


@dataclass(frozen=True)
class Added:
    """Tokens that a stage puts before and behind those of each document, and the value that a column has there."""

    begin: int = 0
    end: int = 0
    value: float = 0

    @property
    def count(self) -> int:
        return self.begin + self.end


@dataclass(frozen=True)
class Kept(ABC):
    """A column beside the tokens. `number` is the type of one value."""

    name: str
    number: pa.DataType

    @property
    @abstractmethod
    def stored(self) -> pa.DataType:
        """Type of the column before rows are packed."""

    @property
    @abstractmethod
    def part_column(self) -> str:
        """Name of the flat column that has its values in a part."""

    @property
    @abstractmethod
    def part_bytes(self) -> int:
        """Bytes per token in a part."""

    @property
    def dtype(self) -> np.dtype[Any]:
        found: np.dtype[Any] = np.dtype(self.number.to_pandas_dtype())
        return found

    @abstractmethod
    def checked(self, rows: Rows, added: Added) -> Rows:
        """The rows, less those with values that cannot stand beside their tokens; the column in its stored type."""

    @abstractmethod
    def cut(self, column: pa.Array, length: int) -> pa.Array:
        """The column of documents that are cut to `length` tokens."""

    @abstractmethod
    def values(self, flat: Array, lengths: Array) -> Values:
        """Values of documents with so many tokens each, as a part has them."""

    def _replaced(self, rows: Rows, column: pa.Array) -> Rows:
        number = rows.batch.schema.get_field_index(self.name)
        return rows.with_batch(rows.batch.set_column(number, pa.field(self.name, column.type), column))

    def _without_nulls(self, rows: Rows, holes: Array) -> Rows:
        if not holes.any():
            return rows
        return rows.reject(
            ~holes, f"null in column {self.name!r}", lambda _: "a kept column has no nulls", _ADVICE_NULL
        )


class PerDocument(Kept):
    """One value per document: each of its tokens gets it."""

    @property
    def stored(self) -> pa.DataType:
        return self.number

    @property
    def part_column(self) -> str:
        return self.name

    @property
    def part_bytes(self) -> int:
        return 0  # next to nothing: a document has many tokens

    def checked(self, rows: Rows, added: Added) -> Rows:  # noqa: ARG002
        return self._without_nulls(rows, np.asarray(rows.batch.column(self.name).is_null()))

    def cut(self, column: pa.Array, length: int) -> pa.Array:  # noqa: ARG002
        return column

    def values(self, flat: Array, lengths: Array) -> Values:
        return _Repeated(flat, np.cumsum(lengths))


class PerToken(Kept):
    """A list with one value per token: it is cut and packed as the tokens are."""

    @property
    def stored(self) -> pa.DataType:
        return pa.list_(self.number)

    @property
    def part_column(self) -> str:
        return f"{self.name}/values"

    @property
    def part_bytes(self) -> int:
        return self.dtype.itemsize

    def checked(self, rows: Rows, added: Added) -> Rows:
        column = rows.batch.column(self.name)
        rows = self._without_nulls(rows, np.asarray(column.is_null()) | _has_null_inside(column))
        rows = self._fitting(rows, added)
        return self._replaced(rows, self._widened(rows.batch.column(self.name), rows.batch.column(TOKENS), added))

    def _fitting(self, rows: Rows, added: Added) -> Rows:
        tokens, found = (_lengths(rows.batch.column(name)) for name in (TOKENS, self.name))
        fits = (found == tokens) | (found == tokens - added.count)
        if fits.all():
            return rows
        of_them = f", {added.count} of them added by `tokenize`" if added.count else ""
        return rows.reject(
            fits,
            f"column {self.name!r} does not fit the tokens",
            lambda row: f"{found[row]:,} values for {tokens[row]:,} tokens{of_them}",
            _ADVICE_LENGTH,
        )

    def _widened(self, column: pa.Array, ids: pa.Array, added: Added) -> pa.Array:
        """The lists as long as their documents: added tokens get their value."""
        values, tokens = _flat(column), _lengths(ids)
        short, ends = _lengths(column) < tokens, np.cumsum(tokens)
        if short.any():
            inside = np.ones(int(tokens.sum()), bool)
            starts = (ends - tokens)[short]
            for place in range(added.begin):
                inside[starts + place] = False
            for place in range(added.end):
                inside[ends[short] - 1 - place] = False
            values, given = np.full(len(inside), added.value, self.dtype), values
            values[inside] = given
        offsets = np.concatenate([[0], ends]).astype("i4")
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, self.number))

    def cut(self, column: pa.Array, length: int) -> pa.Array:
        return pc.list_slice(column, 0, length).cast(self.stored)

    def values(self, flat: Array, lengths: Array) -> Values:  # noqa: ARG002
        return _Flat(flat)


@dataclass(frozen=True)
class _Flat:
    flat: Array

    def between(self, low: int, high: int) -> Array:
        return self.flat[low:high]


@dataclass(frozen=True)
class _Repeated:
    """One value per document, and where the tokens of each end."""

    flat: Array
    ends: Array

    def between(self, low: int, high: int) -> Array:
        first, last = np.searchsorted(self.ends, [low, high - 1], side="right").tolist()
        edges = np.clip(self.ends[first : last + 1], low, high)
        found: Array = np.repeat(self.flat[first : last + 1], np.diff(edges, prepend=low))
        return found


def _lengths(lists: pa.Array) -> Array:
    return np.asarray(pc.list_value_length(lists).fill_null(0)).astype("i8")


def _flat(lists: pa.Array) -> Array:
    found: Array = lists.flatten().to_numpy(zero_copy_only=False)
    return found


def _has_null_inside(lists: pa.Array) -> Array:
    holes = np.zeros(len(lists), bool)
    inside = lists.flatten().is_null()
    if inside.true_count:
        holes[np.asarray(pc.list_parent_indices(lists).filter(inside))] = True
    return holes


def kept_columns(schema: pa.Schema, names: Sequence[str]) -> tuple[Kept, ...]:
    """The columns of these names. One that cannot stand beside tokens is refused."""
    for name in names:
        if name in (TOKENS, DOCUMENTS, *RESERVED):
            raise ConfigError(
                f"keep: {name!r} is a name that packed rows or their batches already use",
                next_step="rename the column in a stage before: `select: {new_name: old_name}`",
            )
        if list(names).count(name) > 1:
            raise ConfigError(f"keep: column {name!r} is named twice")
    require_columns(schema, list(names))
    return tuple(_kept(schema.field(name)) for name in names)


def _kept(field: pa.Field) -> Kept:
    kind, is_a = field.type, pa.types
    number = kind.value_type if is_list(kind) else kind
    if not (is_a.is_integer(number) or is_a.is_floating(number) or is_a.is_boolean(number)):
        raise ConfigError(
            f"keep: column {field.name!r} is {kind}. A kept column has numbers: one per document, or a list of one per "
            "token",
            next_step="give each value a number in a stage before: `cast:` makes numbers of text such as '12' and of "
            "times, a function of your own (`module:function`) makes them of anything",
        )
    return PerToken(field.name, number) if is_list(kind) else PerDocument(field.name, number)


def added_values(kept: Sequence[Kept], written: dict[str, Any], begin: int, end: int) -> dict[str, Added]:
    """Tokens that are added to each document, and the value of each column there."""
    columns = {each.name: each for each in kept if isinstance(each, PerToken)}
    for name, value in written.items():
        if name not in columns:
            raise ConfigError(
                f"added: {name!r} is not a kept column with one value per token",
                next_step=f"one of: {', '.join(columns)}" if columns else "leave `added:` out",
            )
        if not _holds(columns[name].dtype, value):
            raise ConfigError(f"added: {name} is {columns[name].number}, which cannot hold {value!r}")
    return {each.name: Added(begin, end, written.get(each.name, 0)) for each in kept}


def _holds(dtype: np.dtype[Any], value: float) -> bool:
    if dtype.kind == "f":
        return not np.isfinite(value) or bool(abs(value) <= float(np.finfo(dtype).max))
    least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return bool(least <= value <= most) and value == int(value)
