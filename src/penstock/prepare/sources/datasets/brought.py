"""Brought: a dataset -> the columns of its rows, and the origins that they bring to a job. Part of prepared.py."""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.base.stores import open_store
from penstock.prepare.rows.marks import PIECE, POSITION
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import Brought
from penstock.shards.manifest import Manifest
from penstock.shards.origins import HASH, ORIGIN, Origins, has_hashes, origin_columns, read_origins, without_origins
from penstock.shards.schema import schema_to_arrow, with_names


def columns_of(manifest: Manifest) -> pa.Schema:
    """The columns that are data."""
    fields = schema_to_arrow(without_origins(manifest.schema))
    return pa.schema([with_names(each, manifest.feature_names.get(each.name)) for each in fields])


def brought_by(root: str, manifest: Manifest) -> Brought | None:
    """Origins of documents and samples. A packed row has those of many documents, and brings none."""
    types = {field.name: field.type for field in manifest.schema}
    table = read_origins(open_store(root), manifest) if types.get(ORIGIN) == "int64" else None
    if table is None:
        return None
    sources = table.sources or tuple(manifest.config["input"])
    return Brought(table, sources, origin_columns(manifest.schema), has_hashes(manifest.schema))


def with_brought(rows: Rows, table: Origins, columns: tuple[str, ...]) -> Rows:
    """Rows of these columns, with their origins beside them."""
    values = np.asarray(rows.batch.column(ORIGIN))
    beside = {PIECE: values >> table.shift, POSITION: values & ((1 << table.shift) - 1)}
    if HASH in rows.batch.schema.names:
        beside[HASH] = np.asarray(rows.batch.column(HASH))
    return replace(rows, batch=rows.batch.select(list(columns)), beside=beside)
