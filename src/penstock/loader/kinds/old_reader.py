"""Old reader: records of .arrayrecord files, by number -> the columns of a shard. Used by old_records.py."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.loader.asked.agreement import column_words
from penstock.loader.batches import Array
from penstock.loader.tables import Made, Shard
from penstock.shards.columns import Column
from penstock.shards.dataset import ArrayRecordDataset
from penstock.shards.record import encoders
from penstock.shards.schema import Schema, schema_from_arrow

_NO_CHECKSUMS = np.empty(0, "u8")  # ArrayRecord has its own, and its reader checks them


class OldReader:
    """Files of all datasets, one after the other; each is a shard. They are decoded as the first one is."""

    def __init__(self, datasets: Sequence[ArrayRecordDataset]) -> None:
        self._files = [(dataset, file) for dataset in datasets for file in range(len(dataset.counts))]
        self._reading = threading.Lock()  # readers are opened and let go as they are used
        self.schema, _ = self.read([(0, 0)], Made())
        self._refuse_other_columns()

    def _refuse_other_columns(self) -> None:
        """The first record of each file tells its columns."""
        for number, (dataset, file) in enumerate(self._files):
            if not dataset.counts[file]:
                continue
            schema, _ = self.read([(number, 0)], Made())
            if schema != self.schema:
                first = self._files[0][0].paths[0]
                raise ConfigError(
                    f"{dataset.paths[file]} and {first} cannot be mixed: their columns differ",
                    where=f"{column_words(self.schema)} against {column_words(schema)}",
                    next_step="load files of the same columns together, the others apart",
                )

    def read(self, wanted: Sequence[tuple[int, int]], noted: Made) -> tuple[Schema, Shard]:
        """Records (file, number), in order, as the columns of a shard. Decoding computes: only the rest is waiting."""
        columns: dict[str, list[Array]] = {}
        schema: Schema = ()
        made: list[Any] = []
        for file in dict.fromkeys(file for file, _ in wanted):
            dataset, own = self._files[file]
            with self._reading:
                started, cpu = time.perf_counter(), time.thread_time()
                batch = dataset.records(own, [record for each, record in wanted if each == file])
                seconds, computing = time.perf_counter() - started, time.thread_time() - cpu
            noted.read_seconds += max(0.0, seconds - computing)
            if not made:
                schema = schema_from_arrow(batch.schema, dataset.paths[own])
                made = encoders(schema)
                for encoder in made:
                    _lay_down(columns, encoder.start())
            for encoder, array in zip(made, batch.columns, strict=True):
                _lay_down(columns, encoder.encode(array))
        for encoder in made:
            _lay_down(columns, encoder.finish())
        path = self._files[wanted[0][0]][0].paths[0]
        arrays = {name: np.concatenate(pieces) for name, pieces in columns.items()}
        return schema, {name: Column(path, name, array, _NO_CHECKSUMS) for name, array in arrays.items()}


def _lay_down(columns: dict[str, list[Array]], pieces: Any) -> None:
    for name, piece in pieces:
        columns.setdefault(name, []).append(piece)
