"""PyTorch: turn a loader's batches into dicts of tensors, on a GPU copied there ahead of the training step."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.shown import Shown
from penstock.loader.batches import Array, Batch, BatchSource, Loop
from penstock.loader.consumers.ahead import Ahead
from penstock.loader.consumers.layouts import Layout, find_layout

try:
    import torch
except ImportError as error:
    raise ConfigError("to_torch needs PyTorch, which is not installed here", next_step="pip install torch") from error

if TYPE_CHECKING:
    Tensors = dict[str, torch.Tensor]

_FOR_ALL_DEVICES = 1  # cudaHostRegisterPortable


def to_torch(
    loader: BatchSource,
    device: str | int | torch.device | None = None,
    ahead: int = 2,
    int64: Sequence[str] = (),
    layout: str | None = None,
) -> TorchBatches:
    """Dicts of tensors. On the CPU they share the loader's memory; on a GPU `ahead` batches are copied in advance.

    int32 stays int32, which embeddings take; `int64=("targets",)` widens what cross_entropy wants, on the device.
    A `layout` makes the batch of a trainer of them, on the device too.
    """
    form = None if layout is None else find_layout(layout, loader.arguments["documents"])
    if form and int64:
        raise ConfigError(
            f"int64={tuple(int64)!r} and layout={layout!r} cannot go together: a layout has the types of its trainer",
            where="loader.to_torch",
            next_step="leave int64= out",
        )
    where = torch.device("cpu" if device is None else device)
    if where.type == "cuda":
        return TorchBatches(loader, _Ahead(where, tuple(int64)), ahead, form)
    return TorchBatches(loader, partial(_place_plainly, where, tuple(int64)), 0, form)


class TorchBatches(Shown, torch.utils.data.IterableDataset):  # type: ignore[misc]
    """One loader's batches as tensors, for a plain loop or as the dataset of a (Stateful)DataLoader.

    There pass batch_size=None and num_workers=0. Its state counts what the consumer got, not what is ahead on the
    device. A `for` loop is one epoch, or what is left of it, unless load() was given its end.
    """

    def __init__(
        self,
        loader: BatchSource,
        place: Callable[[Batch], Callable[[], Tensors]],
        ahead: int,
        layout: Layout | None = None,
    ) -> None:
        self._batches: Ahead[Tensors] = Ahead(loader, place, ahead)
        self._layout = layout

    def facts(self) -> dict[str, str]:
        return self._batches.facts()

    def __iter__(self) -> Loop[Any]:
        if torch.utils.data.get_worker_info() is not None:
            _refuse_workers()
        return Loop(self, self._batches.loop_end())

    @property
    def step(self) -> int:
        """Batches that the consumer got."""
        return self._batches.step

    def __next__(self) -> Any:
        """A dict of tensors, or what the layout makes of it."""
        batch = next(self._batches)
        return self._layout(batch) if self._layout else batch

    def __len__(self) -> int:
        return len(self._batches)

    def __reduce__(self) -> NoReturn:
        _refuse_workers()

    def state_dict(self) -> dict[str, Any]:
        return self._batches.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._batches.restore(state)


def _refuse_workers() -> NoReturn:
    raise ConfigError(
        "a penstock loader cannot run in the worker processes of a DataLoader: it has threads of its own, "
        "and every worker would load every batch",
        next_step="DataLoader(loader.to_torch(), batch_size=None, num_workers=0), with workers= given to penstock.load",
    )


def _place_plainly(device: torch.device, int64: tuple[str, ...], batch: Batch) -> Callable[[], Tensors]:
    """On the CPU, tensors share the memory of the arrays. On any other device, a plain copy."""
    tensors = _widened({name: torch.from_numpy(array).to(device) for name, array in batch.items()}, int64)
    return lambda: tensors


class _Ahead:
    """Copies to a GPU during the computation, directly from the loader's buffers, which are pinned in place.

    Without a copy on the host: 3 MB through pinned buffers of our own took the consumer 1.1 to 1.7 ms a step on an H200
    machine (30 ms with torch's own copy, which wakes all its threads), this way 0.1 to 0.6.
    """

    def __init__(self, device: torch.device, int64: tuple[str, ...]) -> None:
        self.device = device
        self.int64 = int64
        self.stream = torch.cuda.Stream(device)
        self.blocks: dict[int, str] = {}  # by address: new, pinned or refused

    def __call__(self, batch: Batch) -> Callable[[], Tensors]:
        with torch.cuda.stream(self.stream):
            tensors = _widened(self.copy(batch), self.int64)
        # Waited for here, in the thread that places: then the consumer's stream has nothing to wait for, and the loader
        # may use the buffer again.
        copied = torch.cuda.Event(blocking=True)
        copied.record(self.stream)
        copied.synchronize()
        blocks = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors.values()}
        return partial(_hand_out, tensors, list(blocks.values()), self.stream.device_index)

    def copy(self, batch: Batch) -> Tensors:
        """Copy a batch: in one copy if its arrays fill most of one block of memory, as the loader's own arrays do."""
        sources = {name: torch.from_numpy(array) for name, array in batch.items()}
        blocks = {id(block): block for block in map(_block, batch.values())}
        for block in blocks.values():
            self.pin(block)
        block = next(iter(blocks.values()))
        if len(blocks) == 1 and block.flags.c_contiguous:
            whole = torch.from_numpy(block.reshape(-1).view(np.uint8))
            if _is_one(whole, list(sources.values())):
                there = whole.to(self.device, non_blocking=True)
                return {name: _same_place(there, whole, source) for name, source in sources.items()}
        return {name: source.to(self.device, non_blocking=True) for name, source in sources.items()}

    def pin(self, block: Array) -> None:
        """One that comes back is one of the loader's own: pinned from then on, until it is freed.

        What a user's function makes anew for each batch is not worth it, and is copied while the host waits; so is a
        block that cannot be pinned (it shares a page with one that is, or the limit of locked memory is reached).
        """
        address = block.ctypes.data
        if address not in self.blocks:
            self.blocks[address] = "new"
            # In place of a reference, which would keep the loader from using the block again.
            weakref.finalize(block, _unpin, address, self.blocks).atexit = False
        elif self.blocks[address] == "new":
            refused = int(torch.cuda.cudart().cudaHostRegister(address, block.nbytes, _FOR_ALL_DEVICES))
            self.blocks[address] = "refused" if refused else "pinned"
            if refused:
                _forget_last_error(self.device)


def _hand_out(tensors: Tensors, blocks: list[torch.Tensor], device: int) -> Tensors:
    """Tensors whose copy is complete. `blocks` has one of each block of memory.

    They came from the copying stream: there, their memory may be used again only after the consumer's last use.
    """
    consumer = torch.cuda.current_stream(device)
    for block in blocks:
        block.record_stream(consumer)
    return tensors


def _block(array: Array) -> Array:
    """The array whose memory this one is a part of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _unpin(address: int, blocks: dict[int, str]) -> None:
    if blocks.pop(address) == "pinned":
        torch.cuda.cudart().cudaHostUnregister(address)


def _forget_last_error(device: torch.device) -> None:
    """Clear CUDA's last error: torch would raise it from its next call."""
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device=device)


def _is_one(whole: torch.Tensor, parts: list[torch.Tensor]) -> bool:
    """Whether the parts fill at least half of the block, each at a whole number of its items."""
    apart = [part.data_ptr() - whole.data_ptr() for part in parts]
    even = all(
        start % part.itemsize == whole.nbytes % part.itemsize == 0 for start, part in zip(apart, parts, strict=True)
    )
    return even and whole.nbytes <= 2 * sum(part.nbytes for part in parts)


def _same_place(copied: torch.Tensor, whole: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """The part of a copied block that lies where `part` lies in the block."""
    start = (part.data_ptr() - whole.data_ptr()) // part.itemsize
    return copied.view(part.dtype).as_strided(part.shape, part.stride(), start)


def _widened(tensors: Tensors, names: tuple[str, ...]) -> Tensors:
    unknown = [name for name in names if name not in tensors]
    if unknown:
        raise ConfigError(
            f"int64 names {', '.join(unknown)}; this loader's batches have {', '.join(tensors)}",
            where="loader.to_torch(int64=...)",
            next_step=f"name some of these: int64=({next(iter(tensors))!r},), or leave int64 out",
        )
    return {name: tensor.long() if name in names else tensor for name, tensor in tensors.items()}
