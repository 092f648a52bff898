"""Recipe: what, beside the data, decides which rows batch k holds. Carried by a loader's state, compared on restore."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.fingerprint import fingerprint

STATE_VERSION = 1
_MOST_NAMES = 8  # of datasets spelled out in a state, so that it stays small
_SHORT = 16


@dataclass(frozen=True)
class Recipe:
    datasets: tuple[str, ...]  # their ids
    settings: Mapping[str, Any]

    def state(self, step: int) -> dict[str, Any]:
        return {"version": STATE_VERSION, "step": step, "datasets": _names(self.datasets), "recipe": self._facts()}

    def step_of(self, state: Mapping[str, Any]) -> int:
        """Where a state was; refused by name if it was of other data, or of rows made in another way."""
        if not isinstance(state, Mapping):
            hint = "json.loads it first" if isinstance(state, (str, bytes)) else "give what loader.state() returned"
            raise _refused(f"it is no dict but a {type(state).__name__}", hint)
        try:
            version, step = int(state["version"]), int(state["step"])
            datasets, facts = list(state["datasets"]), dict(state["recipe"])
        except (KeyError, TypeError, ValueError) as error:
            raise _refused(f"it is no state of a loader: {error!r}", "give what loader.state() returned") from error
        if version != STATE_VERSION:
            raise _refused(f"it is of version {version}, this is {STATE_VERSION}", "use the penstock that wrote it")
        if datasets != _names(self.datasets):
            raise _refused(
                f"it is of other data: datasets {', '.join(datasets)}, these are {', '.join(_names(self.datasets))}",
                "load the dataset it was saved with; one that was prepared again from the same input has the same id",
            )
        own = self._facts()
        differing = [name for name in {**facts, **own} if facts.get(name) != own.get(name)]
        if differing:
            listed = ", ".join(f"{name} was {facts.get(name)!r} and is {own.get(name)!r}" for name in differing)
            raise _refused(f"it is of another recipe: {listed}", "load with the options it was saved with")
        if step < 0:
            raise _refused(f"its step is {step}", "give what loader.state() returned")
        return step

    def _facts(self) -> dict[str, Any]:
        """Plain settings as they are, others by their fingerprint."""
        plain = (str, int, float, bool, type(None))
        return {
            name: value if isinstance(value, plain) or _is_short(value) else _fingerprint(value)
            for name, value in self.settings.items()
        }


def _fingerprint(value: Any) -> str:
    return fingerprint(json.loads(json.dumps(value)))[:_SHORT]


def _is_short(value: Any) -> bool:
    """Few whole numbers, such as draws and shares: people can read them when they differ."""
    return isinstance(value, list) and len(value) <= _MOST_NAMES and all(type(each) is int for each in value)


def _names(datasets: Sequence[str]) -> list[str]:
    return list(datasets) if len(datasets) <= _MOST_NAMES else [f"{len(datasets)} by {fingerprint(list(datasets))}"]


def _refused(reason: str, next_step: str) -> ConfigError:
    return ConfigError(f"this state cannot be restored: {reason}", where="loader.restore(state)", next_step=next_step)
