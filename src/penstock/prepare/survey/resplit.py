"""Resplit: a dataset as input, and the split of the job -> a refusal if the hashes that made the one decide the other.

Rows of a test split have small hashes. Shares of the same hashes would put all of them, or none, into one split. A
dataset that was made of a part of another remembers what divided it: `divided_by` in its manifest's `input`.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.stores import open_store
from penstock.prepare.job.stage_list import stage_errors
from penstock.prepare.sources import File
from penstock.prepare.sources.datasets.prepared import FORMAT
from penstock.prepare.stages.split import Split
from penstock.prepare.stages.stage import Stage
from penstock.shards.manifest import read_manifest


def refuse_same_hashes(names: Sequence[str], stages: Sequence[Stage], files: Iterable[File]) -> None:
    """Raise ConfigError if a split by shares divides a part of what was divided by the same columns and seed."""
    for number, stage in enumerate(stages):
        if isinstance(stage, Split) and stage.by:
            with stage_errors(number, names[number]):
                _refuse(stage, files)


def dividing_hashes(files: Iterable[File]) -> tuple[dict[str, Any], ...]:
    """Columns and seed of each split by hash of which the input is only a part. The manifest remembers them."""
    found = {(tuple(each["by"]), each["seed"]) for _, _, each in _divisions(files)}
    return tuple({"by": list(by), "seed": seed} for by, seed in sorted(found))


def _refuse(stage: Split, files: Iterable[File]) -> None:
    for folder, part, made in _divisions(files):
        if made == {"by": list(stage.by), "seed": stage.seed}:
            was_split = f"was split by {', '.join(stage.by)} with seed {stage.seed} already"
            raise ConfigError(
                f"{folder} {was_split}, so the shares of its {part} would be wrong: the same hashes would decide"
                if part
                else f"{folder} was made from a part of a dataset that {was_split}, so the shares would be wrong: the "
                "same hashes would decide",
                next_step=f"seed: {stage.seed + 1}",
            )


def _divisions(files: Iterable[File]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(folder, its splits that are read, columns and seed); no splits where an earlier dataset was divided."""
    for folder, read in _splits_read(files).items():
        manifest = read_manifest(open_store(folder))
        for earlier in manifest.input.get("divided_by", ()):
            yield folder, "", earlier
        if read == set(manifest.splits):  # nothing is missing, so the shares are right
            continue
        for made in (each["split"] for each in manifest.config["stages"] if "split" in each):
            if made.get("by"):
                yield folder, " and ".join(sorted(read)), {"by": list(made["by"]), "seed": made.get("seed", 0)}


def _splits_read(files: Iterable[File]) -> dict[str, set[str]]:
    """The splits that a job reads of each dataset of penstock, by its folder."""
    read: dict[str, set[str]] = {}
    for file in files:
        if file.format == FORMAT:
            folder, split = os.path.split(file.location)
            read.setdefault(folder, set()).add(split)
    return read
