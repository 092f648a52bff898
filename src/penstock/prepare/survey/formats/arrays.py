"""Arrays: every column of every split is a file, so samples stay samples; `normalize` is done as they are placed."""

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.stages.interfaces import Applies, Exchanges, Named, split_of, splits_of
from penstock.prepare.stages.normalize import Normalize
from penstock.prepare.stages.stage import Stage
from penstock.shards.placed import columns_of, file_of
from penstock.shards.schema import Schema


def refuse_unfit(stages: list[Named], output: Schema, given: tuple[pa.Schema, ...]) -> None:  # noqa: ARG001
    is_behind = False  # `normalize`
    for number, (name, stage) in enumerate(stages):
        _refuse_stage(f"stages[{number}].{name}", stage, is_behind)
        is_behind = is_behind or isinstance(stage, Normalize)
    refuse_columns("arrays", [stage for _, stage in stages], output)


def _refuse_stage(name: str, stage: Stage, is_behind: bool) -> None:
    if isinstance(stage, Exchanges):
        raise ConfigError(f"{name}: it makes records of many rows, and format: arrays holds samples")
    if isinstance(stage, Applies) and not isinstance(stage, Normalize):
        raise ConfigError(f"{name}: in format: arrays only `normalize` may need what it measures")
    if is_behind and not isinstance(stage, Normalize):
        raise ConfigError(
            f"{name}: it stands behind `normalize`, which in format: arrays is done last, as arrays are placed",
            next_step="move it before `normalize`",
        )


def refuse_columns(word: str, stages: list[Stage], output: Schema) -> None:
    """Refuse columns that cannot be arrays. `word` is the format in the job."""
    coded = [field.name for field in output if "dictionary" in field.type]
    if coded:
        raise ConfigError(f"format: {word}: column {coded[0]!r} is a dictionary; cast it to string")
    _refuse_without_groups(stages, output)
    files = [file_of(column, split) for split in splits_of(stages) for column, _, _ in columns_of(output)]
    for file in files:
        if files.count(file) > 1:
            raise ConfigError(
                f"two columns would both be {file}", next_step="rename one: `select: {new_name: old_name, ...}`"
            )


def _refuse_without_groups(stages: list[Stage], output: Schema) -> None:
    split, names = split_of(stages), [field.name for field in output]
    lost = [name for name in split.by if name not in names] if split else []
    if lost:
        raise ConfigError(
            f"split by: {lost[0]}: a later stage drops that column, and the proof that no group is in two splits "
            "needs it",
            next_step=f"keep {lost[0]}: penstock.load leaves text out of batches by itself",
        )
