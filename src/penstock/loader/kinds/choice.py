"""Choice: what was asked for -> the kind of data that it is loaded as. Each kind says itself whether it serves."""

from collections.abc import Mapping
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.memory import Budget
from penstock.loader.asked.opening import Asked, Opened
from penstock.loader.kind import Kind
from penstock.loader.kinds.arrays import Arrays
from penstock.loader.kinds.events import Events
from penstock.loader.kinds.rows import Rows


def choose_kind(
    opened: tuple[Opened, ...], options: Mapping[str, Any], budget: Budget, larger_than_memory: bool
) -> Kind:
    asked = Asked(opened, options, budget, larger_than_memory)
    if Rows.serves(asked):
        return Rows.of(asked)
    if (overflow := asked.options["overflow"]) is not None:
        raise ConfigError(
            f"overflow={overflow!r} is about rows of tokens that were packed before, and this dataset has none",
            where=asked.where,
            next_step="leave overflow= out: events are taken as they fit, and arrays are whole",
        )
    if Arrays.serves(asked):
        return Arrays.of(asked)
    if asked.is_old:
        from penstock.loader.kinds.old_records import OldEvents

        return OldEvents.of(asked)
    return Events.of(asked)
