"""ArrayRecord: a file holds the records of `group`, as it made them, and nothing else."""

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.stages.interfaces import Exchanges, Named
from penstock.shards.foreign import arrayrecord
from penstock.shards.schema import Schema, schema_from_arrow


def refuse_unfit(stages: list[Named], output: Schema, given: tuple[pa.Schema, ...]) -> None:
    groups = [(stage, taken) for (_, stage), taken in zip(stages, given, strict=True) if isinstance(stage, Exchanges)]
    if not groups:
        raise ConfigError("format: arrayrecord holds grouped events, and there is no `group` among the stages")
    group, taken = groups[-1]
    arrayrecord.refuse_unfit(taken, group.exchange().by, group.exchange().order)
    if group.describe().get("null_keys") == "group":
        raise ConfigError("format: arrayrecord names records by their key, and null_keys: group makes one without")
    made = group.output_schema(taken, pa.RecordBatch.from_pylist([], taken))
    if schema_from_arrow(made, "group") != output:
        raise ConfigError(
            "format: arrayrecord holds records as `group` makes them, and a stage behind it changes their columns",
            next_step="do that before `group`, or leave `format:` out",
        )
