"""Parts: entries for rows of many slices -> groups by slice, in parts of bounded size. Each slice reads its own."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.rows.container import Array, ContainerWriter
from penstock.prepare.stages.dedup.runs import open_index
from penstock.shards.columns import FileFacts

_PARTS = "parts"
_ENTRIES_PER_PART = 1 << 18  # a slice reads a group of every part: small parts would be many groups


class PartsWriter:
    """Collects entries, and writes them into a file of a pass."""

    def __init__(self, file: ContainerWriter, name: str, dtype: np.dtype[Any], slice_count: int) -> None:
        self._file, self._name, self._slice_count = file, name, slice_count
        self._waiting: list[tuple[Array, Array]] = []
        self._none = np.zeros(0, "u4"), np.zeros(0, dtype)
        self._count = self._parts = 0

    def add(self, slices: Array, entries: Array) -> None:
        """Entries, and the number of the slice that each belongs to."""
        self._waiting.append((slices.astype("u4"), entries))
        self._count += len(entries)
        if self._count >= _ENTRIES_PER_PART:
            self._put()

    def _put(self) -> None:
        slices, entries = (np.concatenate(each) for each in zip(self._none, *self._waiting, strict=True))
        order = np.argsort(slices, kind="stable")
        bounds = np.searchsorted(slices[order], np.arange(self._slice_count + 1))
        self._file.put_groups(f"{self._name} {self._parts}", entries[order], bounds)
        self._waiting, self._count, self._parts = [], 0, self._parts + 1

    def finish(self) -> dict[str, int]:
        """Facts for the index of the file."""
        if self._count:
            self._put()
        return {_PARTS: self._parts}


def parts_of(store: Store, files: Iterable[FileFacts], name: str, dtype: np.dtype[Any], number: int) -> Iterator[Array]:
    """Entries of one slice, file by file and part by part."""
    for file in (open_index(store, each) for each in files):
        for part in range(file.facts[_PARTS]):
            yield np.frombuffer(file.group(f"{name} {part}", number, f"slice {number}"), dtype)
