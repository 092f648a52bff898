"""Shards ending: a fold whose rows are the dataset, in a file per task and split, or one file per split."""

from dataclasses import dataclass, replace

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Means
from penstock.prepare.passes import Finished, LedgerRows, Need, shards_of
from penstock.prepare.passes.folds.fold import Ending, Reader, Written
from penstock.prepare.passes.folds.shards import ShardsInto
from penstock.prepare.passes.job import Job
from penstock.shards.foreign.arrayrecord_file import merge_parts

_MERGING = "format: arrayrecord ends with one process that reads and writes all records again"
_MERGE_BYTES, _MERGE_RECORD_BYTES = 32 << 20, 75  # measured 20 MB and 60 B: docs/decisions/0007-arrayrecord.md


@dataclass(frozen=True)
class ShardsEnding(Ending):
    splits: tuple[str, ...] = ()

    def disk(self, left: int, written: Written) -> tuple[int, int]:  # noqa: ARG002
        return written.at_once, written.in_all

    def behind(self, reader: Reader) -> Ending:
        assert isinstance(self.into, ShardsInto)
        return replace(self, into=replace(self.into, task_count=reader.task_count, exchange=reader.exchange))

    def finish(self, rows: LedgerRows, store: Store) -> Finished:  # noqa: ARG002
        return Finished(shards_of(rows, self.splits))


@dataclass(frozen=True, kw_only=True)
class OneFile(ShardsEnding):
    """The records of all tasks in one ArrayRecord file per split, which the driver puts together."""

    job: Job

    def driver(self, means: Means) -> Need:
        """Bytes of the driver while it writes the file: its index is in memory until the end."""
        rows = self.job.rows * means.measured.slices.given_per_row
        records = means.measured.growth.records_of(rows) if means.measured.growth else 0
        needed = means.driver_bytes + _MERGE_BYTES + int(_MERGE_RECORD_BYTES * records)
        return Need(
            needed,
            "putting the ArrayRecord file together needs {needed} at the end, most of it for the index of its records; "
            "only {budget} is allowed",
            "estimated from the keys among the first rows of the input",
            "leave `format:` out",
        )

    def finish(self, rows: LedgerRows, store: Store) -> Finished:
        parts = shards_of(rows, self.splits)
        return Finished({split: (merge_parts(store, split, parts[split]),) for split in self.splits})


def shards_ending(job: Job) -> Ending:
    config, survey = job.config, job.survey
    assert config.format in ("safetensors", "npy", "arrayrecord")
    into = ShardsInto(survey.output, job.splits, config.format, len(survey.slices), None)
    if config.format == "arrayrecord":
        return OneFile(
            "output", into=into, is_for_good=True, holds_output=True, left_out=_MERGING, splits=job.splits, job=job
        )
    return ShardsEnding("output", into=into, is_for_good=True, holds_output=True, splits=job.splits)
