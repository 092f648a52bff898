"""Resplit: a dataset as input, and the split of the job -> a refusal if the hashes that made the one decide the other.

Rows of a test split have small hashes. Shares of the same hashes would put all of them, or none, into one split.
"""

import os
from collections.abc import Iterable, Sequence

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


def _refuse(stage: Split, files: Iterable[File]) -> None:
    for folder, read in _splits_read(files).items():
        manifest = read_manifest(open_store(folder))
        if read == set(manifest.splits):  # nothing is missing, so the shares are right
            continue
        for made in (each["split"] for each in manifest.config["stages"] if "split" in each):
            if made.get("by") == list(stage.by) and made.get("seed", 0) == stage.seed:
                raise ConfigError(
                    f"{folder} was split by {', '.join(stage.by)} with seed {stage.seed} already, so the shares of its "
                    f"{' and '.join(sorted(read))} would be wrong: the same hashes would decide",
                    next_step=f"seed: {stage.seed + 1}",
                )


def _splits_read(files: Iterable[File]) -> dict[str, set[str]]:
    """The splits that a job reads of each dataset of penstock, by its folder."""
    read: dict[str, set[str]] = {}
    for file in files:
        if file.format == FORMAT:
            folder, split = os.path.split(file.location)
            read.setdefault(folder, set()).add(split)
    return read
