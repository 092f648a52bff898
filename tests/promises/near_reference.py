"""Near-duplicates in plain Python: every document is compared with every other. The definition the tests hold runs to.

It shares no code with penstock: words are those of `str.split`, shingles are tuples in sets, and similarities are
fractions.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

# How the names of characters begin in scripts that put no space between words.
UNSPACED = ("CJK UNIFIED", "CJK COMPATIBILITY", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
Shingles = frozenset[tuple[str, ...]]


@dataclass(frozen=True)
class Near:
    """Options of `near_dedup` that decide which documents stay."""

    threshold: float = 0.8
    words: int = 0  # neither: 5 words or 8 characters, by script
    characters: int = 0
    keep: Any = "first"


@dataclass(frozen=True)
class Removed:
    """A removed document and its survivor, by their places in the corpus."""

    document: int
    survivor: int
    similarity: float


def shingles(text: str | None, near: Near) -> Shingles:
    words, characters = (near.words, near.characters) if near.words or near.characters else (5, 8)
    text = text or ""
    if not words or (characters and is_mostly_unspaced(text)):
        return frozenset(("by characters", *each) for each in _windows(" ".join(text.split()), characters))
    return frozenset(("by words", *each) for each in _windows(text.split(), words))


def _windows(units: Sequence[str], count: int) -> list[Sequence[str]]:
    """All runs of `count` units; all units where there are fewer."""
    return [units[start : start + count] for start in range(max(1, len(units) - count + 1))]


def is_mostly_unspaced(text: str) -> bool:
    characters = "".join(text.split())
    unspaced = sum(unicodedata.name(each, "").startswith(UNSPACED) for each in characters)
    return unspaced > len(characters) / 2


def similarity(one: Shingles, other: Shingles) -> Fraction:
    return Fraction(len(one & other), len(one | other))


def ranked(texts: Sequence[str | None], near: Near, columns: dict[str, Sequence[Any]] | None = None) -> list[int]:
    """Documents in the order in which they are visited."""
    if near.keep == "first":
        return list(range(len(texts)))
    if near.keep == "longest":
        return sorted(range(len(texts)), key=lambda each: -len((texts[each] or "").encode()))
    assert columns
    values = columns[near.keep["column"]]
    with_value = [each for each in range(len(texts)) if not _is_missing(values[each])]
    without = [each for each in range(len(texts)) if _is_missing(values[each])]
    if near.keep.get("order", "desc") == "asc":
        return [*sorted(with_value, key=lambda each: values[each]), *without]
    return [*sorted(with_value, key=lambda each: values[each], reverse=True), *without]  # a stable sort: ties by place


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def removed(
    texts: Sequence[str | None], near: Near, columns: dict[str, Sequence[Any]] | None = None
) -> dict[int, Removed]:
    """A document is removed if one that stayed is similar to it: the first such in the order of ranks."""
    sets = [shingles(text, near) for text in texts]
    stayed: list[int] = []
    found = {}
    for document in ranked(texts, near, columns):
        for survivor in stayed:
            shared = similarity(sets[document], sets[survivor])
            if float(shared) >= near.threshold:
                found[document] = Removed(document, survivor, float(shared))
                break
        else:
            stayed.append(document)
    return found


def similar_pairs(texts: Sequence[str | None], near: Near) -> int:
    """Number of pairs of documents that are similar, whichever of them stay."""
    sets = [shingles(text, near) for text in texts]
    return sum(
        float(similarity(one, other)) >= near.threshold for at, one in enumerate(sets) for other in sets[at + 1 :]
    )


def stays(texts: Sequence[str | None], near: Near, columns: dict[str, Sequence[Any]] | None = None) -> list[int]:
    gone = removed(texts, near, columns)
    return [document for document in range(len(texts)) if document not in gone]
