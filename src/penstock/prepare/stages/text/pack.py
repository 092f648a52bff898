"""Pack: documents of tokens -> training rows of one length. Next: packing.py, which does it when all are counted."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigError
from penstock.base.numbers import for_json
from penstock.prepare.rows.rows import Rows, SetAside
from penstock.prepare.stages.interfaces import AddsTokens, Locates, MindsPlace, Named, Settles, refuse_records
from penstock.prepare.stages.stage import Stage, require_columns
from penstock.prepare.stages.text.kept import Kept, PerToken, added_values, kept_columns
from penstock.shards.packed import DOCUMENTS, TOKEN_TYPES, TOKENS

TRUNCATED = "truncated"
_LARGEST = 2**31 - 1
_LEAST_WINDOW, _LEAST_ROWS = 1 << 22, 128  # tokens, and rows, of a window: 5,000 documents of 800 tokens fill 99.8%


@dataclass(frozen=True, kw_only=True)
class Pack(Settles, MindsPlace, Locates):
    """`pack: 2048`, or `pack: {length: 2048, method: best_fit, overflow: truncate}`.

    `wrapped` joins all documents and cuts the stream every `length` tokens; the rest at the end is counted as "tail".
    `best_fit` keeps documents whole and fills rows from `window` tokens at a time. `none` makes one row per document.
    `overflow` decides about documents longer than a row: split, truncate or set_aside.

    `keep: [source_id, loss_mask]` keeps columns beside the tokens, with one value per token: the value of the token's
    document, or, for a column of lists, the token's own value. A list needs no values for the bos and eos tokens that
    `tokenize` adds: they get 0, or the value in `added: {loss_mask: 1}`.
    """

    length: int
    method: Literal["wrapped", "best_fit", "none"] = "wrapped"
    overflow: Literal["split", "truncate", "set_aside"] = "split"
    window: int = 0
    keep: tuple[str, ...] = ()
    added: dict[str, bool | int | float] = field(default_factory=dict)

    unit_in, unit_out = "documents", "rows"
    is_tried = False
    counts = TOKENS

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        return {"length": written} if isinstance(written, int) else Stage.options_from_yaml(written)

    def __post_init__(self) -> None:
        if not 2 <= self.length <= 1 << 24:
            raise ConfigError(f"length: {self.length:,} is not between 2 and {1 << 24:,} tokens")
        if self.method == "wrapped" and self.overflow != "split":
            raise ConfigError(
                f"overflow: {self.overflow} needs method best_fit or none; wrapped always splits at the end of a row"
            )
        if self.window and self.method != "best_fit":
            raise ConfigError("window: needs method: best_fit")
        if self.window and self.window < self.length:
            raise ConfigError(f"window: {self.window:,} tokens are less than one row of {self.length:,}")

    def located(self, folder: str, output: str, before: Sequence[Stage], made_from: str) -> Stage:  # noqa: ARG002
        """Pack that knows how many tokens are added to each document, where columns are kept."""
        adding = [stage.added_tokens() for stage in before if isinstance(stage, AddsTokens)]
        begin, end = adding[-1] if adding else (0, 0)
        return _Keeping(**vars(self), begin=begin, end=end) if self.keep else self

    def settled(self, before: Sequence[Stage]) -> Stage:  # noqa: ARG002
        if self.method != "best_fit" or self.window:
            return self
        return replace(self, window=max(_LEAST_WINDOW, _LEAST_ROWS * self.length))

    def refuse_place(self, before: Sequence[Named], behind: Sequence[Named], format: str) -> None:
        """Documents are packed as they were read, and nothing stands behind a packed row."""
        refuse_records(before)
        if behind:
            raise ConfigError(
                f"pack must be the last stage, but {behind[0][0]} comes after it", next_step="move it to the end"
            )
        if format in ("arrayrecord", "arrays", "npz"):
            raise ConfigError(
                "packed rows need format: safetensors or npy",
                next_step="leave `format:` out; `penstock export` writes other formats",
            )

    def __call__(self, rows: Rows) -> Rows:
        """On the way to be counted: tokens and kept columns alone, and none too long unless they are to be split."""
        rows = _narrow(_without_nulls(rows.with_batch(rows.batch.select([TOKENS, *self.keep]))))
        lengths = _lengths(rows)
        if not lengths.all():
            rows = rows.keep(lengths > 0, "no tokens")
        rows = self._with_kept(rows)
        if self.overflow == "split":
            return rows
        if self.overflow == "set_aside":
            return self._without_long(rows, _lengths(rows))
        return self._truncated(rows, _lengths(rows))

    def _with_kept(self, rows: Rows) -> Rows:
        """Rows whose kept columns stand beside their tokens; here there are none."""
        return rows

    def _without_long(self, rows: Rows, lengths: np.ndarray[Any, Any]) -> Rows:
        """Each is named in rejected/ with its length: its ids tell nobody anything."""
        reason = f"longer than {self.length:,} tokens"
        lines = [
            rows.rejected_line(row, reason, tokens=int(lengths[row]))
            for row in np.flatnonzero(lengths > self.length).tolist()
        ]
        kept = rows.keep(lengths <= self.length, reason)
        aside = [replace(each, kept=lines) if each.reason == reason else each for each in kept.set_aside]
        return replace(kept, set_aside=tuple(aside))

    def _truncated(self, rows: Rows, lengths: np.ndarray[Any, Any]) -> Rows:
        lost = int(np.maximum(lengths - self.length, 0).sum())
        if not lost:
            return rows
        cut = pc.list_slice(rows.batch.column(0), 0, self.length).cast(rows.batch.schema.field(0).type)
        kept = [
            each.cut(rows.batch.column(each.name), self.length) for each in kept_columns(rows.batch.schema, self.keep)
        ]
        rows = rows.with_batch(pa.RecordBatch.from_arrays([cut, *kept], names=rows.batch.schema.names))
        return replace(rows, set_aside=(*rows.set_aside, SetAside(TRUNCATED, 0, (), lost)))

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_columns(schema, [TOKENS])
        kind = schema.field(TOKENS).type
        if not (pa.types.is_list(kind) and pa.types.is_integer(kind.value_type)):
            raise ConfigError(f"column {TOKENS!r} is {kind}, but must be a list of whole numbers")
        tokens, *kept = self.document_columns(schema)
        added_values(kept, self.added, 0, 0)
        return packed_schema(tokens.number, self.length if self.method == "wrapped" else 0, kept)

    def document_columns(self, given: pa.Schema) -> tuple[Kept, ...]:
        """Tokens of documents, and the columns kept beside them, of what the stage is given."""
        ids = PerToken(TOKENS, narrowed(given.field(TOKENS).type.value_type))
        return ids, *kept_columns(given, self.keep)

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:  # noqa: ARG002
        return frozenset({TOKENS, *self.keep})

    def describe(self) -> dict[str, Any]:
        """`keep` and `added` where they are used: a job without them is the job that it was before they existed."""
        described = {name: getattr(self, name) for name in ("length", "method", "overflow", "window")}
        kept = {"keep": list(self.keep)} if self.keep else {}
        added = {name: for_json(value) for name, value in sorted(self.added.items())}
        return {**described, **kept, **({"added": added} if added else {})}


@dataclass(frozen=True, kw_only=True)
class _Keeping(Pack):
    """Pack with kept columns, and how many tokens a stage before it adds to each document."""

    begin: int
    end: int

    def _with_kept(self, rows: Rows) -> Rows:
        columns = kept_columns(rows.batch.schema, self.keep)
        added = added_values(columns, self.added, self.begin, self.end)
        for each in columns:
            rows = each.checked(rows, added[each.name])
        return rows


def _lengths(rows: Rows) -> np.ndarray[Any, Any]:
    return np.asarray(pc.list_value_length(rows.batch.column(0)).fill_null(0))


def _without_nulls(rows: Rows) -> Rows:
    """Input that was tokenized elsewhere may have lists with holes, and no id stands for one."""
    return _without(rows, rows.batch.column(0).flatten().is_null(), "null among tokens")


def _without(rows: Rows, bad: pa.BooleanArray, reason: str) -> Rows:
    """The rows, less those with a bad token."""
    if not bad.true_count:
        return rows
    good = np.ones(len(rows), bool)
    good[np.asarray(pc.list_parent_indices(rows.batch.column(0)).filter(bad))] = False
    return rows.keep(good, reason, keep_rejected=True)


def narrowed(kind: pa.DataType) -> pa.DataType:
    """Type of ids: batches of the loader are int32."""
    return kind if str(kind) in TOKEN_TYPES else pa.int32()


def _narrow(rows: Rows) -> Rows:
    """Ids of other programs are often int64."""
    kind = rows.batch.schema.field(0).type.value_type
    if narrowed(kind) == kind:
        return rows
    ids = rows.batch.column(0).flatten()
    wide = pc.or_(pc.greater(ids, _LARGEST), pc.less(ids, -_LARGEST))
    rows = _without(rows, wide, "an id needs more than 32 bits")
    narrow = rows.batch.column(0).cast(pa.list_(pa.int32()))
    return rows.with_batch(rows.batch.set_column(0, pa.field(TOKENS, narrow.type), narrow))


def packed_schema(kind: pa.DataType, length: int, kept: Sequence[Kept] = ()) -> pa.Schema:
    """Schema of rows of `length` tokens, or of as many as each has, with the kept columns behind."""

    def per_token(number: pa.DataType) -> pa.DataType:
        return pa.list_(number, length) if length else pa.list_(number)

    columns = [(each.name, per_token(each.number)) for each in kept]
    return pa.schema([(TOKENS, per_token(kind)), (DOCUMENTS, pa.list_(pa.int32())), *columns])
