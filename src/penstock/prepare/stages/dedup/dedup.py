"""Dedup: set aside documents that occurred before, in this input or in earlier jobs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.base.paths import local_path
from penstock.base.stores.store import OtherFolder
from penstock.base.user_code import code_identity
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup.losers import Matched
from penstock.prepare.stages.dedup.remembered import Remembered, look_up
from penstock.prepare.stages.filter import Filter
from penstock.prepare.stages.interfaces import (
    Compares,
    HoldsFolders,
    Locates,
    MindsPlace,
    Named,
    TakesText,
    refuse_records,
)
from penstock.prepare.stages.splitting.by_hash import SplitByHash
from penstock.prepare.stages.stage import Stage
from penstock.prepare.stages.text.clean import require_text


@dataclass(frozen=True, kw_only=True)
class Dedup(Compares, Locates, MindsPlace, TakesText):
    """`dedup`, or `dedup: {column: body, remember: seen/}`: keep the first of equal texts, by position.

    `remember` is a folder that stores the hashes of earlier jobs. Documents that an earlier job had are set aside, too,
    and the new hashes are added when the job is done. `keep: true` writes the duplicates to rejected/.
    """

    column: str = "text"
    remember: str = ""
    keep: bool = False

    unit_in, unit_out = "documents", "documents"
    holds_much = True
    most_rows_per_slice = 1 << 21

    def located(self, folder: str, output: str, before: Sequence[Stage], made_from: str) -> Stage:
        if not self.remember:
            return self
        changing = [stage for stage in before if not isinstance(stage, Filter | SplitByHash | Dedup)]
        cleaned = [{type(stage).__name__.lower(): _cleaning(stage)} for stage in changing]
        meaning = {"column": self.column, "text": cleaned}
        root = os.path.normpath(local_path(self.remember, folder))
        if any(isinstance(stage, Remembering) and stage.remembered.root == root for stage in before):
            raise ConfigError(f"remember: {self.remember}: an earlier dedup of this job uses this folder already")
        return Remembering(**vars(self), remembered=look_up(root, output, meaning, made_from))

    def refuse_place(self, before: Sequence[Named], behind: Sequence[Named], format: str) -> None:  # noqa: ARG002
        """Documents are compared as they were read, not as records."""
        refuse_records(before)
        if format in ("arrays", "npz"):
            raise ConfigError(
                f"dedup compares documents, but format: {format} holds samples",
                next_step="format: safetensors",
            )

    def bind(self, artifact: Any) -> Stage:
        return Matched(keep=self.keep, found=artifact)

    def __call__(self, rows: Rows) -> Rows:
        """Before anything is matched, while a little of the job is tried."""
        return rows

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_text(schema, self.column)
        return schema

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None else after | {self.column}

    def describe(self) -> dict[str, Any]:
        return {"column": self.column, "keep": self.keep}


@dataclass(frozen=True, kw_only=True)
class Remembering(Dedup, HoldsFolders):
    """Dedup when the keys of earlier jobs were found."""

    remembered: Remembered

    def other_folders(self) -> tuple[OtherFolder, ...]:
        """Remembered keys: it reads them now, and adds to them at its end."""
        known = self.remembered
        what = "this folder of remembered keys"
        return (OtherFolder(known.root, what, "remember", refuse_changed=known.refuse_changed),)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "remembered": self.remembered.describe()}


def _cleaning(stage: Stage) -> dict[str, Any]:
    """Effect of a stage on a text. Keeping the ones that it leaves out does nothing to the others."""
    done = {name: value for name, value in stage.describe().items() if name != "keep"}
    return {**done, "code": [[target, code_identity(target)] for target in stage.code()]} if stage.code() else done
