"""Brought: a dataset -> the columns of its rows, and the origins that they bring to a job. Part of prepared.py."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.base.stores import open_store
from penstock.prepare.rows.marks import PIECE, POSITION
from penstock.prepare.rows.rows import Array, Rows
from penstock.prepare.sources import Brought
from penstock.shards.manifest import Manifest
from penstock.shards.origins import HASH, ORIGIN, Origins, has_hashes, origin_columns, read_origins, without_origins
from penstock.shards.schema import schema_to_arrow, with_names


def columns_of(manifest: Manifest) -> pa.Schema:
    """The columns that are data."""
    fields = schema_to_arrow(without_origins(manifest.schema))
    return pa.schema([with_names(each, manifest.feature_names.get(each.name)) for each in fields])


def brought_by(root: str, manifest: Manifest) -> Brought | None:
    """Origins of documents and samples; of a packed row, those of all its documents."""
    table = read_origins(open_store(root), manifest)
    if table is None:
        return None
    sources, schema = table.sources or tuple(manifest.config["input"]), manifest.schema
    per_segment = any(field.name == ORIGIN and field.parsed.is_list for field in schema)
    return Brought(table, sources, origin_columns(schema), has_hashes(schema), per_segment)


def with_brought(rows: Rows, table: Origins, columns: tuple[str, ...]) -> Rows:
    """Rows of these columns, with their origins beside them."""
    values = _values(rows.batch.column(ORIGIN))
    beside = {PIECE: values >> table.shift, POSITION: values & ((1 << table.shift) - 1)}
    if HASH in rows.batch.schema.names:
        beside[HASH] = _values(rows.batch.column(HASH))
    return replace(rows, batch=rows.batch.select(list(columns)), beside=beside)


def _values(column: pa.Array) -> Array:
    """One number per row; or one array per row, of packed rows."""
    if not pa.types.is_list(column.type):
        return np.asarray(column)
    flat, found = np.asarray(column.values), np.empty(len(column), object)
    for row, (low, high) in enumerate(pairwise(np.asarray(column.offsets).tolist())):
        found[row] = flat[low:high]
    return found
