"""Passes: how a job's stages are cut into passes, and the Recipe of each. Next: settings.py, plan.py.

A pass reads the input's slices or the buckets of an exchange, runs some stages, and ends in shards (map, gather), in
a spill (scatter), or in an artifact alone (fit).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from penstock.prepare.config import Config
from penstock.prepare.exchange import bucket_count
from penstock.prepare.sinks import ShardsInto, SpillInto
from penstock.prepare.stage import Stage
from penstock.prepare.survey import Survey
from penstock.prepare.task import FromBuckets, FromSlices, Recipe
from penstock.prepare.user_code import code_identity


@dataclass(frozen=True)
class Cut:
    """One pass: the stages it runs, from `first` up to `last`, and the fits among them that it does."""

    number: int
    kind: Literal["fit", "map", "scatter", "gather"]
    first: int
    last: int
    fits: tuple[int, ...]
    spill: int = -1  # number of the pass whose spill it reads; -1: it reads the input

    @property
    def reducer(self) -> int:
        """Number of the stage that reduces what the pass reads from a spill."""
        return self.first - 1

    @property
    def shown(self) -> range:
        """The stages that people see it run."""
        return range(self.first if self.spill < 0 else self.reducer, self.last)


def cut_passes(stages: tuple[Stage, ...]) -> list[Cut]:
    """A stage with an exchange ends one pass and begins the next. A stage that needs its own artifact ends a fit
    pass; one that only leaves an artifact rides on the pass that runs it for good."""
    cuts: list[Cut] = []
    riding: tuple[int, ...] = ()
    first, spill = 0, -1
    for number, stage in enumerate(stages):
        if stage.exchange():
            cuts.append(Cut(len(cuts), "scatter", first, number + 1, riding, spill))
            first, spill, riding = number + 1, len(cuts) - 1, ()
        if stage.uses_artifact:
            cuts.append(Cut(len(cuts), "fit", first, number + 1, (number,), spill))
        elif stage.fit() is not None:
            riding = (*riding, number)
    return [*cuts, Cut(len(cuts), "map" if spill < 0 else "gather", first, len(stages), riding, spill)]


def buckets_of(config: Config, survey: Survey) -> int:
    return bucket_count(survey.bytes, config.slice_bytes)


def splits_of(survey: Survey) -> tuple[str, ...]:
    names: tuple[str, ...] = ("train",)
    for stage in survey.stages:
        names = stage.splits() or names
    return names


def make_recipe(
    cut: Cut, config: Config, survey: Survey, artifacts: Mapping[int, Any] | None = None, root: str = ""
) -> Recipe:
    """What a task of the pass does; stages that need an artifact are bound to it."""
    artifacts = artifacts or {}
    stages = {
        number: survey.stages[number].bind(artifacts[number]) if number in artifacts else survey.stages[number]
        for number in range(cut.first, cut.last)
    }
    return Recipe(
        root=root or config.output_path,
        source=_source(cut, config, survey),
        names=dict(enumerate(config.stage_names)),
        stages=stages,
        fits=cut.fits,
        sink=_sink(cut, config, survey),
        code=tuple((target, code_identity(target)) for stage in survey.stages for target in stage.code()),
    )


def _source(cut: Cut, config: Config, survey: Survey) -> FromSlices | FromBuckets:
    if cut.spill < 0:
        reading = survey.reading(config, rows_at_once=1024, bytes_at_once=1 << 16)
        if cut.kind == "scatter" and all(stage.takes_codes() for stage in survey.stages[: cut.last]):
            texts = frozenset(field.name for field in survey.schema if pa.types.is_string(field.type))
            reading = replace(reading, codes=texts)
        return FromSlices(reading, config.on_bad_input)
    reducer = survey.stages[cut.reducer]
    exchange = reducer.exchange()
    assert exchange
    writer = _spill_into(cut_passes(survey.stages)[cut.spill], config, survey)
    spills = tuple(writer.name(number) for number in range(_task_count(cut.spill, config, survey)))
    return FromBuckets(
        stage=cut.reducer,
        name=config.stage_names[cut.reducer],
        reducer=reducer,
        exchange=exchange,
        buckets=writer.buckets,
        spills=spills,
    )


def _sink(cut: Cut, config: Config, survey: Survey) -> ShardsInto | SpillInto | None:
    if cut.kind == "fit":
        return None
    if cut.kind == "scatter":
        return _spill_into(cut, config, survey)
    count = _task_count(cut.number, config, survey)
    exchange = survey.stages[cut.reducer].exchange() if cut.spill >= 0 else None
    return ShardsInto(survey.output, splits_of(survey), config.format, count, exchange)


def _spill_into(cut: Cut, config: Config, survey: Survey) -> SpillInto:
    exchange = survey.stages[cut.last - 1].exchange()
    assert exchange
    return SpillInto(cut.number, exchange, buckets_of(config, survey))


def _task_count(number: int, config: Config, survey: Survey) -> int:
    reads_input = cut_passes(survey.stages)[number].spill < 0
    return len(survey.slices) if reads_input else buckets_of(config, survey)
