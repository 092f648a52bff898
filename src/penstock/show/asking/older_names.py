"""Older names: flags of the scripts that penstock replaces -> the overrides they mean today."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.sizes import parse_size
from penstock.show.asking.overrides import Override

_STAGE_OF = {"max_record": "group", "test": "split"}
_ONE_PROCESS = {"strategy": "sequential", "workers": 0}
_SAME_AS: dict[str, Callable[[Any], Any]] = {  # how two values are told to be the same
    "strategy": str,
    "workers": str,
    "memory": lambda value: value if "%" in str(value) else parse_size(value),
    "max_record": parse_size,
    "test": lambda value: Decimal(str(value)),
}


def older_overrides(
    memory_limit_gb: str | None = None,
    max_row_size_mb: str | None = None,
    train_ratio: str | None = None,
    parallel: str | None = None,
) -> list[Override]:
    found = []
    if parallel is not None:
        if parallel.lower() not in ("true", "false"):
            raise ConfigError(f"{parallel!r} is neither true nor false", where=f"--parallel {parallel}")
        if parallel.lower() == "false":  # whatever number of workers the file has
            found += [Override((key,), value, f"--parallel {parallel}") for key, value in _ONE_PROCESS.items()]
    if memory_limit_gb:
        option = f"--memory-limit-gb {memory_limit_gb}"
        found.append(Override(("memory",), f"{_number(memory_limit_gb, option)}GB", option))
    if max_row_size_mb:
        option = f"--max-row-size-mb {max_row_size_mb}"
        found.append(Override(("max_record",), f"{_number(max_row_size_mb, option)}MiB", option))
    if train_ratio:
        option = f"--train-ratio {train_ratio}"
        ratio = _number(train_ratio, option)
        if ratio > 1:
            raise ConfigError(f"{ratio} is not a share between 0 and 1", where=option)
        found.append(Override(("test",), float(1 - ratio), option))
    return found


def _number(text: str, option: str) -> Decimal:
    """A decimal as it was written: 1 - 0.9 is 0.1, and not 0.09999999999999998."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal(0)
    if not number.is_finite() or number <= 0:
        raise ConfigError(f"{text!r} is not a number above zero", where=option)
    return number


def refuse_contradiction(older: Sequence[Override], others: Sequence[Override]) -> None:
    """An older name and today's may both be given, if they say the same."""
    for each in older:
        for other in others:
            if each.keys == other.keys and _differ(each.keys[-1], each.value, other.value):
                raise ConfigError(
                    f"{each.option} and {other.option} contradict each other",
                    where="the command line",
                    next_step=f"leave one of them out; the first means {each.keys[-1]}: {each.value}",
                )


def _differ(key: str, older: Any, other: Any) -> bool:
    if key not in _SAME_AS:  # stages: the split was taken out of those that the other option gave
        return False
    try:
        return bool(_SAME_AS[key](older) != _SAME_AS[key](other))
    except (ValueError, InvalidOperation):  # an error of its own, but which of the two was meant?
        return True


def into_stages(older: Sequence[Override], written: Mapping[str, Any]) -> list[Override]:
    """Overrides of a job file: an option of a stage gets the keys to that stage."""
    return [_into_stage(each, written) if each.keys[0] in _STAGE_OF else each for each in older]


def _into_stage(older: Override, written: Mapping[str, Any]) -> Override:
    (key,) = older.keys
    name = _STAGE_OF[key]
    stages = written.get("stages") if isinstance(written.get("stages"), list) else []
    assert isinstance(stages, list)
    places = [number for number, stage in enumerate(stages) if isinstance(stage, dict) and name in stage]
    if len(places) != 1:
        found = f"{len(places)} of them" if places else "none"
        raise ConfigError(
            f"it sets `{key}` of the stage `{name}`, but this job has {found}",
            where=older.option,
            next_step=f"choose one: --set stages.NUMBER.{name}.{key}=..."
            if places
            else f"add `- {name}: ...` to its stages",
        )
    (place,) = places
    if key == "test":
        _refuse_other_shares(older, stages[place][name])
        if older.value == 0:
            return Override(("stages",), [*stages[:place], *stages[place + 1 :]], older.option)
    return Override(("stages", str(place), name, key), older.value, older.option)


def _refuse_other_shares(older: Override, shares: Any) -> None:
    others = [str(split) for split in shares if split not in ("by", "test")] if isinstance(shares, dict) else []
    if others:
        raise ConfigError(
            f"it sets only the share of test, but this job also has {', '.join(others)}",
            where=older.option,
            next_step="set each share: --set stages.NUMBER.split.test=...",
        )
