"""Place: a pass that copies parts of samples to their places in the dataset's arrays, normalized on the way."""

from dataclasses import dataclass, field

from penstock.base.errors import PlanError
from penstock.base.sizes import counted, format_size
from penstock.base.stores.store import PLACING, Store
from penstock.prepare.budget.costs import Measured
from penstock.prepare.budget.means import Means, Projection, Settings, memory_with
from penstock.prepare.passes import Facts, Finished, Holds, LedgerRows, Left, Need, Pass, Task, Workload
from penstock.prepare.passes.arrays.finishing import archive_bytes, finish_arrays
from penstock.prepare.passes.arrays.moving import changes_of, first_applied, part_schema
from penstock.prepare.passes.arrays.parts import lay_out_parts
from penstock.prepare.passes.arrays.placing import Part, PlaceWork
from penstock.prepare.passes.job import Job
from penstock.shards.placed import Layout, make_room

_HELD_BYTES = 24 << 20  # 2 MiB at a time, and what scaling them takes in float64
_BYTES_PER_SECOND = 1e9  # of one worker


@dataclass(frozen=True)
class Place(Pass):
    job: Job
    before: int  # the pass that left the parts
    is_for_good = True
    # To lay out reads a little of every part. When the pass is over, their pages are gone, and the disk is slow.
    _laid_out: list[tuple[object, Layout]] = field(default_factory=list, compare=False, repr=False)

    @property
    def _is_in_memory(self) -> bool:
        return self.job.config.merge_strategy == "accumulative"

    @property
    def task_count(self) -> int:
        return 1 if self._is_in_memory else len(self.job.survey.slices)

    def tasks(self, above: str) -> tuple[Task, ...]:
        slices = len(self.job.survey.slices)
        parts = [Part(0, slices)] if self.task_count == 1 else [Part(number, number + 1) for number in range(slices)]
        inputs = [(part, [[part.number, part.last]]) for part in parts]
        return self.job.make_tasks(self, above, len(self.job.stages), inputs)

    def _held_bytes(self, measured: Measured) -> int:
        """Bytes that a task holds. With merge_strategy: accumulative, this is everything."""
        if not self._is_in_memory:
            return _HELD_BYTES
        return _HELD_BYTES + int(1.1 * self.job.rows * measured.slices.output_row_bytes)

    def holds(self, means: Means) -> Holds:
        sequential = "merge_strategy: sequential, which holds a few megabytes and gives the same bytes"
        need = Need(
            self._held_bytes(means.measured),
            "placing the samples needs {needed}; {budget} is allowed",
            f"merge_strategy: {self.job.config.merge_strategy}",
            sequential if self._is_in_memory else "",
        )
        return Holds(means.measured.slices, known=need)

    def _output_bytes(self, means: Means) -> int:
        return int(self.job.rows * means.measured.slices.output_row_bytes) + archive_bytes(self.job)

    def workload(self, means: Means) -> Workload:
        return Workload(self._output_bytes(means) / _BYTES_PER_SECOND, reads=(self.before,))

    def project(self, settings: Settings, means: Means) -> Projection:
        memory = memory_with(settings.workers, self._held_bytes(means.measured), means)
        seconds = self.workload(means).seconds_with(settings, means.cores)
        return Projection(memory, 0, self._output_bytes(means), seconds, self.job.rows)

    def facts(self) -> Facts:
        parts = counted(self.task_count, "part") if self.task_count > 1 else "all parts"
        stages = tuple(range(first_applied(self.job.stages), len(self.job.stages)))
        return Facts(stages, "parts", "output", f"{parts} of pass {self.before}")

    def prepare(self, left: Left, store: Store, kept: LedgerRows, means: Means) -> PlaceWork:  # noqa: ARG002
        work = self._work(left, store)
        self._refuse_without_room(work, means)
        return work

    def begin(self, work: PlaceWork, store: Store, kept: LedgerRows, alone: bool) -> None:
        if alone and not any(row.identity == work.identity for row in kept):
            store.remove(PLACING)
        make_room(store, work.layout)

    def _work(self, left: Left, store: Store) -> PlaceWork:
        parts = tuple(row.shards for row in left.rows[self.before])
        known = store.root, parts  # a plan may be run again, into another folder
        if not self._laid_out or self._laid_out[0][0] != known:
            schemas = part_schema(self.job), self.job.survey.output
            layout = lay_out_parts(store, self.job.splits, *schemas, parts, self.job.survey.optional)
            self._laid_out[:] = [(known, layout)]
        layout = self._laid_out[0][1]
        artifacts = {number: each.artifact for number, each in left.learned.items()}
        return PlaceWork(store.root, parts, layout, changes_of(self.job, artifacts), self._is_in_memory)

    def _refuse_without_room(self, work: PlaceWork, means: Means) -> None:
        """Refuse merge_strategy: accumulative if the data does not fit, now that its size is known."""
        allowed, used = means.budget.allowed, means.driver_bytes + means.measured.slices.worker_bytes
        if work.in_memory and used + work.bytes > allowed:
            raise PlanError(
                f"merge_strategy: accumulative holds all samples at once, {format_size(work.bytes)}; "
                f"{means.budget} leaves {format_size(max(0, allowed - used))}",
                where=self.job.config.output_path,
                next_step="merge_strategy: sequential, which holds a few megabytes and gives the same bytes; "
                "finished tasks are kept",
            )

    def finish(self, left: Left, store: Store) -> Finished:
        work = self._work(left, store)
        return finish_arrays(self.job, work.layout, left.rows[self.number], store, work.parts)
