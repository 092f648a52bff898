"""Hugging Face: bytes and offsets -> token ids, by the `tokenizers` library. The definition of what is right."""

import os
from itertools import pairwise

import numpy as np

from penstock.base.errors import ConfigError
from penstock.prepare.tokenizers.engine import Encoded, Offsets, TextBytes, read_tokenizer, strings

NAME, PACKAGE = "Hugging Face tokenizers", "tokenizers"
# Its encodings hold some 200 bytes a token besides the id, in Rust, and a Python number more while they are copied.
PORTION_BYTES = 128 << 10
GROWTH_BYTES = 16 << 20
PIECE_COST = 250  # measured 213 with 13 MB of one piece
TAKES_TURNS = False


class Engine:
    def __init__(self, location: str, special_tokens: str) -> None:
        # Ours call it, without the interpreter's lock; its own would be as many as the machine has.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        import tokenizers

        text = read_tokenizer(location)
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # it knows no other
            raise ConfigError(
                f"Hugging Face's tokenizers cannot load this file: {error}",
                where=location,
                next_step="use a tokenizer.json that they load",
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = special_tokens == "text"

    def encode(self, data: TextBytes, offsets: Offsets) -> Encoded:
        encodings = self._tokenizer.encode_batch_fast(strings(data, offsets), add_special_tokens=False)
        ends = np.cumsum([0, *map(len, encodings)], dtype="i8")
        ids = np.empty(int(ends[-1]), "u4")
        for encoding, (start, end) in zip(encodings, pairwise(ends.tolist()), strict=True):
            ids[start:end] = encoding.ids
        return ids, ends
