"""Passes: how a job's stages are cut into passes, and the Recipe of each. Next: settings.py, plan.py.

A pass reads the input's slices or the buckets of an exchange, runs some stages, and ends in shards (map, gather), in
a spill (scatter), or in an artifact alone (fit). Samples that become arrays end in parts, which a last pass places.
Rows that are compared have their keys put down (hash) and ranges of them matched first; tokens that are to be packed
end in parts, which a last pass cuts into rows (pack).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.base.files import Folder
from penstock.prepare.config import Config
from penstock.prepare.exchange import bucket_count
from penstock.prepare.groups import PartsByTask
from penstock.prepare.hashing import hash_positions
from penstock.prepare.keying import FromKeys
from penstock.prepare.packing import FromTokens
from penstock.prepare.placing import FromParts, columns_of, lay_out_parts
from penstock.prepare.sample_sinks import BatchesInto, DirectInto, PartsInto
from penstock.prepare.sinks import ShardsInto, SpillInto
from penstock.prepare.stage import Stage
from penstock.prepare.stages.normalize import Scale
from penstock.prepare.stages.pack import Pack, narrowed
from penstock.prepare.stages.split import Split
from penstock.prepare.survey import Survey
from penstock.prepare.task import FromBuckets, FromSlices, Into, Recipe
from penstock.prepare.text_sinks import KeysInto, TokensInto
from penstock.prepare.user_code import code_identity
from penstock.shards.packed import TOKENS
from penstock.shards.placed import Layout, lay_out_fixed
from penstock.shards.schema import Schema, schema_from_arrow

_POSITIONS_AT_ONCE = 1 << 20
_KEYS_A_BUCKET, _MOST_KEY_BUCKETS = 1 << 19, 1024
_LEAST_SPANS, _SLICES_A_SPAN = 8, 4
_MOST_OPEN = 200  # files that a task writes at once, each with its checksums; 1,024 is a common limit


@dataclass(frozen=True)
class Cut:
    """One pass: the stages it runs, from `first` up to `last`, and the fits among them that it does."""

    number: int
    kind: Literal["fit", "hash", "match", "map", "scatter", "gather", "place", "pack"]
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

    @property
    def reads(self) -> Literal["slices", "buckets", "keys", "parts", "tokens"]:
        other: dict[str, Literal["keys", "parts", "tokens"]] = {"match": "keys", "place": "parts", "pack": "tokens"}
        return other.get(self.kind) or ("slices" if self.spill < 0 else "buckets")

    @property
    def is_for_good(self) -> bool:
        """Whether what it does to rows counts; else a later pass does the same to the same rows again."""
        return self.kind not in ("fit", "hash", "match")

    @property
    def holds_little(self) -> bool:
        """Whether a task holds a known amount, whatever it reads."""
        return self.kind in ("match", "place", "pack")


def cut_passes(config: Config, survey: Survey) -> list[Cut]:
    """The passes of a job. Where parts are placed, what needs an artifact is measured on the way to the parts and
    applied when they are placed: so a user's function is called once."""
    stages = survey.stages
    if not places_parts(config, survey):
        cuts = _cut(stages)
        return [*cuts, Cut(len(cuts), "pack", len(stages), len(stages), ())] if packer_of(stages) else cuts
    fits = tuple(number for number, stage in enumerate(stages) if stage.fit() is not None)
    applied = first_applied(stages)
    return [Cut(0, "map", 0, len(stages), fits), Cut(1, "place", applied, len(stages), ())]


def first_applied(stages: tuple[Stage, ...]) -> int:
    """The first stage that needs an artifact; in an arrays job nothing else stands behind it."""
    return next((number for number, stage in enumerate(stages) if stage.uses_artifact), len(stages))


def places_parts(config: Config, survey: Survey) -> bool:
    return config.format == "arrays" and not counts_are_known(config, survey)


def counts_are_known(config: Config, survey: Survey) -> bool:
    """Whether every slice's rows and their splits are known before one is read, so that each has its place already."""
    split = split_of(survey.stages)
    if split and (split.by or "npz" in survey.formats):  # rows of batch files bring positions of their own
        return False
    return (
        config.on_bad_input == "fail"
        and config.merge_strategy == "sequential"
        and all(piece.rows >= 0 for piece in survey.slices)
        and all(stage.keeps_rows() for stage in survey.stages)
        and not any(field.parsed.is_text or field.parsed.is_list for field in survey.output)
        and len(survey.output) * len(splits_of(survey)) <= _MOST_OPEN
    )


def split_of(stages: tuple[Stage, ...]) -> Split | None:
    return next((stage for stage in stages if isinstance(stage, Split)), None)


def packer_of(stages: tuple[Stage, ...]) -> Pack | None:
    return next((stage for stage in stages if isinstance(stage, Pack)), None)


def _cut(stages: tuple[Stage, ...]) -> list[Cut]:
    """A stage with an exchange ends one pass and begins the next. A stage that needs its own artifact ends a fit
    pass; one that only leaves an artifact rides on the pass that runs it for good. One that compares rows has their
    keys hashed and matched first."""
    cuts: list[Cut] = []
    riding: tuple[int, ...] = ()
    first, spill = 0, -1
    for number, stage in enumerate(stages):
        if stage.exchange():
            cuts.append(Cut(len(cuts), "scatter", first, number + 1, riding, spill))
            first, spill, riding = number + 1, len(cuts) - 1, ()
        if stage.keyed_by():
            cuts.append(Cut(len(cuts), "hash", first, number, ()))
            cuts.append(Cut(len(cuts), "match", number, number, ()))
        if stage.uses_artifact:
            cuts.append(Cut(len(cuts), "fit", first, number + 1, (number,), spill))
        elif stage.fit() is not None:
            riding = (*riding, number)
    return [*cuts, Cut(len(cuts), "map" if spill < 0 else "gather", first, len(stages), riding, spill)]


def buckets_of(config: Config, survey: Survey) -> int:
    return bucket_count(survey.bytes, config.slice_bytes)


def key_buckets_of(survey: Survey) -> int:
    """Ranges of keys, each a task: what is too much for one is taken in pieces, so they decide nothing but speed."""
    return max(1, min(_MOST_KEY_BUCKETS, sum(map(survey.rows_of, survey.slices)) // _KEYS_A_BUCKET))


def splits_of(survey: Survey) -> tuple[str, ...]:
    names: tuple[str, ...] = ("train",)
    for stage in survey.stages:
        names = stage.splits() or names
    return names


def make_recipe(
    cut: Cut,
    config: Config,
    survey: Survey,
    artifacts: Mapping[int, Any] | None = None,
    root: str = "",
    source: FromParts | FromTokens | FromKeys | None = None,
) -> Recipe:
    """What a task of the pass does; stages that need an artifact are bound to it. `source` is what earlier tasks left,
    where it reads that."""
    artifacts = artifacts or {}
    stages = _bound(cut, survey, artifacts)
    root = root or config.output_path
    return Recipe(
        root=root,
        source=source or _source(cut, config, survey),
        names=dict(enumerate(config.stage_names)),
        stages=stages,
        fits=cut.fits,
        sink=_sink(cut, config, survey),
        code=tuple((target, code_identity(target)) for target in user_code(survey)),
        is_for_good=cut.is_for_good,
    )


def _bound(cut: Cut, survey: Survey, artifacts: Mapping[int, Any]) -> dict[int, Stage]:
    return {
        number: survey.stages[number].bind(artifacts[number]) if number in artifacts else survey.stages[number]
        for number in range(cut.first, cut.last)
    }


def user_code(survey: Survey) -> list[str]:
    """The user's own code in the job, each as module:name."""
    functions = [options.function for options in survey.sources if options.function]
    return [*functions, *(target for stage in survey.stages for target in stage.code())]


def from_parts(
    cut: Cut, config: Config, survey: Survey, artifacts: Mapping[int, Any], root: str, parts: PartsByTask
) -> FromParts:
    """What a pass places."""
    stages = _bound(cut, survey, artifacts)
    scales = {
        name: stage
        for number, stage in stages.items()
        if isinstance(stage, Scale)
        for name in stage.normalize.columns_of(survey.given[number])
    }
    written = part_schema(survey)
    layout = lay_out_parts(Folder(root), splits_of(survey), written, survey.output, parts)
    types = {name: dtype for name, dtype, _ in columns_of(written)}
    return FromParts(parts, layout, scales, types, config.merge_strategy == "accumulative")


def part_schema(survey: Survey) -> Schema:
    """Of samples before what needs an artifact."""
    applied = first_applied(survey.stages)
    if applied == len(survey.stages):
        return survey.output
    return schema_from_arrow(survey.given[applied], "the columns before they are normalised")


def direct_layout(survey: Survey) -> Layout:
    """Where the rows of each slice will be, by split: positions decide, and they are known."""
    splits, split = splits_of(survey), split_of(survey.stages)
    counts = np.zeros((len(splits), len(survey.slices)), "i8")
    for piece in survey.slices:
        for segment in piece.segments:
            end = segment.first_ordinal + segment.rows
            for start in range(segment.first_ordinal, end, _POSITIONS_AT_ONCE):
                stop = min(start + _POSITIONS_AT_ONCE, end)
                decided = np.zeros(stop - start, "u1")
                if split:
                    decided = split.decide(hash_positions([segment.path], None, np.arange(start, stop)))
                counts[:, piece.number] += np.bincount(decided, minlength=len(splits))
    columns = columns_of(survey.output)
    return {name: lay_out_fixed(name, columns, counts[number].tolist()) for number, name in enumerate(splits)}


def _source(cut: Cut, config: Config, survey: Survey) -> FromSlices | FromBuckets:
    if cut.spill < 0:
        reading = survey.reading(rows_at_once=1024, bytes_at_once=1 << 16)
        if cut.kind == "scatter" and all(stage.takes_codes() for stage in survey.stages[: cut.last]):
            texts = frozenset(field.name for field in survey.schema if pa.types.is_string(field.type))
            reading = replace(reading, codes=texts)
        return FromSlices(reading, config.on_bad_input)
    reducer = survey.stages[cut.reducer]
    exchange = reducer.exchange()
    assert exchange
    before = cut_passes(config, survey)[cut.spill]
    writer = _spill_into(before, config, survey)
    spills = tuple(writer.name(number) for number in range(task_count(before, config, survey)))
    return FromBuckets(
        stage=cut.reducer,
        name=config.stage_names[cut.reducer],
        reducer=reducer,
        exchange=exchange,
        buckets=writer.buckets,
        spills=spills,
        on_bad_input=config.on_bad_input,
    )


def _sink(cut: Cut, config: Config, survey: Survey) -> Into | None:
    if cut.kind == "fit" or cut.holds_little:
        return None
    if cut.kind == "hash":
        return KeysInto(cut.number, survey.stages[cut.last].keyed_by())
    if cut.kind == "scatter":
        return _spill_into(cut, config, survey)
    count = task_count(cut, config, survey)
    if packer_of(survey.stages):
        ids = narrowed(survey.given[-1].field(TOKENS).type.value_type)
        tokens = schema_from_arrow(pa.schema([(TOKENS, pa.list_(ids))]), "the tokens")
        return TokensInto(tokens, splits_of(survey), count)
    if config.format == "npz":
        return BatchesInto(survey.output, config.batch_size, survey.feature_names)
    if config.format == "arrays":
        if not places_parts(config, survey):
            return DirectInto(survey.output, direct_layout(survey))
        split = split_of(survey.stages)
        return PartsInto(part_schema(survey), splits_of(survey), count, split.by if split else ())
    exchange = survey.stages[cut.reducer].exchange() if cut.spill >= 0 else None
    return ShardsInto(survey.output, splits_of(survey), config.format, count, exchange)


def _spill_into(cut: Cut, config: Config, survey: Survey) -> SpillInto:
    exchange = survey.stages[cut.last - 1].exchange()
    assert exchange
    return SpillInto(cut.number, exchange, buckets_of(config, survey))


def task_count(cut: Cut, config: Config, survey: Survey) -> int:
    if cut.reads == "buckets":
        return buckets_of(config, survey)
    if cut.reads == "keys":
        return key_buckets_of(survey)
    if cut.reads == "tokens":  # a shard of a training set should not be tiny
        return max(min(len(survey.slices), _LEAST_SPANS), len(survey.slices) // _SLICES_A_SPAN)
    return 1 if cut.kind == "place" and config.merge_strategy == "accumulative" else len(survey.slices)
