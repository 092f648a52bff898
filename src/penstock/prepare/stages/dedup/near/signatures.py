"""Signatures: the shingles of documents -> one key per band. Documents that are alike share some. Next: passes/near/.

A signature has a place for each row of each band. Each place holds the least value of the shingles there, so two
documents agree in a place with a probability that is their similarity. Shingles are spread over the places, round after
round, until every place has one ("Fast Similarity Sketching", Dahlgaard, Knudsen and Thorup, 2017). A long document
needs one or two rounds, instead of one hash per shingle and place. Places that are empty after ROUNDS are filled as in
plain MinHash.
"""

from dataclasses import dataclass

import numpy as np

from penstock.base.sizes import counted
from penstock.prepare.rows.hashing import Array, mix
from penstock.prepare.stages.dedup.near.shingles import Giant, Hashed

ROUNDS = 32
_ROUNDS_WITH_REPEATS = 11  # few documents are left then: short ones, and those that repeat themselves
_VALUE_BITS = np.uint64(48)  # below the number of the round
_EMPTY = ~np.uint64(0)
_PLACES_AT_ONCE = 1 << 19  # 4 MiB
_AT_ONCE = 1 << 17  # values in memory: 1 MiB
_SEEDS = mix(np.arange(1 << 13, dtype="u8"))  # of rounds and of places from the front, of bands from the back
MOST_PLACES = 1 << 11
_DETECTION_TO_WARN = 0.95


@dataclass(frozen=True)
class Banding:
    bands: int
    rows: int

    def detection(self, similarity: float) -> float:
        """Chance that two documents of this similarity share a band."""
        return 1.0 - (1.0 - similarity**self.rows) ** self.bands

    def weakness(self, threshold: float) -> str:
        """A sentence about bands that overlook many pairs at the threshold; none if they find nearly all."""
        if (found := self.detection(threshold)) >= _DETECTION_TO_WARN:
            return ""
        bands = f"{counted(self.bands, 'band')} of {counted(self.rows, 'row')}"
        return f"{bands} find only {found:.1%} of the pairs at threshold {threshold:g}: set more bands or fewer rows"

    def keys(self, hashed: Hashed) -> Array:
        """The keys of each document, a row per document."""
        edges = np.append(hashed.bounds, len(hashed.hashes))
        some = range(0, len(hashed.bounds), max(1, _PLACES_AT_ONCE // self.places))
        parts = [edges[start : start + some.step + 1] for start in some]
        signed = [
            self._keys(self._signatures(hashed.hashes[each[0] : each[-1]], each[:-1] - each[0])) for each in parts
        ]
        return np.concatenate(signed)

    def giant_keys(self, giant: Giant) -> Array:
        """The keys of one document, whose shingles are never in memory at once."""
        least, distinct = self._start(1), np.zeros(0, "u8")
        for hashes in giant.portions():
            self._spread(least, hashes, np.zeros(len(hashes), "i8"), 0)
            if len(distinct) <= self._few:
                distinct = np.unique(np.concatenate([distinct, hashes]))
        few = len(distinct) <= self._few
        return self._keys(self._signatures(distinct, np.zeros(1, "i8")) if few else least.reshape(1, -1))

    @property
    def _few(self) -> int:
        """With more shingles, one round leaves a place empty with a probability below e**-120."""
        return 128 * self.places

    @property
    def places(self) -> int:
        return self.bands * self.rows

    def _start(self, documents: int) -> Array:
        return np.full(documents * self.places, _EMPTY)

    def _signatures(self, hashes: Array, bounds: Array) -> Array:
        counts = np.diff(np.append(bounds, len(hashes)))
        least = self._start(len(counts))
        documents = np.repeat(np.arange(len(counts)), counts)
        for number in range(ROUNDS):
            self._spread(least, hashes, documents, number)
            open_ones = (least.reshape(-1, self.places) == _EMPTY).any(axis=1)
            if not open_ones.any():
                return least.reshape(-1, self.places)
            left = open_ones[documents]
            hashes, documents = hashes[left], documents[left]
            if number == _ROUNDS_WITH_REPEATS:
                hashes, documents = _without_repeats(hashes, documents)
        return self._filled(least.reshape(-1, self.places), hashes, documents)

    def _spread(self, least: Array, hashes: Array, documents: Array, number: int) -> None:
        """One round: each shingle goes to one place of its document."""
        with np.errstate(over="ignore"):
            values = mix(hashes ^ _SEEDS[number])
        place = ((values >> np.uint64(32)) * np.uint64(self.places) >> np.uint64(32)).astype("i8")
        values = (values * _SEEDS[-1]) >> (np.uint64(64) - _VALUE_BITS) | np.uint64(number) << _VALUE_BITS
        np.minimum.at(least, documents * self.places + place, values)

    def _filled(self, least: Array, hashes: Array, documents: Array) -> Array:
        """Fill the empty places: in each, the least of all shingles by a hash of its own."""
        factors, added = _SEEDS[: self.places] | np.uint64(1), _SEEDS[self.places : 2 * self.places]
        starts = np.flatnonzero(np.diff(documents, prepend=-1))
        size = max(1, _AT_ONCE // self.places)
        number = 0
        while number < len(starts):
            first = starts[number]
            last = int(np.searchsorted(starts, first + size, side="right")) - 1
            last = max(last, number + 1) if last < len(starts) - 1 or first + size < len(hashes) else len(starts)
            end = starts[last] if last < len(starts) else len(hashes)
            with np.errstate(over="ignore"):
                values = (hashes[first:end, None] * factors + added) >> (np.uint64(64) - _VALUE_BITS)
            found = np.minimum.reduceat(values, starts[number:last] - first, axis=0)
            own = documents[starts[number:last]]
            filled = found | np.uint64(ROUNDS) << _VALUE_BITS
            least[own] = np.where(least[own] == _EMPTY, filled, least[own])
            number = last
        return least

    def _keys(self, signatures: Array) -> Array:
        values = signatures.reshape(-1, self.bands, self.rows)
        total = np.tile(_SEEDS[-2 - self.bands : -2], (len(signatures), 1))
        for row in range(self.rows):
            total = mix(total ^ values[:, :, row])
        return total


def _without_repeats(hashes: Array, documents: Array) -> tuple[Array, Array]:
    """Each shingle of a document once; documents stay in their order."""
    order = np.lexsort((hashes, documents))
    hashes, documents = hashes[order], documents[order]
    kept = np.append(True, (hashes[1:] != hashes[:-1]) | (documents[1:] != documents[:-1]))
    return hashes[kept], documents[kept]
