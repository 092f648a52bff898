"""Planted: real documents -> a corpus with near-copies of known similarity, 0.5 to 1. One seed, always the same bytes.

An original is a run of lines of a real document that resembles no other original. Its copy is edited in one of six
ways, as much as the wanted similarity asks for; then the exact similarity is computed. Most originals have one copy.
Some begin a chain, in which each copy is a copy of the one before, so that its ends differ more than its neighbours.
All stand anywhere in the corpus: a copy may come before its original.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.corpus import COPY, MADE, Document, write_set
from benchmarks.near.exact import Corpus, shingles, similarity

SEED = 20_251_118
PAIRS, CHAINS, CHAIN_COPIES = 6_000, 300, 3
LEAST_WORDS, MOST_WORDS = 60, 1_200
LEAST, CHAIN_LEAST = 0.5, 0.8
STRANGER = 0.3  # originals are less similar than this
FILES = 4
FIRST_WITHOUT_SPACES = "\u0e00"  # Thai, and all scripts after it
GAPS = re.compile(r"(\s+)")
LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", "u1")

Random = np.random.Generator
Edit = Callable[[list[str], int, Random], list[str]]


@dataclass(frozen=True)
class Planted:
    """Two documents of the corpus by their ids, and how similar they are exactly."""

    original: str
    copy: str
    similarity: float
    edit: str
    in_chain: bool


def make_planted(folder: Path, real: Path) -> Path:
    """`folder`, with the corpus in parquet/; what was planted is beside it."""
    if not (folder / MADE).exists():
        random = np.random.default_rng(SEED)
        chosen = originals(real, PAIRS + CHAINS, random)
        documents, planted = [], []
        for row, text in enumerate(chosen):
            documents.append(Document(random.random(), _original(row), "planted", text.encode()))
            for copy, found in copies(row, text, random):
                documents.append(Document(random.random(), found.copy, "planted", copy.encode()))
                planted.append(found)
        pq.write_table(pa.Table.from_pylist([vars(each) for each in planted]), truth(folder))
        write_set(folder, sorted(documents, key=lambda each: each.place), FILES)
    return folder


def _original(row: int) -> str:
    return f"original-{row:05d}"


def truth(folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder.with_name(f"{folder.name}-truth.parquet")


def read_planted(folder: Path) -> list[Planted]:
    return [Planted(**each) for each in pq.read_table(truth(folder)).to_pylist()]


# Originals.


def originals(real: Path, count: int, random: Random) -> list[str]:
    """Strangers to each other. The logarithms of their lengths are spread evenly."""
    pieces = []
    for text in _texts(real):
        if len(pieces) == 2 * count:
            break
        wanted = int(np.exp(random.uniform(np.log(LEAST_WORDS), np.log(MOST_WORDS))))
        piece = _piece(text, wanted, random)
        if piece:
            pieces.append(piece)
    found = _strangers(pieces)[:count]
    assert len(found) == count, f"{len(found)} strangers among {len(pieces)} pieces"
    return [pieces[row] for row in found]


def _texts(real: Path) -> Iterator[str]:
    """Of distinct documents, in scripts with spaces."""
    for path in sorted(real.glob("*.parquet")):
        for row in pq.read_table(path, columns=["id", "text"]).to_pylist():
            if not row["id"].endswith(COPY) and _has_spaces(row["text"]):
                yield row["text"]


def _has_spaces(text: str) -> bool:
    """Whether it is written in a script with spaces between words: penstock compares others by their characters."""
    return sum(each >= FIRST_WITHOUT_SPACES for each in text) < len(text) / 10


def _piece(text: str, wanted: int, random: Random) -> str:
    """So many words, from a line on; nothing where lines are too long for it."""
    lines = text.splitlines(keepends=True)
    counts = np.cumsum([len(line.split()) for line in lines])
    if not len(counts) or counts[-1] < wanted:
        return ""
    first = int(random.integers(np.searchsorted(counts, counts[-1] - wanted, "right") + 1))
    before = counts[first - 1] if first else 0
    last = int(np.searchsorted(counts, before + wanted)) + 1
    return "".join(lines[first:last]) if counts[last - 1] - before <= 2 * wanted else ""


def _strangers(pieces: list[str]) -> list[int]:
    corpus, kept = Corpus(pieces), np.zeros(len(pieces), bool)
    for row in range(len(pieces)):
        kept[row] = not (kept & (corpus.similarities(row) >= STRANGER)).any()
    return np.flatnonzero(kept).tolist()


# Copies.


def copies(row: int, text: str, random: Random) -> Iterator[tuple[str, Planted]]:
    """Pairs first; the last originals begin chains."""
    in_chain = row >= PAIRS
    before, before_id = text, _original(row)
    for number in range(CHAIN_COPIES if in_chain else 1):
        edit = tuple(EDITS)[int(random.integers(len(EDITS)))]
        wanted = random.uniform(CHAIN_LEAST if in_chain else LEAST, 1)
        copy, found = edited(before, wanted, EDITS[edit], random)
        copy_id = f"copy-{row:05d}-{number}"
        yield copy, Planted(before_id, copy_id, found, edit, in_chain)
        before, before_id = copy, copy_id


def edited(text: str, wanted: float, edit: Edit, random: Random) -> tuple[str, float]:
    """The least edit after which the similarity is at most the wanted one, and that similarity."""
    parts, known = GAPS.split(text.strip()), shingles(text)
    seed = random.integers(2**63)

    def attempt(amount: int) -> tuple[str, float]:
        copy = "".join(edit(parts, amount, np.random.default_rng(seed)))
        return copy, similarity(known, shingles(copy))

    least, most = 1, len(parts) // 2
    while least < most:
        middle = (least + most) // 2
        if attempt(middle)[1] > wanted:
            least = middle + 1
        else:
            most = middle
    return attempt(least)


def _words(count: int, random: Random) -> list[str]:
    return [bytes(LETTERS[row]).decode() for row in random.integers(0, 26, (count, 9))]


def _places(parts: list[str], count: int, random: Random) -> list[int]:
    """Of words: parts are words and the white space between them, by turns. More places keep those of fewer."""
    return [2 * int(word) for word in random.permutation((len(parts) + 1) // 2)[:count]]


def replaced(parts: list[str], amount: int, random: Random) -> list[str]:
    copy = list(parts)
    for at, word in zip(_places(parts, amount, random), _words(amount, random), strict=True):
        copy[at] = word
    return copy


def inserted(parts: list[str], amount: int, random: Random) -> list[str]:
    copy = list(parts)
    for at, word in zip(_places(parts, amount, random), _words(amount, random), strict=True):
        copy[at] += " " + word
    return copy


def left_out(parts: list[str], amount: int, random: Random) -> list[str]:
    """The white space around a word that is gone runs together, which makes no difference."""
    copy = list(parts)
    for at in _places(parts, amount, random):
        copy[at] = ""
    return copy


def shortened(parts: list[str], amount: int, _: Random) -> list[str]:
    return parts[: len(parts) - 2 * amount]


def lengthened(parts: list[str], amount: int, random: Random) -> list[str]:
    return [*parts, "\n", *(word + " " for word in _words(amount, random))]


def rewritten(parts: list[str], amount: int, random: Random) -> list[str]:
    """One passage; the rest as it was."""
    first = 2 * int(random.integers(max(1, (len(parts) + 1) // 2 - amount)))
    copy = list(parts)
    for at, word in zip(range(first, len(parts), 2), _words(amount, random), strict=False):
        copy[at] = word
    return copy


EDITS: dict[str, Edit] = {
    "words replaced": replaced,
    "words inserted": inserted,
    "words left out": left_out,
    "end cut off": shortened,
    "end added": lengthened,
    "passage rewritten": rewritten,
}
