"""Parts: everything that load.py decided about a loader. Next: maker.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.base import machine
from penstock.loader.asked.mixing import make_draws, make_phases
from penstock.loader.asked.options import checked
from penstock.loader.asked.room import Room
from penstock.loader.feeding.metrics import LoaderMetrics
from penstock.loader.feeding.prefetch import Tuner
from penstock.loader.feeding.processes import Functions
from penstock.loader.feeding.stats import DatasetProgress
from penstock.loader.kind import Kind
from penstock.loader.order.order import Draws
from penstock.loader.order.phases import Phases
from penstock.loader.order.recipe import MOST_STEPS, Recipe

_THREADS_THAT_WAIT = 16  # at most: threads that wait need no core each


@dataclass(frozen=True)
class Parts:
    """The data, the order of its rows, and how batches are made."""

    opened_by: Callable[..., Any]  # load() itself, which makes an equal loader of `arguments`
    arguments: Mapping[str, Any]
    kind: Kind
    phases: Phases
    draws: Sequence[Callable[[int, int], Draws]]  # rows of each phase, made once: their tables may be large
    recipe: Recipe
    rank: int
    world: int
    paths: tuple[str, ...]  # of the datasets
    workers: int | None  # None: as many as help
    ahead: int
    functions: Functions = Functions()  # of map()  # noqa: RUF009
    room: int | None = None  # bytes for batches, where memory= was given
    log_every: float | None = None
    flops: tuple[float, float] | None = None  # a token, and the accelerator's peak
    metrics: tuple[Callable[[dict[str, float]], object] | None, float] = (None, 1.0)  # a function, and its interval

    def with_phases(self, phases: Sequence[Mapping[str, Any]]) -> Parts:
        """This loader with other phases; their batches must fit as those of load() did."""
        arguments = {**self.arguments, "phases": phases}
        options = checked({"on_metrics": None, **arguments})
        made = make_phases(self.kind, options)
        settings = {**self.recipe.settings, **made.first_settings()}
        return replace(
            self,
            arguments=arguments,
            phases=made,
            draws=make_draws(made),
            recipe=replace(self.recipe, settings=settings),
            ahead=Room.of(options).batches_ahead(self.kind),
        )

    def draw(self, k: int) -> Draws:
        """The records that this rank's rows of a batch hold."""
        number = self.phases.number_at(k)
        phase = self.phases.each[number]
        rows = phase.batch_size // self.world
        return self.draws[number](phase.row_of(k) + self.rank * rows, rows)

    def mapped(self, functions: Functions) -> Parts:
        settings = {**self.recipe.settings, "map": functions.names}
        return replace(self, functions=functions, recipe=replace(self.recipe, settings=settings))

    def progress(self, step: int) -> tuple[DatasetProgress, ...]:
        """Progress of each dataset before a batch."""
        rows = self.phases.taken(step)
        each = zip(self.paths, rows, self.kind.streams, strict=True)
        return tuple(DatasetProgress(path, taken, taken / stream.rows, stream.left_out) for path, taken, stream in each)

    def make_metrics(self) -> LoaderMetrics:
        return LoaderMetrics(*self.metrics)

    @property
    def steps(self) -> int | None:
        """Batches in all, the same on every rank."""
        return self.phases.steps

    @property
    def end(self) -> int:
        """Number behind that of the last batch that can be asked for."""
        return MOST_STEPS if self.steps is None else self.steps

    @property
    def cores(self) -> int:
        return machine.cpu_count().amount

    def make_tuner(self) -> Tuner:
        processes = self.functions.processes
        most = self.workers or max(self.cores, processes)
        return Tuner(max(self.workers or 1, processes), most, self.workers or _THREADS_THAT_WAIT)
