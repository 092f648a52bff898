"""Functions: what map() was given: the user's functions one after the other, and where they run. Used by maker.py."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.errors import ConfigError
from penstock.loader.batches import Batch, Function
from penstock.loader.feeding.processes import Processes
from penstock.loader.feeding.sendable import check_count, check_sendable, name_of, place_of
from penstock.loader.feeding.served import other_types, wrong_result


@dataclass(frozen=True)
class Functions:
    """In the loader's threads, or in so many `processes` of their own. It can itself be sent to a process."""

    each: tuple[Function, ...] = ()
    processes: int = 0
    timeout: float = 4.0

    @property
    def names(self) -> list[str]:
        return [name_of(function) for function in self.each]

    @property
    def func(self) -> Function:
        """The function that errors of a process name: the last, as of a functools.partial."""
        return self.each[-1]

    def __call__(self, batch: Batch) -> Batch:
        for function in self.each:
            batch = function(batch)
        return batch

    def then(self, function: Function, processes: int, timeout: float) -> Functions:
        """These and one more, checked. One process runs them all."""
        if not callable(function):
            raise ConfigError(
                f"map() takes a function, not {type(function).__name__}",
                where="loader.map",
                next_step="give a function of a batch that returns one",
            )
        check_count(processes, timeout)
        if self.processes:
            processes, timeout = max(processes, self.processes), max(timeout, self.timeout)
        made = Functions((*self.each, function), processes, timeout)
        if processes:
            check_sendable(made)
        return made

    def start(self) -> Processes:
        return Processes(self, self.processes, self.timeout)

    def apply(self, k: int, batch: Batch) -> Batch:
        """Run them on batch k, in this thread."""
        for function in self.each:
            try:
                batch = function(batch)
            except Exception as error:
                error.add_note(f"in step {k} of map({name_of(function)})")
                raise
            if found := other_types(batch):
                raise wrong_result(found, name_of(function), place_of(function), k)
        return batch
