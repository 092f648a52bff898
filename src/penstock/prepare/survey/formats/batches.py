"""Batches: files of samples as they come, for a merge that comes later."""

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.stages.interfaces import Named
from penstock.prepare.survey.formats.arrays import refuse_columns
from penstock.shards.foreign import batch_file
from penstock.shards.schema import Schema


def refuse_unfit(stages: list[Named], output: Schema, given: tuple[pa.Schema, ...]) -> None:  # noqa: ARG001
    for number, (name, _) in enumerate(stages):
        raise ConfigError(f"stages[{number}].{name}: batch files hold samples as they come; stages are for the merge")
    batch_file.refuse_unfit(output, "intermediate_dir")
    refuse_columns("npz", [], output)
