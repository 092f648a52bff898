"""Loader: iterate batches of a dataset, ask for any one of them, save and restore the place. Next: consumers/."""

from __future__ import annotations

import logging
import operator
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.base.errors import ConfigError
from penstock.base.shown import Shown
from penstock.loader.batches import Batch, Function, Inputs, Loop, SegmentOrigin
from penstock.loader.feeding.prefetch import Prefetch
from penstock.loader.feeding.stats import Stats, Totals
from penstock.loader.maker import Filled, Maker
from penstock.loader.parts import Parts
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
    """Batches as dicts of numpy arrays. You may keep the arrays; their memory is reused when nothing refers to them."""

    def __init__(self, parts: Parts, step: int = 0) -> None:
        self._parts, self.step = parts, step
        self._totals = Totals(parts.kind.unit, parts.cores)
        self._maker = Maker(parts, self._totals)
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
            "batches": f"{parts.phases.first.batch_size:,} rows each, at {self.step:,} {steps}",
            "rank": f"{parts.rank} of {parts.world}",
            "threads": "auto" if parts.workers is None else str(parts.workers),
        }

    # Batches.

    def batch(self, k: int) -> Batch:
        """This rank's rows of a batch, at any time and in any order.

        Args:
            k: Number of the batch, from 0.
        """
        return self._maker.make(self._checked(k))[0]

    def origin(self, k: int, inputs: Inputs | None = None) -> list[SegmentOrigin]:
        """Which documents or samples a batch holds: for each segment of this rank's rows its file, position and text.

        The dataset must keep origins, as those of text and samples do; segments of others beside it are unknown, and
        their `problem` says so. Batches themselves are no slower for it.

        Args:
            k: Number of the batch, from 0.
            inputs: Folder that the file names start at, or one per input of the job. For several datasets a mapping of
                their paths or names to these. With it, lines of JSONL and text files are counted, which reads the files
                up to each line. Default: None, documents are read again from where the job found them, and lines are
                counted only where that needs no more reading.
        """
        return self._maker.origins(self._checked(k), inputs)

    def _checked(self, k: int) -> int:
        try:
            k = operator.index(k)
        except TypeError:
            raise TypeError(f"a batch is asked for by its number, not by {type(k).__name__}") from None
        if not 0 <= k < self._parts.end:
            end = f" of {self._steps:,}" if self._steps is not None else ""
            raise IndexError(f"there is no batch {k:,}{end}")
        return k

    def __iter__(self) -> Iterator[Batch]:
        """One epoch, or what is left of it; to the end if `epochs`, `max_epochs` or `phases` were given."""
        return Loop(self, self.loop_end(self.step))

    def loop_end(self, step: int) -> int | None:
        """Number after the last batch of a `for` loop. None: the loop ends with the loader.

        Args:
            step: Number of the first batch of the loop.
        """
        if self._steps is not None and step >= self._steps:
            warnings.warn(
                f"all {self._steps:,} batches of this loader were given, and this loop is empty. Without epochs= each "
                "`for` loop is one epoch",
                UserWarning,
                stacklevel=3,
            )
        epoch = self._parts.phases.epoch_of(step) if self._steps is None else None
        return epoch[1] if epoch else None

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
        """Refuse a forked copy: its threads are gone, and every copy would give every batch."""
        if os.getpid() != self._process:
            raise ConfigError(
                f"this loader was made in process {self._process}, but process {os.getpid()} asks it for batches",
                where="a worker process of a DataLoader, or a fork",
                next_step="use it in the process that made it (num_workers=0: it has its own threads), or make one in "
                "each process, with its rank= and world=",
            )

    def __len__(self) -> int:
        """Batches of the whole loader if it ends, else of the epoch in which it stands."""
        if self._steps is not None:
            return self._steps
        epoch = self._parts.phases.epoch_of(self.step)
        if epoch is None:
            raise TypeError("a loader of phases without max_epochs= has no end, and so no len()")
        return epoch[1] - epoch[0]

    @property
    def steps(self) -> int | None:
        """Batches in all; None if the loader has no end."""
        return self._steps

    def _take(self) -> tuple[Filled, int]:
        """The next batch with its counts, and how many batches were ready."""
        if self._parts.workers == 0 and not self._parts.functions.processes:
            return self._maker.make(self.step), 0
        if self._prefetch is None:
            self._prefetch = self._start()
        ready = self._prefetch.ready
        try:
            return self._prefetch.take(), ready
        except BaseException:
            self._stop()  # the next call gets this batch again, as state() says
            raise

    def _start(self) -> Prefetch[Filled]:
        ahead, tuner = self._maker.batches_ahead(self.step), self._parts.make_tuner()
        maker, timing = self._maker.start(), self._totals.timing
        prefetch = Prefetch(maker.make, self.step, self._steps, ahead, tuner, lambda: timing.waiting)
        self._maker = maker
        # A loader that is dropped without close() ends its threads and processes too: they do not refer to it.
        self._closing = weakref.finalize(self, _end, prefetch, maker)
        return prefetch

    # Where it stands.

    def state(self) -> dict[str, Any]:
        """A small dict: number of the next batch, dataset ids, recipe. Restores on any rank, world and workers."""
        return self.state_at(self.step)

    def state_at(self, step: int) -> dict[str, Any]:
        """State before another batch, for a consumer that is not where the loader is.

        Args:
            step: Number of the batch that comes next.
        """
        return self._parts.recipe.state(step, self._parts.phases)

    def restore(self, state: Mapping[str, Any], phases: Sequence[Mapping[str, Any]] | None = None) -> None:
        """Continue at a saved state: the next batch is the one that was next when `state()` was called.

        Args:
            state: Dict from `state()` of a loader of the same data and options; rank, world and workers may differ.
            phases: Phases from now on. They must agree with those of the state up to its batch. Default: those that
                `load` was given.
        """
        self._refuse_process()
        parts = self._parts if phases is None else self._parts.with_phases(phases)
        step = parts.recipe.step_of(state, parts.phases)
        if parts.steps is not None and step > parts.steps:
            raise ConfigError(
                f"this state is at batch {step:,}, and {parts.phases.last.order.epochs_have} {parts.steps:,}",
                where="loader.restore(state)",
                next_step="load with as many epochs as before, or more",
            )
        with self._turn:
            self._parts, self._steps = parts, parts.steps
            self._stop()
            self._maker = Maker(parts, self._totals)
            self.step = step

    def stats(self) -> Stats:
        """Throughput, waiting time and the reason for it, since the first batch."""
        replaced = self._totals.replaced + self._maker.replaced
        parts = self._parts
        taken = self._totals.snapshot(parts.ahead, self._parts.functions.processes, replaced, parts.flops)
        return replace(taken, datasets=parts.progress(self.step))

    def _log(self) -> None:
        every = self._parts.log_every
        if every is not None and time.monotonic() - self._logged >= every:
            self._logged = time.monotonic()
            log.info("%s", self.stats().line())

    # What else can be made of it.

    def map(self, function: Function, processes: int = 0, timeout: float = 4.0) -> Loader:
        """A new loader that applies a function of yours to every batch.

        Args:
            function: Takes a batch, a dict of numpy arrays, and returns one. The result must depend on the batch alone.
            processes: Processes that call it; 0 calls it in the loader's threads. Default: 0.
            timeout: Seconds after which a silent process is replaced and its batch made again. Default: 4.0.
        """
        return Loader(self._parts.mapped(self._parts.functions.then(function, processes, timeout)), self.step)

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
        return self._parts.functions.each

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
        """Vocabulary of events, for penstock.decode. None for text and arrays."""
        return self._parts.kind.vocabulary

    # The end.

    def _stop(self) -> None:
        if self._closing:
            self._closing()
            self._totals.replaced += self._maker.replaced
            self._closing = self._prefetch = None
            self._maker = Maker(self._parts, self._totals)

    def close(self) -> None:
        """End its threads and processes. A closed loader gives no more batches."""
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
