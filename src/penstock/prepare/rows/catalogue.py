"""Catalogue: the tables of many files -> one file in the order of parts. A task that needs one part of all files reads
its places at once. Used by: spills.py, passes/run_ranges.py.

A place is where a chunk or a block lies in its file. The tables are reordered some at a time: places that were
reordered together are an array with a group per part.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.rows import container
from penstock.prepare.rows.container import Array, Container
from penstock.prepare.rows.kept import keep
from penstock.shards.columns import FileFacts

FILE = "file"  # of a place: the number of its file
_GROUP_BYTES = 1 << 20  # of tables that are reordered at once; writing holds about four times that
_WORDS = container.Words("an index of files that tasks left", again="it is made again")
_COUNTS, _GROUPS, _PLACE = "counts", "groups", "place"


class CatalogueWriter:
    """Takes the places of each file, in the order of the files; the catalogue appears when the stack is left. Its
    bytes depend on the tables alone."""

    def __init__(self, store: Store, name: str, parts: int, stack: ExitStack) -> None:
        self._file = container.begin_container(store, name, stack, lasting=False)
        self._counts = np.zeros(parts, "<i8")
        self._waiting: list[tuple[Array, Array]] = []
        self._held = self._groups = 0
        self._place: Any = []

    def add(self, file: int, table: Array, parts: Array) -> None:
        """Places in one file, each with its `count` of rows, and the part of each."""
        places = np.empty(len(table), [(FILE, "<i8"), *table.dtype.descr])
        places[FILE] = file
        for name in table.dtype.names or ():
            places[name] = table[name]
        self._place = places.dtype.descr
        self._waiting.append((places, parts))
        self._held += places.nbytes
        if self._held >= _GROUP_BYTES:
            self._put()

    def _put(self) -> None:
        places, parts = (np.concatenate(each) for each in zip(*self._waiting, strict=True))
        order = np.argsort(parts, kind="stable")
        bounds = np.searchsorted(parts[order], np.arange(len(self._counts) + 1))
        self._file.put_groups(f"group {self._groups}", places[order], bounds)
        np.add.at(self._counts, parts, places["count"])
        self._waiting, self._held, self._groups = [], 0, self._groups + 1

    def finish(self, facts: Mapping[str, Any]) -> FileFacts:
        if self._waiting:
            self._put()
        self._file.put(_COUNTS, self._counts)
        return self._file.finish({**facts, _GROUPS: self._groups, _PLACE: self._place})


def count_by_part(store: Store, name: str) -> Array:
    """Rows of each part in all files."""
    return container.open_container(container.Stored(store, name), _WORDS).array(_COUNTS)


def open_catalogue(store: Store, written: FileFacts) -> Container:
    """The catalogue. The process reads its index once."""
    source = container.Stored(store, written.file, written.digest)
    return keep(("index", store, written), lambda: container.open_container(source, _WORDS, written.digest))


def places_of_part(catalogue: Container, part: int) -> Array:
    """Places of a part, file by file."""
    place = np.dtype([tuple(each) for each in catalogue.facts[_PLACE]])
    with catalogue.source.opened() as opened:
        file = replace(catalogue, source=opened)
        groups = (file.group(f"group {number}", part, f"part {part}") for number in range(file.facts[_GROUPS]))
        return np.concatenate([np.zeros(0, place), *(np.frombuffer(group, place) for group in groups)])


def by_file(places: Array) -> list[Array]:
    """Places, divided by file. Files without places are left out."""
    return np.split(places, np.flatnonzero(np.diff(places[FILE])) + 1) if len(places) else []
