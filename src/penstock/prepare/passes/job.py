"""Job: what was asked and what there is. Passes are cut from it, and tasks are named by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.base.fingerprint import fingerprint
from penstock.base.user_code import code_identity
from penstock.prepare.passes import Pass, Task, TaskInput
from penstock.prepare.stages.interfaces import Binds, splits_of
from penstock.prepare.stages.stage import Stage
from penstock.shards.manifest import FORMAT_VERSION

if TYPE_CHECKING:  # workers import the endings of passes, and do without these
    from penstock.prepare.job.config import Config
    from penstock.prepare.survey.survey import Survey

Inputs = Sequence[tuple[TaskInput, list[Any]]]  # what each task reads, and the same as JSON


@dataclass(frozen=True)
class Job:
    """`allowed` is the memory of which no row may take more than a share; it decides no byte of rows that fit."""

    config: Config
    survey: Survey
    allowed: int
    places: tuple[Any, ...] = ()  # where rows go, if the ending has that in every fingerprint

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.survey.stages

    @property
    def names(self) -> tuple[str, ...]:
        return self.config.stage_names

    @cached_property
    def rows(self) -> int:
        """Rows of the input, counted or estimated."""
        return sum(map(self.survey.rows_of, self.survey.slices))

    @cached_property
    def splits(self) -> tuple[str, ...]:
        return splits_of(self.stages)

    @cached_property
    def semantic(self) -> dict[str, Any]:
        return {**self.config.semantic(self.stages), **self.survey.kept_of_origins}

    @cached_property
    def fingerprint(self) -> str:
        """Name of everything that decides the bytes of the output."""
        return fingerprint([FORMAT_VERSION, self.semantic, self.survey.described])

    @cached_property
    def units(self) -> list[str]:
        """Units of rows before each stage, and after the last."""
        units = [self.survey.unit]
        for stage in self.stages:
            units.append(stage.unit_out or units[-1])
        return units

    @cached_property
    def code(self) -> tuple[tuple[str, str], ...]:
        """The user's own code that the plan was made with: (module:name, identity)."""
        return tuple((target, code_identity(target)) for target in user_code(self.survey))

    def bound(self, first: int, last: int, artifacts: Mapping[int, Any]) -> dict[int, Stage]:
        """Stages by number; those that need an artifact have it."""
        return {
            number: stage.bind(artifacts[number]) if number in artifacts and isinstance(stage, Binds) else stage
            for number, stage in enumerate(self.stages[first:last], start=first)
        }

    def make_tasks(
        self, of: Pass, above: str, last: int, inputs: Inputs, only: Mapping[str, Any] | None = None, buckets: int = 0
    ) -> tuple[Task, ...]:
        """Tasks whose fingerprints cover all that decides their bytes: the stages before `last`, the passes `above`.

        `only`: what stands behind the pass decides nothing of what it leaves, but this does.
        """
        what = {**self.semantic, "stages": self.semantic["stages"][:last], "on_bad_input": "fail"}
        given = [[field.name, str(field.type)] for field in self.survey.schema]
        written = [[field.name, field.type] for field in self.survey.output]
        if only is not None:
            what.pop("format")
            what |= only
            written = [[field.name, str(field.type)] for field in self.survey.given[max(0, last - 1)]]
        common = [FORMAT_VERSION, of.kind, above, what, given, written, buckets, *self.places]
        tasks = []
        for each, described in inputs:
            strict = fingerprint([common, *described])
            own = strict if self.config.on_bad_input == "fail" else fingerprint([self.config.on_bad_input, strict])
            tasks.append(Task(f"{of.number}-{of.kind}-{each.number:05d}", each, own, strict))
        return tuple(tasks)


def user_code(survey: Survey) -> list[str]:
    """The user's own code in the job, each as module:name."""
    functions = [options.function for options in survey.sources if options.function]
    return [*functions, *(target for stage in survey.stages for target in stage.code())]
