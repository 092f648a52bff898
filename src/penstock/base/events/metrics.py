"""Metrics: calls a function of yours with numbers for a logger, at most once per interval. Runs and loaders use it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import TypeAlias

from penstock.base.errors import ConfigError, printable
from penstock.base.numbers import is_positive

Numbers: TypeAlias = dict[str, float]
OnMetrics: TypeAlias = Callable[[Numbers], object]
SECONDS = 10.0
_COST = 100  # the next call comes no sooner than so many times what the last one took: it costs at most a hundredth


class Metrics:
    """A function and its interval. An error that it raises becomes one warning, and does not end the run."""

    def __init__(self, function: OnMetrics | None, seconds: float, where: str) -> None:
        if function is not None and not callable(function):
            raise ConfigError(
                f"on_metrics={function!r} cannot be called",
                where=where,
                next_step="give a function that takes one dict of numbers, such as wandb.log",
            )
        if not is_positive(seconds):
            raise ConfigError(f"metrics_seconds={seconds!r}", where=where, next_step="give seconds above 0")
        self._function, self._seconds, self._where = function, seconds, where
        self._next = time.monotonic() + seconds
        self._is_warned = False

    @property
    def is_due(self) -> bool:
        return self._function is not None and time.monotonic() >= self._next

    @property
    def is_wanted(self) -> bool:
        return self._function is not None

    def tell(self, numbers: Mapping[str, float]) -> None:
        """Call the function now."""
        assert self._function is not None
        began = time.monotonic()
        try:
            self._function(dict(numbers))
        except Exception as error:
            self._warn(error)
        took = time.monotonic() - began
        self._next = began + took + max(self._seconds, _COST * took)

    def _warn(self, error: Exception) -> None:
        if not self._is_warned:
            self._is_warned = True
            raised = printable(f"on_metrics raised {type(error).__name__}: {error}")
            warnings.warn(
                f"{self._where}: {raised}. It is called again; this warning is shown once.", RuntimeWarning, 2
            )
