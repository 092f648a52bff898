"""Choice: the datasets and options of load() -> the kind of batch. Each kind says whether it serves them."""

from penstock.base.errors import ConfigError
from penstock.loader.asked.opening import Asked
from penstock.loader.kind import Kind
from penstock.loader.kinds.arrays import Arrays
from penstock.loader.kinds.encoded import Encoded
from penstock.loader.kinds.events import Events
from penstock.loader.kinds.raw import Raw
from penstock.loader.kinds.rows import Rows


def choose_kind(asked: Asked) -> Kind:
    if asked.options["encode"] is not None:
        return Encoded.of(asked) if callable(asked.options["encode"]) else Raw.of(asked)
    if Rows.serves(asked):
        return Rows.of(asked)
    if (overflow := asked.options["overflow"]) is not None:
        raise ConfigError(
            f"overflow={overflow!r} is an option for packed rows of tokens, but this dataset has none",
            where=asked.where,
            next_step="leave overflow= out: events are chosen to fit, and arrays are never cut",
        )
    if Arrays.serves(asked):
        return Arrays.of(asked)
    if asked.is_old:
        from penstock.loader.kinds.old_records import OldEvents

        return OldEvents.of(asked)
    return Events.of(asked)
