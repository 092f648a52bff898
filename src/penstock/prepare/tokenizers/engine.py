"""Engine: what turns bytes and offsets into token ids. There are three, each in a file of its own.

Each module has six names beside its class `Engine(location, special_tokens)`:
  NAME           for people
  PACKAGE        that it needs
  PORTION_BYTES  how much text a call is given, unless one piece is more
  GROWTH_BYTES   by how much it may grow beyond what it holds when loaded, with words that it remembers: for each thread
                 that calls it
  PIECE_COST     bytes that it holds for each byte of a text that is encoded in one go
  TAKES_TURNS    whether calls wait for each other, so that more threads give nothing
Its `encode` runs on the calling thread, without the interpreter's lock but for handing texts over, and any number of
threads may call it at once.
"""

import importlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.base.files import ReadFile

TextBytes = NDArray[np.uint8]
Offsets = NDArray[np.int64]
Encoded = tuple[NDArray[np.uint32], Offsets]
MODULES = {"gigatoken": "gigatoken", "fastokens": "fastokens", "hf": "hugging_face"}  # by the names that jobs have
DEFINITION = "hf"


class Engine(Protocol):
    def encode(self, data: TextBytes, offsets: Offsets) -> Encoded:
        """Text i is `data[offsets[i]:offsets[i + 1]]`, in UTF-8; the first offset is 0. Nothing is added to its ids."""
        ...


def engine_module(name: str) -> Any:
    return importlib.import_module(f"penstock.prepare.tokenizers.{MODULES[name]}")


def read_tokenizer(location: str) -> str:
    with ReadFile(location) as handle:
        return handle.read().decode()


def strings(data: TextBytes, offsets: Offsets) -> list[str]:
    """The texts as Python has them, for engines that take no others."""
    view = data.data
    return [str(view[start:end], "utf-8") for start, end in pairwise(offsets.tolist())]


def portions(offsets: Offsets, portion_bytes: int) -> Iterator[Offsets]:
    """Runs of whole pieces of about `portion_bytes`, as slices of `offsets` that share their ends."""
    starts = (offsets[:-1] - offsets[0]) // portion_bytes
    cuts = np.flatnonzero(np.diff(starts)) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(offsets) - 1]):
        yield offsets[first : last + 1]


def encode_portion(engine: Engine, data: TextBytes, offsets: Offsets) -> Encoded:
    start = int(offsets[0])
    return engine.encode(data[start : int(offsets[-1])], offsets - start)


def joined(encoded: list[Encoded], dtype: np.dtype[Any]) -> tuple[NDArray[Any], Offsets]:
    """The portions as one, which empties the list."""
    counts = [np.diff(offsets) for _, offsets in encoded]
    ends = np.cumsum(np.concatenate([np.zeros(1, "i8"), *counts]), dtype="i8")
    ids = np.empty(int(ends[-1]), dtype)
    start = 0
    encoded.reverse()
    while encoded:  # each is let go when it is copied, and pages of `ids` are taken as they are written
        flat, _ = encoded.pop()
        ids[start : start + len(flat)] = flat
        start += len(flat)
    return ids, ends
