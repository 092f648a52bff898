"""Choice: the datasets and options of load() -> the kind of batch. Each kind says whether it serves them."""

from penstock.base.errors import ConfigError
from penstock.loader.asked.opening import Asked
from penstock.loader.kind import Kind
from penstock.loader.kinds.arrays import Arrays
from penstock.loader.kinds.documents import Documents
from penstock.loader.kinds.events import Events
from penstock.loader.kinds.excluding import Excluding
from penstock.loader.kinds.most_documents import allow_in_draws, allow_in_rows
from penstock.loader.kinds.rows import Rows
from penstock.loader.kinds.sequences.encoded import Encoded
from penstock.loader.kinds.sequences.raw import Raw

_ROWS = "packed rows of tokens"


def choose_kind(asked: Asked) -> Kind:
    if asked.options["exclude"] is not None:
        _refuse_excluding(asked)
        return Excluding(_choose(asked), asked)
    return _choose(asked)


def _choose(asked: Asked) -> Kind:
    if asked.options["encode"] is not None:
        return Encoded.of(asked) if callable(asked.options["encode"]) else Raw.of(asked)
    if not (is_stored := Rows.serves(asked)):
        _refuse_overflow(asked)
        if Arrays.serves(asked):
            return Arrays.of(asked)
    kind = Rows.of(asked) if is_stored else _choose_events(asked)
    if asked.options["documents"] is None:
        return kind
    return Documents(kind, (allow_in_rows if is_stored else allow_in_draws)(kind, asked))


def _refuse_excluding(asked: Asked) -> None:
    if (loaded := _loaded_as(asked)) != _ROWS:
        raise ConfigError(
            f"exclude= is an option for {_ROWS}, but this dataset is loaded as {loaded}",
            where=asked.where,
            next_step="leave exclude= out, and filter the records out when the dataset is made",
        )


def _loaded_as(asked: Asked) -> str:
    named = [name for name in ("encode", "columns", "fields") if asked.options[name] is not None]
    if "encode" not in named and Rows.serves(asked):
        return _ROWS
    kind = "columns as they are" if Arrays.serves(asked) else "tokens of events"
    kind = "windows of records" if "encode" in named else kind
    return f"{kind}, as {named[0]}= asks" if named else kind


def _choose_events(asked: Asked) -> Kind:
    if asked.is_old:
        from penstock.loader.kinds.old_records import OldEvents

        return OldEvents.of(asked)
    return Events.of(asked)


def _refuse_overflow(asked: Asked) -> None:
    if (overflow := asked.options["overflow"]) is not None:
        raise ConfigError(
            f"overflow={overflow!r} is an option for packed rows of tokens, but this dataset has none",
            where=asked.where,
            next_step="leave overflow= out: events are chosen to fit, and arrays are never cut",
        )
