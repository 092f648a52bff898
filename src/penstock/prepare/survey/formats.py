"""Formats: refuse a job whose stages or columns do not fit `format:`, before a row is used. Called by taking.py.

A format that takes everything is not named here. How each is written is in passes/.
"""

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.job.config import Config
from penstock.prepare.stages.interfaces import Exchanges, Named, changes_values, split_of, splits_of
from penstock.prepare.stages.normalize import Normalize
from penstock.prepare.stages.stage import Stage
from penstock.prepare.survey.checking import Checked
from penstock.shards.foreign import arrayrecord, batch_file
from penstock.shards.placed import columns_of, file_of
from penstock.shards.schema import Schema, optional_names, schema_from_arrow


def refuse_unfit_format(config: Config, checked: Checked) -> None:
    if refuse := _REFUSALS.get(config.format):
        refuse(list(zip(config.stage_names, checked.stages, strict=True)), checked)


def _refuse_records(stages: list[Named], checked: Checked) -> None:
    """ArrayRecord: a file holds the records of `group`, as it made them, and nothing else."""
    each = zip(stages, checked.given, strict=True)
    groups = [(stage, taken) for (_, stage), taken in each if isinstance(stage, Exchanges)]
    if not groups:
        raise ConfigError("format: arrayrecord holds grouped events, and there is no `group` among the stages")
    group, taken = groups[-1]
    arrayrecord.refuse_unfit(taken, group.exchange().by, group.exchange().order)
    if group.describe().get("null_keys") == "group":
        raise ConfigError(
            "format: arrayrecord names records by their key, but null_keys: group makes a record without one"
        )
    made = group.output_schema(taken, pa.RecordBatch.from_pylist([], taken))
    if schema_from_arrow(made, "group") != checked.output:
        raise ConfigError(
            "format: arrayrecord holds records as `group` makes them, but a later stage changes their columns",
            next_step="do that before `group`, or leave `format:` out",
        )


def _refuse_arrays(stages: list[Named], checked: Checked) -> None:
    """Every column of every split is a file, so samples stay samples; `normalize` is done as they are placed."""
    is_behind = False  # `normalize`
    for number, (name, stage) in enumerate(stages):
        _refuse_stage(f"stages[{number}].{name}", stage, is_behind)
        is_behind = is_behind or isinstance(stage, Normalize)
        if isinstance(stage, Normalize):
            _refuse_scaled_nulls(f"stages[{number}].{name}", stage, checked.given[number])
    _refuse_columns("arrays", [stage for _, stage in stages], checked.output, checked.optional)


def _refuse_stage(name: str, stage: Stage, is_behind: bool) -> None:
    if isinstance(stage, Exchanges):
        raise ConfigError(f"{name}: it makes records from many rows, but format: arrays holds samples")
    if changes_values(stage) and not isinstance(stage, Normalize):
        raise ConfigError(f"{name}: with format: arrays, only `normalize` may measure rows first")
    if is_behind and not isinstance(stage, Normalize):
        raise ConfigError(
            f"{name}: it comes after `normalize`, but with format: arrays `normalize` is the last step",
            next_step="move it before `normalize`",
        )


def _refuse_scaled_nulls(name: str, stage: Normalize, given: pa.Schema) -> None:
    """A column is scaled as it is placed, without its nulls being looked at."""
    for column in sorted(optional_names(given).intersection(stage.columns_of(given))):
        raise ConfigError(
            f"{name}: column {column!r} may be null (`missing: {{{column}: null}}`), and format: arrays cannot "
            "normalize such a column",
            next_step=f"skip: [{column}], or a number in `missing:`, or format: safetensors",
        )


def _refuse_columns(word: str, stages: list[Stage], output: Schema, optional: frozenset[str] = frozenset()) -> None:
    """Refuse columns that cannot be arrays. `word` is the format in the job."""
    coded = [field.name for field in output if "dictionary" in field.type]
    if coded:
        raise ConfigError(f"format: {word}: column {coded[0]!r} is a dictionary; cast it to string")
    _refuse_without_groups(stages, output)
    files = [file_of(column, split) for split in splits_of(stages) for column, _, _ in columns_of(output, optional)]
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


def _refuse_batches(stages: list[Named], checked: Checked) -> None:
    """Batch files hold samples as they come, for a merge that comes later."""
    for number, (name, _) in enumerate(stages):
        raise ConfigError(
            f"stages[{number}].{name}: batch files hold samples before all stages; the merge applies stages"
        )
    batch_file.refuse_unfit(checked.output, "intermediate_dir")
    for column in sorted(checked.optional):
        raise ConfigError(
            f"column {column!r} may be null (`missing: {{{column}: null}}`), which a batch file cannot hold",
            where="intermediate_dir",
            next_step="a value in `missing:`, or leave out `intermediate_dir:`",
        )
    _refuse_columns("npz", [], checked.output)


_REFUSALS = {"arrayrecord": _refuse_records, "arrays": _refuse_arrays, "npz": _refuse_batches}
