"""Gigatoken: bytes and offsets -> token ids, by the `gigatoken` library. It takes Arrow's layout as it is."""

from __future__ import annotations

import os
import threading

from penstock.base.memory import resident_memory
from penstock.prepare.tokenizers.engine import Encoded, Offsets, TextBytes, read_tokenizer
from penstock.prepare.tokenizers.outline import without_special_tokens

NAME, PACKAGE = "gigatoken", "gigatoken"
PORTION_BYTES = 1 << 20
GROWTH_BYTES = 96 << 20
PIECE_COST = 16  # bytes held for each of a text that is encoded in one go
TAKES_TURNS = True  # one call at a time, whatever threads there are
_LOOK_BYTES = 8 << 20  # of text, after which it is looked at again; random letters make it grow five times as much


class Engine:
    """It remembers every word that it has seen. When that has become too much it is loaded anew, which forgets them.

    Calls wait for each other inside the library already, so that one lock more costs nothing.
    """

    def __init__(self, location: str, special_tokens: str) -> None:
        self._location, self._special_tokens = location, special_tokens
        self._lock = threading.Lock()
        self._load()

    def encode(self, data: TextBytes, offsets: Offsets) -> Encoded:
        import awkward
        from awkward.contents import ListOffsetArray, NumpyArray
        from awkward.index import Index64

        flat = NumpyArray(data, parameters={"__array__": "char"})
        texts = awkward.Array(ListOffsetArray(Index64(offsets), flat, parameters={"__array__": "string"}))
        with self._lock:
            encoded = self._tokenizer.encode_batch(texts, parallel=False).layout
            self._unseen += len(data)
            if self._unseen >= _LOOK_BYTES:
                self._forget_if_grown()
        return encoded.content.data, encoded.offsets.data

    def _load(self) -> None:
        from gigatoken.gigatoken_rs import load_hf_json

        text = read_tokenizer(self._location)
        # It has no option for it; but a token that it has never heard of is text.
        self._tokenizer = load_hf_json(without_special_tokens(text) if self._special_tokens == "text" else text)
        self._unseen, self._start_bytes = 0, resident_memory(os.getpid()).counted

    def _forget_if_grown(self) -> None:
        self._unseen = 0
        if resident_memory(os.getpid()).counted - self._start_bytes > GROWTH_BYTES:
            del self._tokenizer  # before the next is there
            self._load()
