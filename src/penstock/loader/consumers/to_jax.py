"""JAX: turn a loader's batches into dicts of global arrays, on their devices ahead of the training step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ConfigError
from penstock.loader.batches import Batch, BatchSource
from penstock.loader.consumers.ahead import Ahead

try:
    import jax
except ImportError as error:
    raise ConfigError("to_jax needs JAX, which is not installed here", next_step="pip install jax") from error

if TYPE_CHECKING:
    Arrays = dict[str, jax.Array]


class JaxBatches(Ahead["Arrays"]):
    """One loader's batches as jax arrays, on their devices before they are asked for.

    `state()` and `restore()` count what the consumer got, not what is ahead.
    """


def to_jax(loader: BatchSource, sharding: jax.sharding.Sharding | None = None, ahead: int = 2) -> JaxBatches:
    """Dicts of jax arrays: with a sharding the whole global batch, of which each process brings its rank's rows.

    Without one, this rank's rows on the default device. `ahead` batches are on their way in advance. JAX holds on to
    the loader's memory for as long as it needs it (on a CPU, for as long as the array lives), so nothing is copied
    twice. 64-bit arrays become 32-bit ones unless jax_enable_x64 is set: that is JAX's rule. `state()` and `restore()`
    count what the consumer got, not what is ahead.
    """
    arguments = loader.arguments
    if sharding is not None and arguments["documents"] is not None:
        raise ConfigError(
            "documents='varlen' cannot be made global arrays: cu_seqlens counts the tokens of one rank",
            where="loader.to_jax(sharding)",
            next_step="leave documents= out and use inputs_segmentation, or leave sharding= out",
        )
    return JaxBatches(loader, partial(_place, sharding, arguments["rank"], arguments["world"]), ahead)


def _place(sharding: Any, rank: int, world: int, batch: Batch) -> Callable[[], Arrays]:
    """Send a batch to its devices; JAX itself waits for it wherever it is used."""
    if sharding is None:
        arrays: Arrays = jax.device_put(batch)
        return lambda: arrays
    shapes = {name: (array.shape[0] * world, *array.shape[1:]) for name, array in batch.items()}
    _check_rows(sharding, next(iter(shapes.values())), rank, world)
    make = jax.make_array_from_process_local_data
    arrays = {name: make(sharding, array, shapes[name]) for name, array in batch.items()}
    return lambda: arrays


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
