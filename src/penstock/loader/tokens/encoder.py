"""Encoder: draws -> rows of tokens, from mapped columns. By the kernel, or in plain Python without numba."""

import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from penstock.base import machine
from penstock.loader.batches import Array
from penstock.loader.engine import compiled
from penstock.loader.order.order import Draws
from penstock.loader.tables import Made, Shard, Tables
from penstock.loader.tokens.binding import Encoding
from penstock.loader.tokens.counts import COUNTED
from penstock.loader.tokens.reference import encode_rows
from penstock.shards.schema import Schema


class EventEncoder:
    """Rows of tokens from `shards`."""

    def __init__(
        self, shards: Sequence[Shard], schema: Schema, encoding: Encoding, larger_than_memory: bool = False
    ) -> None:
        self._shards, self._schema, self._encoding = shards, schema, encoding
        self.tables = Tables(shards, encoding.slots, larger_than_memory)
        if compiled():
            from penstock.loader.tokens.kernel import Kernel

            self._kernel: Kernel | None = Kernel(self.tables, encoding)
        else:
            self._kernel = None

    def encode(self, draws: Draws, out: Mapping[str, Array], made: Made) -> Array:
        """Fill the rows, and note in `made` what that came to; how many draws each row used."""
        if self._kernel:
            counts, used = self._kernel.encode(draws, out, made)
        else:
            counts, used = np.zeros(len(COUNTED), "i8"), np.zeros(len(draws.keys), "i4")
            encode_rows(self._shards, self._schema, self._encoding, draws, out, counts, used)
        made.rows, made.room = out["inputs"].shape[0], out["inputs"].size
        made.tokens = int(np.count_nonzero(out["targets_segmentation"]))
        made.filled = int(np.count_nonzero(out["inputs_segmentation"]))
        made.draws = int(np.count_nonzero(draws.shards >= 0))
        made.draws_used = int(used.sum())
        made.counts = dict(zip(COUNTED, counts.tolist(), strict=True))
        return used

    def hold(self, room: int) -> int:
        """Hold what rows are made faster with, in at most `room` bytes; how many that took. No token depends on it.

        The offsets of data larger than memory, and what the texts of dictionaries and keys stand for: 17 bytes per
        address, 4 per category. The others are read as text at every use.
        """
        if not self._kernel:
            return 0
        held = self.tables.hold_column(self._encoding.offsets, room) if self.tables.larger_than_memory else 0
        fitting = []
        for field, shard in itertools.product(range(len(self._encoding.fields)), range(len(self._shards))):
            size = self._kernel.texts_bytes(field, shard)
            if 0 < size <= room - held:
                fitting.append((field, shard))
                held += size
        cores = machine.cpu_count().amount
        with ThreadPoolExecutor(cores) as pool:  # a kernel reads them, without the GIL
            for _ in pool.map(self._kernel.hold_texts, (fitting[first::cores] for first in range(cores))):
                pass  # a thread may have found damage
        return held
