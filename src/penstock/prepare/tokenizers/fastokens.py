"""Fastokens: bytes and offsets -> token ids, by the `fastokens` library."""

import os

import numpy as np

from penstock.prepare.tokenizers.engine import Encoded, Offsets, TextBytes, read_tokenizer, strings

NAME, PACKAGE = "fastokens", "fastokens"
PORTION_BYTES = 256 << 10
PIECE_COST = 16
TAKES_TURNS = False
GROWTH_BYTES = 128 << 20  # each thread has its own table of words; measured on random letters, where it stops


class Engine:
    def __init__(self, location: str, special_tokens: str) -> None:
        os.environ.setdefault("FASTOKENS_BPE_THREADS", "1")  # ours call it; its own would be as many as the machine has
        import fastokens

        self._tokenizer = fastokens.Tokenizer.from_json_str(read_tokenizer(location))
        self._tokenizer.no_truncation()
        self._special_is_text = special_tokens == "text"

    def encode(self, data: TextBytes, offsets: Offsets) -> Encoded:
        ids, ends = self._tokenizer.encode_batch_flat(
            strings(data, offsets), add_special_tokens=False, split_special_tokens=self._special_is_text
        )
        return np.frombuffer(ids, "<u4"), np.frombuffer(ends, "<i8")
