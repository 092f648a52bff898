"""Output: the columns that the stages give -> the columns of the dataset, or a refusal. Called by taking.py."""

from collections.abc import Sequence

from penstock.base.errors import ConfigError
from penstock.prepare.job.config import Config
from penstock.prepare.sources import source_of
from penstock.prepare.stages.interfaces import Exchanges
from penstock.prepare.stages.text.pack import Pack
from penstock.prepare.survey.checking import Checked
from penstock.prepare.survey.formats import refuse_unfit_format
from penstock.shards.origins import ORIGIN, has_origins, with_origins
from penstock.shards.schema import Schema


def output_of(config: Config, checked: Checked, formats: Sequence[str]) -> Schema:
    """The columns of the dataset: with one for origins, if they are kept."""
    refuse_unfit_format(config, checked)
    if not config.keeps_origins:
        return checked.output
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
    if has_origins(checked.output):
        raise ConfigError(
            f"provenance: true: there is already a column {ORIGIN!r}, the name of the new column",
            next_step=f"provenance: false, or rename it first: `select: {{new_name: {ORIGIN}}}`",
        )
    is_packed = bool(checked.stages) and isinstance(checked.stages[-1], Pack)
    return with_origins(checked.output, per_segment=is_packed)
