"""Plan: turn a Config and what is known of its input and machine into passes of tasks that each fit. Next: run.py.

Pure: `make_plan` reads nothing and writes nothing. What is logical (slices, buckets, names, fingerprints) comes from
the job and its input; what is physical (settings.py) comes from the means it was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import PlanError
from penstock.base.fingerprint import fingerprint
from penstock.base.sizes import format_size
from penstock.prepare.config import Config
from penstock.prepare.exchange import Bucket
from penstock.prepare.keying import KeyRange
from penstock.prepare.packing import Span
from penstock.prepare.passes import (
    Cut,
    buckets_of,
    cut_passes,
    direct_layout,
    places_parts,
    splits_of,
    task_count,
)
from penstock.prepare.placing import Part
from penstock.prepare.projection import Projection, project, refuse_without_merge_memory
from penstock.prepare.settings import Means, Settings, choose_settings, refuse_without_memory
from penstock.prepare.survey import Survey, describe_files
from penstock.prepare.task import Task
from penstock.shards.manifest import FORMAT_VERSION


@dataclass(frozen=True)
class Pass:
    cut: Cut
    tasks: tuple[Task, ...]
    settings: Settings
    projected: Projection


@dataclass(frozen=True)
class Plan:
    config: Config
    survey: Survey
    means: Means
    passes: tuple[Pass, ...]
    semantic: dict[str, Any]
    job: str  # fingerprint of everything that decides output bytes

    @property
    def projected_memory(self) -> int:
        return max(each.projected.memory_bytes for each in self.passes)

    @property
    def workers(self) -> int:
        return max(each.settings.workers for each in self.passes)

    @property
    def splits(self) -> tuple[str, ...]:
        return splits_of(self.survey)


def make_plan(config: Config, survey: Survey, means: Means) -> Plan:
    semantic = config.semantic(survey.stages)
    job = fingerprint([FORMAT_VERSION, semantic, describe_input(survey)])
    cuts = cut_passes(config, survey)
    refuse_without_memory(cuts, config, survey, means)
    refuse_without_merge_memory(config, survey, means)
    passes = []
    above = ""
    for cut in cuts:
        tasks = _tasks(cut, above, config, survey, semantic)
        above = fingerprint([task.fingerprint for task in tasks])
        settings = choose_settings(cut, config, survey, means)
        passes.append(Pass(cut, tasks, settings, project(cut, config, survey, means, settings)))
    plan = Plan(config, survey, means, tuple(passes), semantic, job)
    _refuse_without_disk(plan)
    return plan


def _tasks(cut: Cut, above: str, config: Config, survey: Survey, semantic: dict[str, Any]) -> tuple[Task, ...]:
    what = {**semantic, "stages": semantic["stages"][: cut.last]}
    given = [[field.name, str(field.type)] for field in survey.schema]
    written = [[field.name, field.type] for field in survey.output]  # a function's columns come from the first rows
    if cut.kind in ("scatter", "hash", "match"):  # what stands behind it decides nothing of a spill
        what.pop("format")
        written = [[field.name, str(field.type)] for field in survey.given[max(0, cut.last - 1)]]
    if cut.kind in ("hash", "match"):  # by what it compares, and with what
        stage = survey.stages[cut.last]
        what["dedup"] = stage.keyed_by() if cut.kind == "hash" else stage.describe()
    buckets = buckets_of(config, survey) if cut.kind in ("scatter", "gather") or cut.spill >= 0 else 0
    common = [FORMAT_VERSION, cut.kind, above, what, given, written, buckets, *_places(config, survey)]
    if cut.reads != "slices":
        every = _inputs(cut, task_count(cut, config, survey), len(survey.slices))
        return tuple(Task(_name(cut, each.number), each, fingerprint([common, each.describe()])) for each in every)
    return tuple(
        Task(
            _name(cut, piece.number),
            piece,
            fingerprint([common, len(survey.slices), piece.number, [each.describe() for each in piece.segments]]),
        )
        for piece in survey.slices
    )


def _inputs(cut: Cut, count: int, slices: int) -> Sequence[Bucket | Part | KeyRange | Span]:
    """What the tasks of a pass read that does not read slices."""
    if cut.reads == "keys":
        return [KeyRange(number) for number in range(count)]
    if cut.reads == "tokens":
        return [Span(number, count) for number in range(count)]
    if cut.reads == "parts":
        return [Part(0, slices)] if count == 1 else [Part(number, number + 1) for number in range(slices)]
    return [Bucket(number) for number in range(count)]


def _places(config: Config, survey: Survey) -> list[Any]:
    """Where tasks put samples: in parts, or at their places, which depend on the rows of every slice before."""
    if config.format != "arrays":
        return []
    if places_parts(config, survey):
        return ["parts"]
    return ["direct", [columns[0].starts for columns in direct_layout(survey).values()]]


def _name(cut: Cut, number: int) -> str:
    return f"{cut.number}-{cut.kind}-{number:05d}"


def describe_input(survey: Survey) -> dict[str, Any]:
    described = describe_files(survey.slices, survey.bad_files)
    if survey.feature_names:  # features were put in their order
        described["feature_names"] = survey.feature_names
    paths = [[segment.source, segment.path] for piece in survey.slices for segment in piece.segments]
    if "npz" in survey.formats and paths != sorted(paths):
        described["order"] = "numbers"  # of batch files, where that is not the order of their names
    return described


def _refuse_without_disk(plan: Plan) -> None:
    output = plan.passes[-1].projected.output_bytes
    spill = sum(each.projected.spill_bytes for each in plan.passes)
    if output + spill > plan.means.free_disk:
        raise PlanError(
            f"the output needs about {format_size(output + spill)} ({format_size(output)} of shards, "
            f"{format_size(spill)} while they are written); {format_size(plan.means.free_disk)} is free",
            where=plan.config.output_path,
            next_step="free some space, choose another `output:`, or `select` fewer columns",
        )
