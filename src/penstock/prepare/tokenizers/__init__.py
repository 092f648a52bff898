"""Tokenizer: an Arrow array of texts -> token ids, flat, and where each text's begin. An Encoder adds ends to them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from penstock.base.errors import InputError
from penstock.base.stores.scratch import Scratch
from penstock.prepare.budget.room import LARGE_ROW
from penstock.prepare.tokenizers.cutting import Cutter, Places
from penstock.prepare.tokenizers.engine import Encoded, Engine, Offsets, TextBytes, engine_module
from penstock.prepare.tokenizers.file import TokenizerFile

if TYPE_CHECKING:
    import pyarrow as pa

MOST_TOKENS = 2**31 - 1


class Tokenizer:
    """Open: it holds the tables, and threads if there are more than one.

    A text longer than `portion_bytes` is cut where `cutter` allows it and joined again: what a call holds is bounded,
    and threads share a large text. A text that cannot be cut is encoded whole, whatever that takes.
    """

    def __init__(
        self, engine: Engine, cutter: Cutter, portion_bytes: int, dtype: np.dtype[Any], threads: int = 1
    ) -> None:
        self._engine, self._cutter, self._portion_bytes, self._dtype = engine, cutter, portion_bytes, dtype
        self._pool = ThreadPoolExecutor(threads, "tokenize") if threads > 1 else None
        self._most_waiting = 2 * threads
        self._large = threading.Lock()

    def __enter__(self) -> Tokenizer:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool:
            self._pool.shutdown()

    def encode(self, texts: pa.Array) -> tuple[NDArray[Any], Offsets]:
        """(ids, offsets): the ids of text i are `ids[offsets[i]:offsets[i + 1]]`. A null has none."""
        data, offsets = _text_parts(texts)
        pieces = self._pieces(data, offsets)
        ids, ends = self.encode_pieces(data, pieces)
        return ids, (ends if pieces is offsets else ends[_places(pieces, offsets)])

    def encode_pieces(self, data: TextBytes, pieces: Offsets) -> tuple[NDArray[Any], Offsets]:
        return _joined(list(self._encoded(data, pieces)), self._dtype)

    def encode_into(self, texts: pa.Array, write: Callable[[NDArray[Any]], None]) -> None:
        """Hand the ids of all texts to `write` as they come. Only a few portions of them are held at a time."""
        data, offsets = _text_parts(texts)
        for ids, _ in self._encoded(data, self._pieces(data, offsets)):
            write(ids.astype(self._dtype, copy=False))

    def _encoded(self, data: TextBytes, pieces: Offsets) -> Iterator[Encoded]:
        """The ids of each portion, in order."""
        encode = partial(self._encode, data)
        if not self._pool:
            yield from map(encode, _portions(pieces, self._portion_bytes))
            return
        waiting: deque[Future[Encoded]] = deque()
        for portion in _portions(pieces, self._portion_bytes):
            waiting.append(self._pool.submit(encode, portion))
            if len(waiting) > self._most_waiting:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _encode(self, data: TextBytes, offsets: Offsets) -> Encoded:
        start, end = int(offsets[0]), int(offsets[-1])
        is_cut = end - start <= 2 * self._portion_bytes
        with nullcontext() if is_cut else self._large:  # whoever let in a piece that is not has counted one at a time
            return self._engine.encode(data[start:end], offsets - start)

    def largest_pieces(self, texts: pa.Array) -> Offsets:
        """For each text, the size of its largest piece that cannot be cut."""
        data, offsets = _text_parts(texts)
        pieces = self._pieces(data, offsets)
        starts = _places(pieces, offsets)[:-1]
        return np.maximum.reduceat(np.append(np.diff(pieces), 0), starts) if len(starts) else starts

    def _pieces(self, data: TextBytes, offsets: Offsets) -> Offsets:
        return self._cutter.cut(data, offsets, self._portion_bytes)


def open_tokenizer(
    file: TokenizerFile, engine: str, threads: int = 1, special_tokens: str = "text", places: Places = ()
) -> Tokenizer:
    """`special_tokens`: whether `<|endoftext|>` inside a text is that text, or the token ("tokens"); `places`: where
    long texts may be cut."""
    file.read_unchanged()
    module = engine_module(engine)
    return Tokenizer(
        module.Engine(file.location, special_tokens), Cutter(places), module.PORTION_BYTES, file.dtype, threads
    )


# A process has one tokenizer: it is the largest thing there.
open_once = lru_cache(maxsize=1)(open_tokenizer)


@dataclass(frozen=True)
class Encoder:
    tokenizer: Tokenizer
    dtype: np.dtype[Any]
    begin: tuple[int, ...]
    end: tuple[int, ...]

    def encode(self, texts: pa.Array, scratch_folder: str) -> tuple[NDArray[Any], Offsets]:
        """(ids, offsets): the ids of document i are `ids[offsets[i]:offsets[i + 1]]`."""
        if texts.nbytes > LARGE_ROW:
            return self._large(texts, scratch_folder)
        return _with_ends(*self.tokenizer.encode(texts), self.begin, self.end)

    def _large(self, texts: pa.Array, scratch_folder: str) -> tuple[NDArray[Any], Offsets]:
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
            f"one document has {tokens:,} tokens, but an Arrow list holds at most {MOST_TOKENS:,}",
            next_step="cut the document in two before it is read",
        )


def _with_ends(
    ids: NDArray[Any], offsets: Offsets, begin: Sequence[int], end: Sequence[int]
) -> tuple[NDArray[Any], Offsets]:
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


def _portions(offsets: Offsets, portion_bytes: int) -> Iterator[Offsets]:
    """Runs of whole pieces of about `portion_bytes`, as slices of `offsets` that share their ends."""
    starts = (offsets[:-1] - offsets[0]) // portion_bytes
    cuts = np.flatnonzero(np.diff(starts)) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(offsets) - 1]):
        yield offsets[first : last + 1]


def _joined(encoded: list[Encoded], dtype: np.dtype[Any]) -> tuple[NDArray[Any], Offsets]:
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


def _text_parts(texts: pa.Array) -> tuple[TextBytes, Offsets]:
    """The bytes and offsets of an array of texts of any layout; no byte is copied where Arrow has them flat."""
    import pyarrow as pa  # not above: the process of a comparison does without

    if not pa.types.is_large_string(texts.type) and not pa.types.is_string(texts.type):
        texts = texts.cast(pa.large_string())
    if texts.null_count:
        texts = texts.fill_null("")
    _, offsets, data = texts.buffers()
    if not len(texts) or data is None:
        return np.empty(0, "u1"), np.zeros(len(texts) + 1, "i8")
    width = "i8" if pa.types.is_large_string(texts.type) else "i4"
    places = np.frombuffer(offsets, width)[texts.offset :][: len(texts) + 1]
    return np.frombuffer(data, "u1"), places.astype("i8")


def _places(pieces: Offsets, offsets: Offsets) -> Offsets:
    """Numbers of `pieces` that are `offsets` of whole texts: a cut is inside a text, so equal ones are all of them."""
    return np.flatnonzero(np.isin(pieces, offsets))
