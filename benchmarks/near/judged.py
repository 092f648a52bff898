"""Judged: what a tool kept of a corpus, and exact similarities -> recall, precision, and detection by similarity."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from benchmarks.near.exact import Corpus, shingles, similarity
from benchmarks.near.planted import LEAST, Planted

Removals = dict[str, tuple[str, float]]  # id of a removed document -> id of its survivor, similarity as the tool says
BIN = 0.05


class Known:
    """A corpus in memory, and all that is asked about it."""

    def __init__(self, folder: Path) -> None:
        self.places: dict[tuple[str, int], str] = {}  # file and row -> id
        self.texts: dict[str, str] = {}
        for path in sorted((folder / "parquet").glob("*.parquet")):
            for row, document in enumerate(pq.read_table(path, columns=["id", "text"]).to_pylist()):
                self.places[path.name, row] = document["id"]
                self.texts[document["id"]] = document["text"]

    @cached_property
    def ids(self) -> list[str]:
        return list(self.texts)

    @cached_property
    def corpus(self) -> Corpus:
        return Corpus(list(self.texts.values()))

    def similarity(self, one: str, other: str) -> float:
        return similarity(shingles(self.texts[one]), shingles(self.texts[other]))


@dataclass(frozen=True)
class Judged:
    """Of one run. `right` removals are similar enough to a document that stayed."""

    documents: int
    removed: int
    right: int
    planted: int
    found: int
    overlooked: int

    @property
    def recall(self) -> float:
        """Of planted pairs, the share of which not both stayed."""
        return self.found / max(1, self.planted)

    @property
    def precision(self) -> float:
        return self.right / max(1, self.removed)


def judge(known: Known, planted: list[Planted], kept: set[str], threshold: float) -> Judged:
    """`overlooked` pairs are similar enough, and both stayed; planted or not."""
    assert kept <= known.texts.keys(), "kept documents have ids of the corpus"
    stayed = np.array([each in kept for each in known.ids])
    right = overlooked = 0
    for row in range(len(stayed)):
        similar = known.corpus.similarities(row) >= threshold
        similar[row] = False
        if stayed[row]:
            overlooked += int((similar & stayed)[row + 1 :].sum())
        else:
            right += bool((similar & stayed).any())
    pairs = [each for each in planted if not each.in_chain and each.similarity >= threshold]
    found = sum(_found(each, kept) for each in pairs)
    return Judged(len(stayed), int((~stayed).sum()), right, len(pairs), found, overlooked)


def wrong_removals(known: Known, removals: Removals, threshold: float) -> list[str]:
    """Every removal that the named survivor does not justify, in words."""
    wrong = []
    for removed, (survivor, said) in removals.items():
        exact = known.similarity(removed, survivor)
        if survivor in removals:
            wrong.append(f"{removed}: its survivor {survivor} was removed, too")
        if exact < threshold or abs(exact - said) > 1e-6:
            wrong.append(f"{removed}: {exact:.6f} similar to {survivor}, not {said:.6f}")
    return wrong


@dataclass(frozen=True)
class Bin:
    """Planted pairs of about the same similarity."""

    pairs: list[Planted]

    @property
    def similarity(self) -> float:
        return sum(each.similarity for each in self.pairs) / len(self.pairs)

    def detected(self, kept: set[str]) -> float:
        return sum(_found(each, kept) for each in self.pairs) / len(self.pairs)

    def expected(self, bands: int, rows: int) -> float:
        """The mean over the pairs, not of the mean pair."""
        return sum(chance(each.similarity, bands, rows) for each in self.pairs) / len(self.pairs)


def bins(planted: list[Planted]) -> list[Bin]:
    """From LEAST to 1."""
    by_number: dict[int, list[Planted]] = {}
    for each in planted:
        if not each.in_chain and each.similarity >= LEAST:
            by_number.setdefault(min(int(each.similarity / BIN + 1e-9), round(1 / BIN) - 1), []).append(each)
    return [Bin(those) for _, those in sorted(by_number.items())]


def chance(similarity: float, bands: int, rows: int) -> float:
    return 1 - (1 - similarity**rows) ** bands


def _found(pair: Planted, kept: set[str]) -> bool:
    return not (pair.original in kept and pair.copy in kept)


# What each tool leaves.


def kept_by_baseline(folder: Path) -> set[str]:
    """Parquet, or Arrow streams as datasets writes them."""
    ids: set[str] = set()
    for path in sorted(folder.glob("*.parquet")):
        ids.update(pq.read_table(path, columns=["id"])["id"].to_pylist())
    for path in sorted(folder.glob("*.arrow")):
        with pa.memory_map(str(path)) as file:
            ids.update(pa.ipc.open_stream(file).read_all()["id"].to_pylist())
    return ids


def removals_of(prepared: Path, known: Known) -> Removals:
    """What penstock wrote about each document that it removed."""
    found: Removals = {}
    for path in sorted((prepared / "duplicates").glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            removed = known.places[Path(row["file"]).name, row["position"]]
            survivor = known.places[Path(row["survivor_file"]).name, row["survivor_position"]]
            found[removed] = survivor, row["similarity"]
    return found
