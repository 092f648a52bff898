"""Choice: the datasets and options of load() -> the kind of batch. Each kind says whether it serves them."""

from penstock.base.errors import ConfigError
from penstock.loader.asked.opening import Asked
from penstock.loader.kind import Kind
from penstock.loader.kinds.arrays import Arrays
from penstock.loader.kinds.events import Events
from penstock.loader.kinds.excluding import ExcludingRows
from penstock.loader.kinds.rows import Rows


def choose_kind(asked: Asked) -> Kind:
    if Rows.serves(asked):
        return (Rows if asked.options["exclude"] is None else ExcludingRows).of(asked)
    if (overflow := asked.options["overflow"]) is not None:
        raise ConfigError(
            f"overflow={overflow!r} is an option for packed rows of tokens, but this dataset has none",
            where=asked.where,
            next_step="leave overflow= out: events are chosen to fit, and arrays are never cut",
        )
    if asked.options["exclude"] is not None:
        raise ConfigError(
            "exclude= is an option for packed rows of tokens, but this dataset has none",
            where=asked.where,
            next_step="leave exclude= out, and filter the samples out when the dataset is made",
        )
    if Arrays.serves(asked):
        return Arrays.of(asked)
    if asked.is_old:
        from penstock.loader.kinds.old_records import OldEvents

        return OldEvents.of(asked)
    return Events.of(asked)
