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
