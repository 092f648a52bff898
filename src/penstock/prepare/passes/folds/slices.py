"""Slices: the reader of the slices of the input. The worker's half: from_slices.py."""

from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.base.sizes import counted
from penstock.base.stores.store import Store
from penstock.prepare.budget.costs import SLICES, Measured, Measurement
from penstock.prepare.passes import Account, Batches, Facts, LedgerRows, Left, Task, Workload
from penstock.prepare.passes.folds.fold import Reader, Written, summed
from penstock.prepare.passes.folds.from_slices import FromSlices
from penstock.prepare.passes.job import Inputs, Job
from penstock.shards.manifest import Step

_BATCHES = Batches(wanted=4 << 20, good=1 << 20, least=64 << 10)  # 1 to 8 MiB were equally fast: LOG.md
_COLUMN_BYTES = 2048  # of a column in a batch: each costs the same per batch, however few its rows

_MUCH_LARGER = 2  # times the median


@dataclass(frozen=True)
class Slices(Reader):
    job: Job
    word = SLICES
    exchange = None

    @property
    def task_count(self) -> int:
        return len(self.job.survey.slices)

    def inputs(self) -> Inputs:
        slices, bits = self.job.survey.slices, self.job.survey.origin_bits
        return [
            (
                piece,
                [len(slices), piece.number, [segment.describe() for segment in piece.segments]]
                + ([] if bits is None else [piece.first, bits]),
            )
            for piece in slices
        ]

    def order(self, tasks: list[Task], store: Store) -> list[Task]:  # noqa: ARG002
        """Slices in the order of the files, but much larger ones first: such a one at the end, a compressed file for
        example, would leave other workers idle."""
        sizes = [piece.bytes for piece in self.job.survey.slices] or [0]
        much = _MUCH_LARGER * sorted(sizes)[len(sizes) // 2]
        return sorted(tasks, key=lambda task: -size if (size := sizes[task.input.number]) > much else 0)

    def batches(self, measured: Measured) -> Batches:  # noqa: ARG002
        wide = _COLUMN_BYTES * len(self.job.survey.schema)
        return _BATCHES._replace(wanted=max(_BATCHES.wanted, wide))

    def written(self, measured: Measured, workers: int) -> Written:
        row_bytes = measured.slices.output_row_bytes
        tasks = sorted((self.job.survey.rows_of(piece) for piece in self.job.survey.slices), reverse=True)
        at_once = sum(int(rows * row_bytes) for rows in tasks[: max(workers, 1)])
        return Written(int(self.job.rows * row_bytes), at_once, max(tasks, default=0) * row_bytes)

    def workload(self, measured: Measured, cost: Measurement) -> Workload:  # noqa: ARG002
        survey = self.job.survey
        return Workload(cost.seconds(self.job.rows), survey.file_bytes, sizes=tuple(map(survey.rows_of, survey.slices)))

    def source(self, takes_codes: bool, left: Left) -> FromSlices:  # noqa: ARG002
        survey = self.job.survey
        reading = survey.reading(rows_at_once=1024, bytes_at_once=1 << 16).within(self.job.allowed)
        if takes_codes:
            texts = frozenset(field.name for field in survey.schema if pa.types.is_string(field.type))
            reading = replace(reading, codes=texts)
        marks = survey.lineage.marks(survey.hashed, survey.slices) if survey.lineage else None
        reading = replace(reading, brings_origins=frozenset(marks.firsts if marks else ()))
        return FromSlices(reading, self.job.config.on_bad_input == "fail", marks)

    def count(self, account: Account, rows: LedgerRows) -> Account:
        """Files, rows that a user's function was given, and rows read."""
        survey = self.job.survey
        lost = [each.reason for each in survey.bad_files] + [title for row in rows for _, title in row.lost_files]
        aside = {reason: lost.count(reason) for reason in sorted(set(lost))}
        files = {"files": Step("files", "files", survey.files, survey.files - len(lost), aside)} if survey.files else {}
        read = summed("read", self.job.units[0], [row.steps["read"] for row in rows])
        unit = "rows" if any(each.takes_rows for each in survey.sources if each.function) else "items"
        return {**account, **files, **_given_to_functions(rows, unit), "read": read}

    def facts(self) -> Facts:
        return Facts((), "slices", "", f"{counted(self.task_count, 'slice')} of the input")


def _given_to_functions(rows: LedgerRows, unit: str) -> dict[str, Step]:
    """Rows of tables, or items, that a user's function made samples of."""
    steps = [row.steps["rows"] for row in rows if "rows" in row.steps]
    given = summed(unit, unit, steps)
    made = {"samples": sum(step.made["samples"] for step in steps)}
    return {"rows": replace(given, made=made)} if given.taken else {}
