"""MaxText: turn a loader's batches into the six int32 arrays that MaxText trains on. Needs numpy alone."""

from __future__ import annotations

import json

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.shown import Shown
from penstock.loader.batches import TOKEN_ARRAYS, Batch, BatchSource


class MaxTextBatches(Shown):
    """A dataloader for `MultiHostDataLoadIterator`: this host's rows, of a loader with its own rank and world.

    Batches are cut down to the six keys. `iter()` and `reset()` begin again where the loader stood at first.
    MaxText calls one or the other, by its version, before every evaluation, and neither while it trains. It saves
    `get_state()` with its own checkpoints where it takes this for a Grain iterator, hence the bytes.
    """

    def __init__(self, loader: BatchSource) -> None:
        self._loader = loader
        self._first = loader.state()
        self._shape = _shape_of_all(loader.batch(0))

    def facts(self) -> dict[str, str]:
        return {"batches": f"{self._loader.step:,} taken", "of": repr(self._loader)}

    def __iter__(self) -> MaxTextBatches:
        self.reset()
        return self

    def __next__(self) -> Batch:
        batch = next(self._loader)
        return {key: np.ascontiguousarray(batch[key]) for key in TOKEN_ARRAYS}

    def __len__(self) -> int:
        return len(self._loader)

    def reset(self) -> None:
        # Nothing handed out since: what the loader has prefetched is still right.
        if self._loader.state() != self._first:
            self._loader.restore(self._first)

    def get_state(self) -> bytes:
        return json.dumps(self._loader.state()).encode()

    def set_state(self, state: bytes) -> None:
        try:
            first = json.loads(state)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"this state cannot be restored: it is not JSON ({error})",
                where="set_state(state)",
                next_step="give the value that get_state() returned",
            ) from error
        self._loader.restore(first)  # it may refuse: then all stays as it was
        self._first = first

    def get_padding_batch(self) -> Batch:
        """A batch of padding only, for a host that has no more rows while the others continue to evaluate."""
        return {key: np.zeros(self._shape, np.int32) for key in TOKEN_ARRAYS}


def _shape_of_all(batch: Batch) -> tuple[int, ...]:
    """The one shape of the six arrays. A loader that gives others is refused, with their names."""
    missing = [key for key in TOKEN_ARRAYS if key not in batch]
    if missing:
        raise ConfigError(
            f"MaxText trains on {', '.join(TOKEN_ARRAYS)}; this loader's batches lack {', '.join(missing)}. "
            f"They have {', '.join(batch)}",
            next_step="leave documents='varlen' out of penstock.load"
            if "cu_seqlens" in batch
            else "load a dataset of events or text, whose batches are tokens",
        )
    other = [f"{key} {batch[key].dtype} {batch[key].shape}" for key in TOKEN_ARRAYS if batch[key].dtype != np.int32]
    if other:
        raise ConfigError(
            f"MaxText trains on int32 arrays; this loader gives {', '.join(other)}",
            next_step="make them int32 in a function of your own: loader.map(function).to_maxtext(), "
            "with array.astype('int32') in it",
        )
    return tuple(batch["inputs"].shape)
