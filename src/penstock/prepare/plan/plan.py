"""Plan: turn a Config and what is known of its input and machine into passes of tasks that each fit. Pure."""

import json
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.errors import PlanError
from penstock.base.fingerprint import digest, fingerprint
from penstock.base.shown import Shown
from penstock.base.sizes import counted, format_size
from penstock.prepare.budget.means import Means, Projection, Settings
from penstock.prepare.job.config import Config
from penstock.prepare.passes import Pass, Task
from penstock.prepare.passes.job import Job
from penstock.prepare.plan.settings import choose_settings, refuse_without_memory
from penstock.prepare.stages.interfaces import HasEngine, made_by
from penstock.prepare.survey.survey import Survey


@dataclass(frozen=True)
class Planned:
    """A pass with its tasks, and how they are done on this machine."""

    pass_: Pass
    tasks: tuple[Task, ...]
    settings: Settings
    projected: Projection


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """The work of a run: passes of tasks, with workers and batches that fit in memory. `penstock.run(plan)` does it.

    Attributes:
        config: The Config that was planned.
        survey: Files of the input with their columns and slices, and the stages.
        means: Memory, cores and disk that the run may use.
        passes: The passes in order, each with its `tasks`, its `settings` and the memory and disk `projected` for it.
        semantic: The job with every default that decides bytes, as it will stand in the manifest.
        splits: Names of the splits.
        job: Fingerprint of everything that decides the output's bytes.
    """

    config: Config
    survey: Survey
    means: Means
    passes: tuple[Planned, ...]
    semantic: dict[str, Any]
    splits: tuple[str, ...]
    job: str

    @property
    def projected_memory(self) -> int:
        """Bytes that the whole process tree will take at most."""
        return self._task_memory + self.proof_bytes

    @property
    def _task_memory(self) -> int:
        return max(each.projected.memory_bytes for each in self.passes)

    @property
    def proof_bytes(self) -> int:
        """Bytes for the comparison of engines beside the tasks; 0 if it is done, or waited for in front of them."""
        needed = sum(stage.unproved_bytes() for stage in self.survey.stages if isinstance(stage, HasEngine))
        return needed if self._task_memory + needed <= self.means.budget.allowed else 0

    @property
    def made_by(self) -> str:
        """Names of the engines of stages, for the ledger. Waits until they are chosen."""
        return made_by(self.survey.stages)

    @property
    def output_bytes(self) -> int:
        """Bytes of the finished dataset, estimated."""
        return sum(each.projected.output_bytes for each in self.passes)

    @property
    def scratch_bytes(self) -> int:
        """Bytes in scratch files, at most at one time, estimated."""
        return max(each.projected.scratch_bytes for each in self.passes)

    @property
    def workers(self) -> int:
        """Processes of the pass that has most of them."""
        return max(each.settings.workers for each in self.passes)

    @property
    def task_count(self) -> int:
        """Tasks in all passes."""
        return sum(len(each.tasks) for each in self.passes)

    def facts(self) -> dict[str, str]:
        survey, budget = self.survey, self.means.budget
        return {
            "output": self.config.output_path,
            "input": f"{_input_words(survey)} in {counted(len(survey.slices), 'slice')}",
            "passes": ", ".join(each.pass_.kind for each in self.passes),
            "tasks": f"{self.task_count:,}, {counted(self.workers, 'worker')}",
            "memory": f"about {format_size(self.projected_memory)} of {budget}",
            "disk": f"about {format_size(self.output_bytes)}",
        }

    def wait_for_engines(self) -> None:
        """Wait for the engines of stages, where planning left their choice open: one that fails says so now."""
        for stage in self.survey.stages:
            if isinstance(stage, HasEngine):
                stage.wait()


def make_plan(job: Job, passes: tuple[Pass, ...], means: Means) -> Plan:
    refuse_without_memory(passes, job.config, job.survey, means)
    planned, above = [], ""
    for each in passes:
        tasks = each.tasks(above)
        above = fingerprint([task.strict for task in tasks])
        settings = choose_settings(each, job.config, job.survey, means)
        projected = each.project(settings, means)
        task_bytes = max(1, (projected.memory_bytes - means.driver_bytes) // max(1, settings.workers))
        planned.append(Planned(each, tasks, replace(settings, task_bytes=task_bytes), projected))
    plan = Plan(job.config, job.survey, means, tuple(planned), job.semantic, job.splits, job.fingerprint)
    _refuse_without_disk(plan)
    _refuse_without_scratch(plan)
    return plan


def _input_words(survey: Survey) -> str:
    files = [format_size(survey.file_bytes)] if survey.files else []
    return " and ".join([*files, *([counted(survey.items, "item")] if survey.items else [])])


def input_facts(survey: Survey) -> dict[str, Any]:
    """Description of the input for the manifest."""
    described = survey.described
    files = [source for source, _, _ in described["files"] if survey.kinds[source].reads_files]
    facts = {"files": len(files), "bytes": survey.file_bytes, "digest": digest(json.dumps(described).encode())}
    items = {"items": survey.items} if survey.items else {}
    divided = {"divided_by": list(survey.divided_by)} if survey.divided_by else {}
    return {**facts, **items, **divided, **survey.origin}


def _refuse_without_disk(plan: Plan) -> None:
    output = plan.output_bytes
    spill = sum(each.projected.spill_bytes for each in plan.passes)
    if output + spill > plan.means.free_disk:
        raise PlanError(
            f"the output needs about {format_size(output + spill)} ({format_size(output)} of shards, "
            f"{format_size(spill)} while they are written); {format_size(plan.means.free_disk)} is free",
            where=plan.config.output_path,
            next_step="free some space, choose another `output:`, or `select` fewer columns",
        )


def _refuse_without_scratch(plan: Plan) -> None:
    scratch = plan.means.scratch
    if scratch and plan.scratch_bytes > scratch.free_bytes:
        raise PlanError(
            f"the job needs about {format_size(plan.scratch_bytes)} for scratch files; "
            f"{format_size(scratch.free_bytes)} is free",
            where=scratch.folder,
            next_step="set PENSTOCK_SCRATCH_DIR to a folder on a larger disk of this machine, or allow more `memory:`",
        )
