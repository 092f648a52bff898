"""Grain: turn a loader into a MapDataset whose element k is batch k, the same bytes in threads and in processes."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.loader.batches import Batch, BatchSource

if TYPE_CHECKING:
    import grain


def to_grain(loader: BatchSource) -> grain.MapDataset[Batch]:
    """A `grain.MapDataset` of batches.

    `.to_iter_dataset()` reads it in threads, `.to_iter_dataset().mp_prefetch(...)` in processes. Element k is batch k
    wherever the loader stands: `dataset[loader.step:]` resumes there. A loader without end (epochs=None) has length
    sys.maxsize, as Grain's own `repeat()` has. A program that has not parsed its absl flags has them marked as parsed,
    with their defaults: Grain's processes read one.
    """
    try:
        import grain
        from absl import flags
    except ImportError as error:
        raise ConfigError(
            "to_grain() needs Grain, which is not installed here", next_step="pip install grain"
        ) from error
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    return grain.MapDataset.source(Batches(loader))


class Batches:
    """Random access to a loader's batches. In another process it opens a loader of its own, at the first batch."""

    def __init__(self, loader: BatchSource) -> None:
        self.open, self.arguments, self.functions = loader.opened_by, loader.arguments, loader.functions
        self.length = sys.maxsize if loader.steps is None else loader.steps
        self._loader: BatchSource | None = loader
        self._opening = threading.Lock()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: Any) -> Batch:
        # Grain keeps batches for as long as it likes, and its processes move them: they are copies, not views.
        return {name: np.array(array) for name, array in self._opened().batch(int(number)).items()}

    def __repr__(self) -> str:
        return f"penstock.Batches({self.arguments})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _loader=None, _opening=threading.Lock())

    def _opened(self) -> BatchSource:
        with self._opening:
            if self._loader is None:
                # Grain's process is the worker: threads of the loader's own would only prefetch what nobody asks for.
                loader = self.open(**{**self.arguments, "workers": 0})
                for function in self.functions:
                    loader = loader.map(function)
                self._loader = loader
            return self._loader
