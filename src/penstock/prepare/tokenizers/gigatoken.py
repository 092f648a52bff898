"""Gigatoken: bytes and offsets -> token ids, by the `gigatoken` library. It takes Arrow's layout as it is."""

import os
import threading

from penstock.base.memory import give_back_heap, resident_memory
from penstock.prepare.tokenizers.engine import Encoded, Offsets, TextBytes, read_tokenizer
from penstock.prepare.tokenizers.outline import without_special_tokens

NAME, PACKAGE = "gigatoken", "gigatoken"
PORTION_BYTES = 1 << 20
GROWTH_BYTES = 96 << 20
PIECE_COST = 16  # bytes held for each of a text that is encoded in one go
TAKES_TURNS = True  # one call at a time, whatever threads there are
# Its tables of words double: 16, 32 and 64 MiB with some 150,000, 390,000 and 790,000 words. While a table doubles, the
# old one is held beside the new one, three times the old one in all: the step to 128 MiB would need 192.
_STEP_BYTES = 12 << 20  # a call that adds so much has doubled a table; readers beside it add a batch at most
_MOST_STEPS_BYTES = 46 << 20  # reached with a table of 64 MiB


class Engine:
    """It remembers every word that it has seen. Before that becomes too much it is loaded anew, which forgets them.

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
            before = _held_bytes()
            encoded = self._tokenizer.encode_batch(texts, parallel=False).layout
            self._forget_if_grown(before, _held_bytes())
        return encoded.content.data, encoded.offsets.data

    def _load(self) -> None:
        import awkward  # noqa: F401  before its memory is looked at
        from gigatoken.gigatoken_rs import load_hf_json

        text = read_tokenizer(self._location)
        # It has no option for it; but a token that it has never heard of is text.
        self._tokenizer = load_hf_json(without_special_tokens(text) if self._special_tokens == "text" else text)
        self._tokenizer.encode_batch([b" "], parallel=False)  # the first call makes the table of words
        self._steps_bytes, self._start_bytes = 0, _held_bytes()

    def _forget_if_grown(self, before: int, now: int) -> None:
        """A batch more or less hides slow growth, but no doubling: each call is looked at by itself, too."""
        if now - before > _STEP_BYTES:
            self._steps_bytes += now - before
        if self._steps_bytes > _MOST_STEPS_BYTES or now - self._start_bytes > GROWTH_BYTES:
            del self._tokenizer  # before the next is there
            give_back_heap()
            self._load()


def _held_bytes() -> int:
    return resident_memory(os.getpid()).counted
