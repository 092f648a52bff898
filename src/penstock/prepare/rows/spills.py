"""Spills: many spill files, and the catalogue of their chunks by part. Next: merging.py."""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.rows.catalogue import FILE, CatalogueWriter, by_file, open_catalogue, places_of_part
from penstock.prepare.rows.container import Stored
from penstock.prepare.rows.spill import Chunks, chunks_at, read_table
from penstock.shards.columns import FileFacts


def write_places(store: Store, name: str, spills: Sequence[FileFacts], parts: int) -> FileFacts:
    """Write the catalogue of the spills and return its facts."""
    with ExitStack() as stack:
        catalogue = CatalogueWriter(store, name, parts, stack)
        for number, spill in enumerate(spills):
            chunks, bounds = read_table(Stored(store, spill.file), spill.digest)
            catalogue.add(number, chunks, np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)))
        return catalogue.finish({})


def chunks_of_part(store: Store, written: FileFacts, spills: Sequence[FileFacts], part: int) -> list[Chunks]:
    """Chunks of a part, spill by spill. Spills without that part are left out."""
    found = []
    for some in by_file(places_of_part(open_catalogue(store, written), part)):
        spill = spills[int(some[FILE][0])]
        found.append(chunks_at(Stored(store, spill.file, spill.digest), some))
    return found
