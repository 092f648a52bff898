"""Output: the columns that the stages give -> the columns of the dataset, with those of origins, or a refusal."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.base.errors import ConfigError
from penstock.prepare.job.config import Config
from penstock.prepare.sources import source_of
from penstock.prepare.sources.slices import Slice
from penstock.prepare.stages.filter import Filter
from penstock.prepare.stages.interfaces import Exchanges, TakesText
from penstock.prepare.stages.text.pack import Pack
from penstock.prepare.survey.checking import Checked
from penstock.prepare.survey.formats import refuse_unfit_format
from penstock.prepare.survey.lineage import Lineage, lineage_of, text_of
from penstock.shards.origins import HASH, ORIGIN, SURVIVOR, with_origins
from penstock.shards.schema import Schema

_OF_COLUMNS = ("safetensors", "npy")


class KeptOrigins(NamedTuple):
    """The columns of the dataset, and how those of origins are filled."""

    output: Schema
    hashed: str = ""
    lineage: Lineage | None = None


def kept_origins(config: Config, checked: Checked, formats: Sequence[str], slices: Sequence[Slice]) -> KeptOrigins:
    """Decide which origins are kept. Those that the input brings are kept too, unless the job says otherwise."""
    refuse_unfit_format(config, checked)
    if config.provenance is False:
        return KeptOrigins(checked.output)
    if config.provenance:
        _refuse_unfit(config, checked, formats)
    segments = (segment for piece in slices for segment in piece.segments)
    inputs = [source.semantic() for source in config.input]
    lineage, has_hashes = lineage_of(segments, formats, inputs, _keeps_packed(config, checked))
    groups = any(isinstance(stage, Exchanges) for stage in checked.stages)
    if not config.keeps_origins and (groups or not lineage.tables):
        return KeptOrigins(checked.output)
    hashed = text_of(checked.stages, checked.given) if config.provenance != "origins" else ""
    columns = (ORIGIN, HASH) if hashed or (has_hashes and config.provenance != "origins") else (ORIGIN,)
    is_packed = bool(checked.stages) and isinstance(checked.stages[-1], Pack)
    _refuse_taken(checked.output, columns)
    _refuse_old_marks(checked, lineage)
    per_segment = is_packed or lineage.per_segment
    return KeptOrigins(with_origins(checked.output, columns, per_segment), hashed, lineage)


def _keeps_packed(config: Config, checked: Checked) -> bool:
    """Whether documents stay where they are in rows that were packed before.

    A function of the user may move them, `tokenize` and `pack` make rows anew, and arrays have no lists.
    """
    moving = (stage for stage in checked.stages if isinstance(stage, TakesText | Pack | Exchanges))
    own = (stage for stage in checked.stages if stage.code() and not isinstance(stage, Filter))
    return config.format in _OF_COLUMNS and not any(moving) and not any(own)


def _refuse_unfit(config: Config, checked: Checked, formats: Sequence[str]) -> None:
    for name, stage in zip(config.stage_names, checked.stages, strict=True):
        if isinstance(stage, Exchanges):
            raise ConfigError(
                f"provenance: true: `{name}` makes one record of many rows, which have no single origin",
                next_step="provenance: false",
            )
    if any(source_of(each).keeps_positions for each in formats):
        raise ConfigError(
            "provenance: true: batch files hold samples of other files, and do not say which for all of them",
            next_step="provenance: false, or read the files that the samples were made of",
        )


def _refuse_taken(output: Schema, columns: Sequence[str]) -> None:
    for field in output:
        if field.name in columns:
            raise ConfigError(
                f"there is already a column {field.name!r}, in which the origins of rows are kept",
                next_step=f"provenance: false, or rename it first: `select: {{new_name: {field.name}}}`",
            )


def _refuse_old_marks(checked: Checked, lineage: Lineage) -> None:
    """Refuse marks of near-duplicates that an input brings: origins have other numbers in the new dataset."""
    is_kept = any(field.name == SURVIVOR for field in checked.output)
    if lineage.tables and is_kept and SURVIVOR in checked.given[0].names:
        raise ConfigError(
            f"the column {SURVIVOR!r} names origins of the input, which have other numbers in a new dataset",
            next_step="leave it out with `select`, behind a `filter` by it if you like",
        )
