"""Loader: iterate batches of a dataset, ask for any one of them, save and restore the place. Next: consumers/."""

from __future__ import annotations

import logging
import operator
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.base.errors import ConfigError
from penstock.base.shown import Shown
from penstock.loader.batches import Batch, Function
from penstock.loader.feeding.prefetch import Prefetch
from penstock.loader.feeding.processes import Functions
from penstock.loader.feeding.stats import Stats, Totals
from penstock.loader.maker import Filled, Maker, Parts
from penstock.loader.tokens.vocabulary import Vocabulary

if TYPE_CHECKING:
    import grain
    import jax
    import torch

    from penstock.loader.consumers.to_jax import JaxBatches
    from penstock.loader.consumers.to_maxtext import MaxTextBatches
    from penstock.loader.consumers.to_torch import TorchBatches

log = logging.getLogger("penstock")


class Loader(Shown):
    """Batches as dicts of numpy arrays. A batch's arrays may be kept; their memory is used again when they are gone."""

    def __init__(self, parts: Parts, functions: Functions = Functions(), step: int = 0) -> None:  # noqa: B008
        self._parts, self._functions, self.step = parts, functions, step
        self._totals = Totals(parts.kind.unit, parts.cores)
        self._maker = Maker(parts, functions, self._totals)
        self._prefetch: Prefetch[Filled] | None = None
        self._closing: weakref.finalize[..., Any] | None = None
        self._closed = False
        self._logged = time.monotonic()
        self._metrics = parts.make_metrics()
        self._steps = parts.steps
        self._turn = threading.Lock()  # of whoever asks for the next batch
        self._process = os.getpid()

    def facts(self) -> dict[str, str]:
        parts, steps = self._parts, "without end" if self._steps is None else f"of {self._steps:,}"
        return {
            "datasets": str(self._parts.arguments.get("path", "")),
            "batches": f"{parts.batch_size:,} {parts.kind.unit} each, at {self.step:,} {steps}",
            "rank": f"{parts.rank} of {parts.world}",
            "threads": "auto" if parts.workers is None else str(parts.workers),
        }

    # Batches.

    def batch(self, k: int) -> Batch:
        """This rank's rows of a batch, whatever was asked for before.

        Args:
            k: Number of the batch, from 0.
        """
        try:
            k = operator.index(k)
        except TypeError:
            raise TypeError(f"a batch is asked for by its number, not by {type(k).__name__}") from None
        if not 0 <= k < self._parts.end:
            end = f" of {self._steps:,}" if self._steps is not None else ""
            raise IndexError(f"there is no batch {k:,}{end}")
        return self._maker.make(k)[0]

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        self._refuse_process()
        with self._turn:
            if self._closed:
                raise ConfigError("this loader is closed", next_step="make a new one with penstock.load")
            if self._steps is not None and self.step >= self._steps:
                self._stop()
                self._metrics.tell(self.stats, self.step, is_last=True)
                raise StopIteration
            started, is_start = time.perf_counter(), self._prefetch is None
            (batch, made), ready = self._take()
            self.step += 1
            threads = self._prefetch.threads if self._prefetch else 0
            self._totals.add_taken(made, time.perf_counter() - started, ready, threads, is_start and threads > 0)
            self._log()
            self._metrics.tell(self.stats, self.step)
            return batch

    def _refuse_process(self) -> None:
        """After a fork its threads are gone, and every copy of it would give every batch."""
        if os.getpid() != self._process:
            raise ConfigError(
                f"this loader was made in process {self._process}, and is asked for batches in {os.getpid()}",
                where="a worker process of a DataLoader, or a fork",
                next_step="ask for them where it was made (num_workers=0: it has threads of its own), or make one in "
                "each process, with its rank= and world=",
            )

    def __len__(self) -> int:
        if self._steps is None:
            raise TypeError("a loader without epochs= has no end, and so no len()")
        return self._steps

    def _take(self) -> tuple[Filled, int]:
        """The next batch with its counts, and how many lay ready."""
        if self._parts.workers == 0 and not self._functions.processes:
            return self._maker.make(self.step), 0
        if self._prefetch is None:
            self._prefetch = self._start()
        ready = self._prefetch.ready
        try:
            return self._prefetch.take(), ready
        except BaseException:
            self._stop()  # whoever goes on is given this very batch again, as state() says
            raise

    def _start(self) -> Prefetch[Filled]:
        ahead, tuner = self._maker.batches_ahead(self.step), self._parts.make_tuner(self._functions.processes)
        maker, timing = self._maker.start(), self._totals.timing
        prefetch = Prefetch(maker.make, self.step, self._steps, ahead, tuner, lambda: timing.waiting)
        self._maker = maker
        # A loader that is dropped without close() ends its threads and processes too: they do not refer to it.
        self._closing = weakref.finalize(self, _end, prefetch, maker)
        return prefetch

    # Where it stands.

    def state(self) -> dict[str, Any]:
        """A small dict: the next batch, and what it is a batch of. Restores on any rank, world and workers."""
        return self._parts.recipe.state(self.step)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go to the place that `state()` described: the next batch is the one that came next there.

        Args:
            state: Dict from `state()` of a loader of the same data and options; rank, world and workers may differ.
        """
        self._refuse_process()
        step = self._parts.recipe.step_of(state)
        if self._steps is not None and step > self._steps:
            raise ConfigError(
                f"this state is at batch {step:,}, and {self._parts.order.epochs_have} {self._steps:,}",
                where="loader.restore(state)",
                next_step="load with as many epochs as before, or more",
            )
        with self._turn:
            self._stop()
            self.step = step

    def stats(self) -> Stats:
        """Throughput, waiting time and the reason for it, since the first batch."""
        replaced = self._totals.replaced + self._maker.replaced
        return self._totals.snapshot(self._parts.ahead, self._functions.processes, replaced, self._parts.flops)

    def _log(self) -> None:
        every = self._parts.log_every
        if every is not None and time.monotonic() - self._logged >= every:
            self._logged = time.monotonic()
            log.info("%s", self.stats().line())

    # What else can be made of it.

    def map(self, function: Function, processes: int = 0, timeout: float = 4.0) -> Loader:
        """A loader whose batches went through a function of yours.

        Args:
            function: Takes a batch, a dict of numpy arrays, and returns one. The result must depend on the batch alone.
            processes: Processes that call it; 0 calls it in the loader's threads. Default: 0.
            timeout: Seconds after which a silent process is replaced and its batch made again. Default: 4.0.
        """
        functions = self._functions.then(function, processes, timeout)
        recipe = self._parts.recipe
        named = replace(recipe, settings={**recipe.settings, "map": functions.names})
        return Loader(replace(self._parts, recipe=named), functions, self.step)

    def to_torch(
        self,
        device: str | int | torch.device | None = None,
        ahead: int = 2,
        int64: Sequence[str] = (),
        layout: Literal["transformers", "trl", "torchtitan", "megatron", "olmo"] | None = None,
    ) -> TorchBatches:
        """Batches as dicts of tensors, or as a trainer takes them, for a plain loop or as the dataset of a DataLoader.

        Args:
            device: Place of the tensors, such as "cuda". Default: the CPU, where they share the loader's memory.
            ahead: Batches that are copied to a GPU in advance, from 0 to 1,024. Default: 2.
            int64: Names of arrays to widen to int64 on the device: ("targets",) for cross_entropy. Default: none.
            layout: Trainer whose names and conventions a batch follows; it has no other keys. Needs
                documents="varlen". Default: None, the arrays of the loader under their names.
        """
        from penstock.loader.consumers.to_torch import to_torch

        return to_torch(self, device, ahead, int64, layout)

    def to_jax(self, sharding: jax.sharding.Sharding | None = None, ahead: int = 2) -> JaxBatches:
        """Batches as dicts of jax arrays.

        Args:
            sharding: Layout of the global batch; each process brings the rows of its rank. Default: None, this rank's
                rows on the default device.
            ahead: Batches that are on their way to the devices in advance, from 0 to 1,024. Default: 2.
        """
        from penstock.loader.consumers.to_jax import to_jax

        return to_jax(self, sharding, ahead)

    def to_maxtext(self) -> MaxTextBatches:
        """Batches as the six int32 arrays that MaxText trains on, for its `MultiHostDataLoadIterator`."""
        from penstock.loader.consumers.to_maxtext import MaxTextBatches

        return MaxTextBatches(self)

    def to_grain(self) -> grain.MapDataset[Batch]:
        """A `grain.MapDataset` whose element k is a copy of batch k; `to_grain()[loader.step:]` resumes."""
        from penstock.loader.consumers.to_grain import to_grain

        return to_grain(self)

    def dataset(self) -> grain.MapDataset[Batch]:
        """Older name of `to_grain`."""
        return self.to_grain()

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of load(): penstock.load(**loader.arguments), mapped by `functions`, makes an equal loader."""
        return dict(self._parts.arguments)

    @property
    def functions(self) -> tuple[Function, ...]:
        """Functions given to `map`, in order."""
        return self._functions.each

    @property
    def opened_by(self) -> Callable[..., Loader]:
        """Function that takes `arguments`: penstock.load."""
        return self._parts.opened_by

    @property
    def max_seqlen(self) -> int | None:
        """Upper bound for the tokens of a document with documents="varlen": the length of a row, always the same."""
        layout = self._parts.kind.layout
        return layout["position_ids"][0][0] if "cu_seqlens" in layout else None

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Vocabulary of events, for penstock.decode; None where the data brings tokens or numbers."""
        return self._parts.kind.vocabulary

    # The end.

    def _stop(self) -> None:
        if self._closing:
            self._closing()
            self._totals.replaced += self._maker.replaced
            self._closing = self._prefetch = None
            self._maker = Maker(self._parts, self._functions, self._totals)

    def close(self) -> None:
        """End its threads and processes. It gives no batch afterwards."""
        self._stop()
        self._closed = True
        self._metrics.tell(self.stats, self.step, is_last=True)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _end(prefetch: Prefetch[Any], maker: Maker) -> None:
    if prefetch.is_own_thread():  # the loader was collected there, and a thread cannot wait for itself
        threading.Thread(target=_end, args=(prefetch, maker), name="penstock-end").start()
        return
    maker.close()
    prefetch.close()
