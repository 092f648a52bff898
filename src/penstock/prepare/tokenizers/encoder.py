"""Encoder: an Arrow array of documents -> the ids of each, with those that begin and end it."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import InputError
from penstock.base.stores.scratch import Scratch
from penstock.prepare.budget.room import LARGE_ROW
from penstock.prepare.tokenizers import Tokenizer, open_tokenizer

Array = np.ndarray[Any, Any]
MOST_TOKENS = 2**31 - 1

# A process has one tokenizer: it is the largest thing there.
open_once = lru_cache(maxsize=1)(open_tokenizer)


@dataclass(frozen=True)
class Encoder:
    tokenizer: Tokenizer
    dtype: np.dtype[Any]
    begin: tuple[int, ...]
    end: tuple[int, ...]

    def encode(self, texts: pa.Array, scratch_folder: str) -> tuple[Array, Array]:
        """(ids, offsets): the ids of document i are `ids[offsets[i]:offsets[i + 1]]`."""
        if texts.nbytes > LARGE_ROW:
            return self._large(texts, scratch_folder)
        return _with_ends(*self.tokenizer.encode(texts), self.begin, self.end)

    def _large(self, texts: pa.Array, scratch_folder: str) -> tuple[Array, Array]:
        """Ids in a mapped file without a name, and offsets. Ids may take four times the memory of the text."""
        begin, end = (np.array(ids, self.dtype) for ids in (self.begin, self.end))
        offsets = [0]
        with closing(Scratch(scratch_folder)) as scratch:
            for row in range(len(texts)):
                scratch.write(begin.tobytes())
                self.tokenizer.encode_into(texts.slice(row, 1), lambda ids: scratch.write(ids.tobytes()))
                scratch.write(end.tobytes())
                offsets.append(scratch.size // self.dtype.itemsize)
            _refuse_too_many(offsets[-1])
            ids = np.frombuffer(scratch.map(), self.dtype) if scratch.size else np.empty(0, self.dtype)
        return ids, np.array(offsets)


def _refuse_too_many(tokens: int) -> None:
    if tokens > MOST_TOKENS:
        raise InputError(
            f"one document has {tokens:,} tokens, and a list of Arrow's holds {MOST_TOKENS:,}",
            next_step="cut the document in two before it is read",
        )


def _with_ends(ids: Array, offsets: Array, begin: Sequence[int], end: Sequence[int]) -> tuple[Array, Array]:
    """The ids with those of `begin` before and of `end` behind each document's."""
    added = len(begin) + len(end)
    if not added:
        return ids, offsets
    documents = len(offsets) - 1
    wide = offsets + added * np.arange(documents + 1)
    out = np.empty(len(ids) + added * documents, ids.dtype)
    is_text = np.ones(len(out), bool)
    for place, each in enumerate(begin):
        out[wide[:-1] + place], is_text[wide[:-1] + place] = each, False
    for place, each in enumerate(reversed(end), start=1):
        out[wide[1:] - place], is_text[wide[1:] - place] = each, False
    out[is_text] = ids
    return out, wide
