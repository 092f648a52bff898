"""Near dedup: set aside documents that are nearly the same as one that stays. Next: passes/near/, which finds them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup.near.paired import InPairs, Pairs
from penstock.prepare.stages.dedup.near.ranks import Rank, require_ranks
from penstock.prepare.stages.dedup.near.removed import NearMatched, with_survivors
from penstock.prepare.stages.dedup.near.shingles import MOST_UNITS, Shingling
from penstock.prepare.stages.dedup.near.signatures import MOST_PLACES, Banding
from penstock.prepare.stages.interfaces import ComparesNearly, Exchanges, MindsPlace, Named, TakesText
from penstock.prepare.stages.stage import Stage, require_columns
from penstock.prepare.stages.text.clean import require_text
from penstock.prepare.stages.text.pack import Pack
from penstock.shards.origins import SURVIVOR

VERSION = 1  # of band keys, representatives and scripts: raised when the same options come to find other pairs
_WORDS, _CHARACTERS = 5, 8
_DETECTION = 0.995  # of documents at the threshold, where `rows` is not given
_MOST_ROWS = 12


def _refuse_keep(keep: Any) -> None:
    if keep in ("first", "longest"):
        return
    fits = isinstance(keep, dict) and isinstance(keep.get("column"), str) and not set(keep) - {"column", "order"}
    if not fits or keep.get("order", "desc") not in ("desc", "asc"):
        why = ": it says which document stays, and removed ones are listed in duplicates/" if keep is True else ""
        raise ConfigError(
            f"keep: {keep} is not understood{why}",
            next_step="keep: first, keep: longest, or keep: {column: quality, order: desc} (or asc)",
        )


@dataclass(frozen=True, kw_only=True)
class NearDedup(ComparesNearly, MindsPlace, TakesText):
    """`near_dedup`, or `near_dedup: {threshold: 0.8, keep: longest}`: keep one of documents that are nearly the same.

    The similarity of two documents is the share of their shingles that both have (Jaccard). A shingle is 5 `words` in
    a row, or 8 `characters` in scripts without spaces. MinHash finds candidates (`bands`, `rows`), and every pair is
    verified before a document is removed. `keep` says which document stays: `first`, `longest`, or
    `{column: quality, order: desc}`. `act: mark` removes nothing and adds the column `near_duplicate_of`. Removed
    documents are listed in duplicates/, each with the one that stayed and their similarity.
    """

    column: str = "text"
    threshold: float = 0.8
    words: int | None = None
    characters: int | None = None
    bands: int = 20
    rows: int | None = None
    keep: Literal["first", "longest"] | dict[str, str] = "first"
    act: Literal["remove", "mark"] = "remove"
    warn_above: float | str = "50%"

    unit_in, unit_out = "documents", "documents"
    holds_much = True
    most_rows_per_slice = 1 << 18

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        options = super().options_from_yaml(written)
        _refuse_keep(options.get("keep", "first"))
        return options

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"threshold: {self.threshold:g} is not above 0 and at most 1")
        for name in ("words", "characters"):
            units = getattr(self, name)
            if units is not None and not 1 <= units <= MOST_UNITS:
                raise ConfigError(f"{name}: {units:,} is not between 1 and {MOST_UNITS}")
        rows = 1 if self.rows is None else self.rows
        if self.bands < 1 or rows < 1:
            raise ConfigError(f"bands: {self.bands:,} and rows: {rows:,} must both be at least 1")
        if self.bands * rows > MOST_PLACES:
            raise ConfigError(f"bands: {self.bands:,} times rows: {rows:,} is more than {MOST_PLACES:,}")
        self.warns_above  # noqa: B018

    @property
    def warns_above(self) -> float:
        """Share of a source's documents above which its removals are named on the screen."""
        written = str(self.warn_above)
        try:
            share = float(written.removesuffix("%")) / (100 if written.endswith("%") else 1)
        except ValueError:
            share = -1.0
        if not 0 <= share <= 1:
            raise ConfigError(f"warn_above: {written} is not a share", next_step="write 50%, or 0.5; 100% never warns")
        return share

    @property
    def shingling(self) -> Shingling:
        """Nothing said: words, or characters, by the script of each document."""
        if self.words or self.characters:
            return Shingling(self.words or 0, self.characters or 0)
        return Shingling(_WORDS, _CHARACTERS)

    @property
    def banding(self) -> Banding:
        """Without `rows`, as many as still find 99.5% of the documents at the threshold."""
        most = range(min(_MOST_ROWS, MOST_PLACES // self.bands), 0, -1)
        found = (each for each in most if Banding(self.bands, each).detection(self.threshold) >= _DETECTION)
        return Banding(self.bands, self.rows or next(found, 1))

    @property
    def rank(self) -> Rank | None:
        if isinstance(self.keep, dict):
            order: Any = self.keep.get("order", "desc")
            return Rank(self.keep["column"], order)
        return Rank(self.column, by_length=True) if self.keep == "longest" else None

    def refuse_place(self, before: Sequence[Named], behind: Sequence[Named], format: str) -> None:
        """Documents are compared as they were read, not as records."""
        for number, stages in enumerate((before, behind)):
            for name in (name for name, stage in stages if isinstance(stage, Exchanges)):
                raise ConfigError(
                    f"it compares documents, and `{name}` {'behind' if number else 'before'} it makes records of rows",
                    next_step=f"near_dedup in a first job, `{name}` in a second one that reads its output",
                )
        if format in ("arrays", "npz"):
            raise ConfigError(
                f"near_dedup compares documents, but format: {format} holds samples", next_step="format: safetensors"
            )
        if self.act == "mark" and any(isinstance(stage, Pack) for _, stage in behind):
            raise ConfigError(
                f"act: mark adds the column {SURVIVOR}, which is null for most documents: `pack` keeps no such column",
                next_step="act: remove, which is the same as a filter for documents without a mark",
            )
        if any(isinstance(stage, NearDedup) for _, stage in before):
            raise ConfigError("a job has one near_dedup", next_step="run a second job on the output of the first")

    def bind(self, artifact: Any) -> Stage:
        if isinstance(artifact, Pairs):
            return InPairs(pairs=artifact)
        return NearMatched(act=self.act, found=artifact)

    def __call__(self, rows: Rows) -> Rows:
        """Before anything is known, while a little of the job is tried."""
        return with_survivors(rows) if self.act == "mark" else rows

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_text(schema, self.column)
        if self.rank and not self.rank.by_length:
            require_columns(schema, [self.rank.column])
            require_ranks(schema, self.rank.column)
        if self.act == "mark":
            if SURVIVOR in schema.names:
                raise ConfigError(f"there is already a column {SURVIVOR!r}", next_step="rename it with `select` first")
            return schema.append(pa.field(SURVIVOR, pa.int64()))
        return schema

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        own = {self.column, *([self.rank.column] if self.rank else [])}
        return None if after is None else (after | own) - {SURVIVOR}

    def describe(self) -> dict[str, Any]:
        return {**self.signing(), "threshold": self.threshold, "act": self.act}

    def signing(self) -> dict[str, Any]:
        """Options that decide band keys and sets."""
        shingling, banding, rank = self.shingling, self.banding, self.rank
        by_column = {"column": rank.column, "order": rank.order} if rank and not rank.by_length else None
        return {
            "column": self.column,
            "words": shingling.words,
            "characters": shingling.characters,
            "bands": banding.bands,
            "rows": banding.rows,
            "keep": by_column or self.keep,
        }
