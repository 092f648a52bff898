"""Metrics: the Stats of a loader -> numbers for a logger, at most once per interval and once at the end."""

from __future__ import annotations

from collections.abc import Callable

from penstock.base.events.metrics import Metrics, Numbers, OnMetrics
from penstock.base.memory import own_memory
from penstock.loader.feeding.stats import Stats


class LoaderMetrics:
    """Rates and shares are those since the last call; sums are those since the first batch."""

    def __init__(self, function: OnMetrics | None, seconds: float) -> None:
        self._metrics = Metrics(function, seconds, "penstock.load")
        self._last: Stats | None = None

    def tell(self, stats: Callable[[], Stats], step: int, is_last: bool = False) -> None:
        """Call the function if the interval has passed, or at the end if there is something new."""
        if not (self._metrics.is_due or (is_last and self._metrics.is_wanted)):
            return
        now = stats()
        if now.batches and (self._last is None or now.batches > self._last.batches):
            self._metrics.tell(loader_numbers(now, self._last, step))
            self._last = now


def loader_numbers(now: Stats, before: Stats | None, step: int) -> Numbers:
    batches, rows, tokens, seconds, waited = now.batches, now.rows, now.tokens, now.seconds, now.wait_seconds
    if before:
        batches, rows, tokens = batches - before.batches, rows - before.rows, tokens - before.tokens
        seconds, waited = seconds - before.seconds, waited - before.wait_seconds
    else:
        batches -= 1  # the first one starts the clock
    numbers: Numbers = {
        "penstock/loader/step": step,
        "penstock/loader/batches": now.batches,
        "penstock/loader/rows": now.rows,
        "penstock/loader/padding": now.padding,
        "penstock/loader/batches_ready": now.ready,
        "penstock/loader/memory_bytes": own_memory().counted,
    }
    if seconds > 0:
        numbers["penstock/loader/batches_per_second"] = batches / seconds
        numbers["penstock/loader/rows_per_second"] = rows / seconds
        numbers[f"penstock/loader/{now.unit}_per_second"] = tokens / seconds
        numbers["penstock/loader/wait_share"] = min(1.0, waited / seconds)
    return numbers
