"""Catalogue: the tables of many spills -> one file in the order of parts. A task that needs one part of all spills
reads the places of its chunks at once. Next: merging.py.

The tables are reordered in groups of spills. Each group of spills is an array with a group per part.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.rows import container
from penstock.prepare.rows.container import Array
from penstock.prepare.rows.kept import keep
from penstock.prepare.rows.spill import ENTRY, Chunks, chunks_at, read_table
from penstock.shards.columns import FileFacts

_PLACE = np.dtype([("spill", "<i8"), *ENTRY.descr])
_GROUP_BYTES = 1 << 20  # of tables that are reordered at once; writing holds about four times that
_WORDS = container.Words("an index of spill files", again="it is made again")
_ROWS, _GROUPS = "rows", "groups"


def write_catalogue(store: Store, name: str, spills: Sequence[FileFacts], parts: int) -> FileFacts:
    """Write the file and return its facts. Its bytes depend on the spills alone."""
    rows = np.zeros(parts, "<i8")
    with ExitStack() as stack:
        file = container.begin_container(store, name, stack, lasting=False)
        groups = 0
        for places, numbers in _in_groups(store, spills):
            order = np.argsort(numbers, kind="stable")
            bounds = np.searchsorted(numbers[order], np.arange(parts + 1))
            file.put_groups(f"group {groups}", places[order], bounds)
            np.add.at(rows, numbers, places["rows"])
            groups += 1
        file.put(_ROWS, rows)
        return file.finish({_GROUPS: groups})


def _in_groups(store: Store, spills: Sequence[FileFacts]) -> Iterator[tuple[Array, Array]]:
    """Places of the chunks of some spills, and the part of each."""
    waiting: list[tuple[Array, Array]] = []
    held = 0
    for number, spill in enumerate(spills):
        entries, bounds = read_table(container.Stored(store, spill.file), spill.digest)
        places = np.empty(len(entries), _PLACE)
        places["spill"] = number
        for name in ENTRY.names or ():
            places[name] = entries[name]
        waiting.append((places, np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))))
        held += places.nbytes
        if held >= _GROUP_BYTES:
            yield _joined(waiting)
            waiting, held = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(waiting: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    places, numbers = zip(*waiting, strict=True)
    return np.concatenate(places), np.concatenate(numbers)


def rows_by_part(store: Store, name: str) -> Array:
    """Rows of each part in all spills."""
    return container.open_container(container.Stored(store, name), _WORDS).array(_ROWS)


def chunks_of_part(store: Store, written: FileFacts, spills: Sequence[FileFacts], part: int) -> list[Chunks]:
    """Chunks of a part, spill by spill. Spills without that part are left out."""
    source = container.Stored(store, written.file, written.digest)
    index = keep(("index", store, written), lambda: container.open_container(source, _WORDS, written.digest))
    with source.opened() as opened:
        file = replace(index, source=opened)
        groups = (file.group(f"group {number}", part, f"part {part}") for number in range(file.facts[_GROUPS]))
        places = np.concatenate([np.zeros(0, _PLACE), *(np.frombuffer(group, _PLACE) for group in groups)])
    found = []
    for some in np.split(places, np.flatnonzero(np.diff(places["spill"])) + 1) if len(places) else []:
        spill = spills[int(some["spill"][0])]
        found.append(chunks_at(container.Stored(store, spill.file, spill.digest), some))
    return found
