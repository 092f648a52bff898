"""Recipe: the options that decide which rows batch k holds. Part of a loader's state, compared on restore."""

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.fingerprint import fingerprint
from penstock.base.numbers import is_whole
from penstock.loader.order.phases import Phases, differing_phases

STATE_VERSION = 2  # 1 had another order of records
MOST_STEPS = 2**40  # no run gets there, and the rows of a batch stay within 64 bits
_FURTHEST = 2**64
_AS_RETURNED = "give what loader.state() returned"
_MOST_NAMES = 8  # of datasets spelled out in a state, so that it stays small
_SHORT = 16


@dataclass(frozen=True)
class Recipe:
    datasets: tuple[str, ...]  # their ids
    settings: Mapping[str, Any]  # with the batch size and the shares of the first phase

    def state(self, step: int, phases: Phases) -> dict[str, Any]:
        """Only the phases that have begun are in it: those to come may still be changed. `padded` says that the
        last batch of the run is before the step, and has rows of padding."""
        later = {"phases": begun} if (begun := phases.begun(step)) else {}
        recipe = {**self._facts(), **later}
        padded = {"padded": rows} if (rows := phases.padding(step)) else {}
        return {"version": STATE_VERSION, "step": step, "datasets": _names(self.datasets), "recipe": recipe, **padded}

    def step_of(self, state: Mapping[str, Any], phases: Phases) -> int:
        """Step of a state. A state of other data or another recipe is refused, and the error names the difference."""
        if not isinstance(state, Mapping):
            hint = "json.loads it first" if isinstance(state, (str, bytes)) else _AS_RETURNED
            raise _refused(f"it is no dict but a {type(state).__name__}", hint)
        missing = [name for name in ("version", "step", "datasets", "recipe") if name not in state]
        if missing:
            raise _refused(f"it has no {', '.join(missing)}", _AS_RETURNED)
        _refuse_version(_whole(state, "version"))
        step, datasets, facts = _whole(state, "step"), state["datasets"], state["recipe"]
        if not isinstance(datasets, (list, tuple)) or not all(isinstance(each, str) for each in datasets):
            raise _refused(f"its datasets are {datasets!r}, and not a list of ids", _AS_RETURNED)
        if not isinstance(facts, Mapping) or not all(isinstance(each, str) for each in facts):
            raise _refused(f"its recipe is {facts!r}, and not a dict of settings", _AS_RETURNED)
        datasets = list(datasets)
        if datasets != _names(self.datasets):
            raise _refused(
                f"it is of other data: datasets {', '.join(datasets)}, these are {', '.join(_names(self.datasets))}",
                "load the dataset it was saved with; one that was prepared again from the same input has the same id",
            )
        if not 0 <= step <= MOST_STEPS:
            raise _refused(f"its step is {step:,}, and steps are from 0 to {MOST_STEPS:,}", _AS_RETURNED)
        own, were = self._facts(), {name: value for name, value in facts.items() if name != "phases"}
        differing = [name for name in {**were, **own} if not _are_equal(were, own, name)]
        if differing:
            listed = ", ".join(f"{name} was {facts.get(name)!r} and is {own.get(name)!r}" for name in differing)
            raise _refused(f"it is of another recipe: {listed}", "load with the options it was saved with")
        self._refuse_phases(step, facts.get("phases", []), phases.begun(step))
        padded = _whole(state, "padded") if "padded" in state else 0
        if padded and padded != phases.padding(step):
            raise _refused(
                f"the run that it was saved in ended with batch {step - 1:,}, of which {padded:,} rows are padding; in "
                "this one the batch is full of records, which would never be given",
                "begin with step 0 and the longer run, or restore a state before that batch, which is made anew",
            )
        return step

    def _refuse_phases(self, step: int, were: Any, own: list[dict[str, Any]]) -> None:
        """Refuse phases that made other batches before `step`."""
        if not isinstance(were, (list, tuple)) or not all(isinstance(each, Mapping) for each in were):
            raise _refused(f"its phases are {were!r}, and not a list of phases", _AS_RETURNED)
        if words := differing_phases(own, were):
            raise _refused(
                f"it is of other phases: by batch {step:,}, {words}",
                "give phases that agree with those of the run up to this batch; later ones may differ",
            )

    def _facts(self) -> dict[str, Any]:
        """Plain settings as they are, others by their fingerprint."""
        return {
            name: value if _is_short(value) else fingerprint(json.loads(json.dumps(value)))[:_SHORT]
            for name, value in self.settings.items()
        }


def _whole(state: Mapping[str, Any], name: str) -> int:
    if not is_whole(state[name], -_FURTHEST, _FURTHEST):
        raise _refused(f"its {name} is {state[name]!r}, and not a whole number", _AS_RETURNED)
    return operator.index(state[name])


def _refuse_version(version: int) -> None:
    if version > STATE_VERSION or version < 1:
        raise _refused(f"it is of version {version}, this is {STATE_VERSION}", "use the penstock that wrote it")
    if version < STATE_VERSION:
        raise _refused(
            f"it was made by an earlier version, whose order was different (version {version}, this is "
            f"{STATE_VERSION}): batch k of that order holds other rows than batch k of this one",
            "use the penstock that wrote it to the end of this run, or start a new pass over the data",
        )


def _are_equal(facts: Mapping[str, Any], own: Mapping[str, Any], name: str) -> bool:
    """Whether two values are equal as JSON: a state may come from a file."""
    if name not in facts or name not in own:
        return False
    try:
        return json.dumps(facts[name]) == json.dumps(own[name])
    except (TypeError, ValueError):
        return False


def _is_short(value: Any) -> bool:
    """Plain, or few whole numbers, such as draws and shares: people can read them when they differ."""
    if isinstance(value, list):
        return len(value) <= _MOST_NAMES and all(type(each) is int for each in value)
    return isinstance(value, str | int | float | bool | None)


def _names(datasets: Sequence[str]) -> list[str]:
    return list(datasets) if len(datasets) <= _MOST_NAMES else [f"{len(datasets)} by {fingerprint(list(datasets))}"]


def _refused(reason: str, next_step: str) -> ConfigError:
    return ConfigError(f"this state cannot be restored: {reason}", where="loader.restore(state)", next_step=next_step)
