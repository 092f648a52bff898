"""JAX: turn a loader's batches into dicts of global arrays, on their devices ahead of the training step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ConfigError

try:
    import jax
except ImportError as error:
    raise ConfigError("to_jax needs JAX, which is not installed here", next_step="pip install jax") from error

if TYPE_CHECKING:
    from penstock.loader.loader import Batch, Loader

    Arrays = dict[str, jax.Array]


def to_jax(loader: Loader, sharding: Any = None, ahead: int = 2) -> JaxBatches:
    """Dicts of jax arrays: with a sharding the whole global batch, of which each process brings its rank's rows.

    Without one, this rank's rows on the default device. `ahead` batches are on their way in advance. JAX holds on to
    the loader's memory for as long as it needs it (on a CPU, for as long as the array lives), so nothing is copied
    twice. 64-bit arrays become 32-bit ones unless jax_enable_x64 is set: that is JAX's rule.
    """
    return JaxBatches(loader, sharding, ahead)


class JaxBatches:
    """One loader's batches as jax arrays. Its state counts what the consumer got, not what is ahead on the devices."""

    def __init__(self, loader: Loader, sharding: Any, ahead: int) -> None:
        self._loader = loader
        self._sharding = sharding
        self._ahead = ahead
        self._step = loader.step
        self._stream: Iterator[tuple[Arrays, int]] | None = None

    def __iter__(self) -> JaxBatches:
        return self

    def __next__(self) -> Arrays:
        if self._stream is None:
            self._step, self._stream = self._loader.step, self._placed_ahead()
        arrays, self._step = next(self._stream)
        return arrays

    def __len__(self) -> int:
        return len(self._loader)

    def state(self) -> dict[str, Any]:
        return self._loader.state() if self._stream is None else {**self._loader.state(), "step": self._step}

    def restore(self, state: dict[str, Any]) -> None:
        self._stream = None
        self._loader.restore(state)

    def _placed_ahead(self) -> Iterator[tuple[Arrays, int]]:
        """Batches on their devices, each with the number of the one after it."""
        waiting: deque[tuple[Arrays, int]] = deque()
        handed_out = 0
        for batch in self._loader:
            waiting.append((self._place(batch), self._loader.step))
            del batch  # its buffer goes back to the loader as soon as no array needs it
            # The first batch is handed out at once; those ahead are filled up from the second on.
            if len(waiting) > min(self._ahead, handed_out):
                handed_out += 1
                yield waiting.popleft()
        yield from waiting
        self._stream = None

    def _place(self, batch: Batch) -> Arrays:
        if self._sharding is None:
            arrays: Arrays = jax.device_put(batch)
            return arrays
        arguments = self._loader.arguments
        rank, world = arguments["rank"], arguments["world"]
        shapes = {name: (array.shape[0] * world, *array.shape[1:]) for name, array in batch.items()}
        _check_rows(self._sharding, next(iter(shapes.values())), rank, world)
        return {
            name: jax.make_array_from_process_local_data(self._sharding, array, shapes[name])
            for name, array in batch.items()
        }


def _check_rows(sharding: Any, shape: tuple[int, ...], rank: int, world: int) -> None:
    """This process's devices must hold exactly the rows that its rank loads, or rows would land in wrong places."""
    each = shape[0] // world
    rows = [index[0].indices(shape[0]) for index in sharding.addressable_devices_indices_map(shape).values()]
    first, end = min(start for start, _, _ in rows), max(stop for _, stop, _ in rows)
    if (first, end) != (rank * each, (rank + 1) * each):
        raise ConfigError(
            f"rank {rank} of world {world} loads rows {rank * each} to {(rank + 1) * each} of a global batch of "
            f"{shape[0]}, but by this sharding the devices of process {jax.process_index()} hold rows {first} to {end}",
            next_step="penstock.load(..., rank=jax.process_index(), world=jax.process_count()) with a mesh whose "
            "first axis runs over the processes in order; world=1 where every process holds the whole batch",
        )
