"""Exact: documents -> the similarity of all their pairs, by brute force. Plain Python sets define what a copy is.

A shingle is five consecutive words, a word is what `str.split` finds, and the similarity of two documents is the
Jaccard index of their sets of shingles. Nothing here is shared with the code that is measured.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xxhash

WORDS = 5


def shingles(text: str) -> set[str]:
    words = text.split()
    if len(words) < WORDS:
        return {" ".join(words)}
    return {" ".join(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1)}


def similarity(one: set[str], other: set[str]) -> float:
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


class Corpus:
    """For each shingle that two documents share, the documents that have it."""

    def __init__(self, texts: list[str]) -> None:
        hashed = [_hashes(shingles(text)) for text in texts]
        self.sizes = np.array([len(each) for each in hashed])
        owners = np.repeat(np.arange(len(texts)), self.sizes)
        _, numbers, counts = np.unique(np.concatenate(hashed), return_inverse=True, return_counts=True)
        shared = counts[numbers] > 1
        owners, numbers = owners[shared], numbers[shared]
        self._by_owner, self._owner_bounds = numbers, np.searchsorted(owners, np.arange(len(texts) + 1))
        order = np.argsort(numbers, kind="stable")
        self._by_number = owners[order]
        self._number_bounds = np.concatenate([[0], np.cumsum(np.where(counts > 1, counts, 0))])

    def similarities(self, document: int) -> np.ndarray:
        """With every document; 1 with itself."""
        first, last = self._owner_bounds[document : document + 2]
        numbers = self._by_owner[first:last]
        lists = [self._by_number[self._number_bounds[n] : self._number_bounds[n + 1]] for n in numbers]
        shared = np.bincount(np.concatenate([*lists, [document]]), minlength=len(self.sizes))
        shared[document] = self.sizes[document]
        return shared / (self.sizes[document] + self.sizes - shared)

    def pairs(self, least: float) -> Iterator[tuple[int, int, float]]:
        """All pairs at least so similar, the earlier document first."""
        for document in range(len(self.sizes)):
            found = self.similarities(document)
            for other in np.flatnonzero(found[document + 1 :] >= least) + document + 1:
                yield document, int(other), float(found[other])


def _hashes(those: set[str]) -> np.ndarray:
    return np.fromiter((xxhash.xxh3_64_intdigest(each.encode()) for each in those), np.uint64, len(those))
