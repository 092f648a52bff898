"""Shard: one file (or one per column) of records of one split, written by one task."""

from __future__ import annotations

import json
from dataclasses import asdict

from penstock.base.stores.store import Store
from penstock.shards import arrow as pa
from penstock.shards.columns import ColumnWriter, Container, Hold
from penstock.shards.manifest import FORMAT_VERSION, ShardFacts
from penstock.shards.record import encoders
from penstock.shards.schema import Schema


class ShardWriter:
    """Takes Arrow batches; `commit` makes the shard appear; without it, `close` forgets them."""

    def __init__(self, store: Store, name: str, schema: Schema, container: Container, hold: Hold) -> None:
        self.name = name
        self.records = 0
        self._schema = schema
        self._encoders = encoders(schema)
        self._columns = ColumnWriter(store, name, container, hold)
        for encoder in self._encoders:
            for column, piece in encoder.start():
                self._columns.add(column, piece)

    def write(self, batch: pa.RecordBatch) -> None:
        for encoder, array in zip(self._encoders, batch.columns, strict=True):
            for column, piece in encoder.encode(array):
                self._columns.add(column, piece)
        self.records += batch.num_rows

    def commit(self) -> ShardFacts:
        for encoder in self._encoders:
            for column, piece in encoder.finish():
                self._columns.add(column, piece)
        metadata = {
            "format": "penstock",
            "format_version": str(FORMAT_VERSION),
            "records": str(self.records),
            "schema": json.dumps([asdict(field) for field in self._schema], ensure_ascii=False),
        }
        return ShardFacts(self.name, self.records, self._columns.commit(metadata))

    def close(self) -> None:
        self._columns.close()
