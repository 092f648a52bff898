"""Small tokenizers of every kind that matters, made by the real library from a little text."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Definition

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN = LLAMA.replace("{1,3}", "")
MIXED_CASE = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END = "<|endoftext|>"
TEXT = [
    "The quick brown fox jumps over the lazy dog, and it isn't the first time; we'll see 1234 of them in 2024.",
    "    def run(self, text: str) -> int:\r\n\t\treturn len(text)  # café, naïve, Привет мир, 日本語 中文字, 한국어 🙂",
    "Once upon a time there was a time. The end of the line is the end\nof the line. The the the. A a I'm it's they're",
]


def _byte_level(split: str | None, normalizer: Any = None) -> Definition:
    tokenizer = Definition(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    words = pre_tokenizers.Split(Regex(split), "isolated") if split else None
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_only]) if words else bytes_only
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def _that_adds_and_cuts_off() -> Definition:
    tokenizer = _byte_level(MIXED_CASE)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{END} $A {END}", special_tokens=[(END, 0)])
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=8)
    return tokenizer


def _marked_spaces() -> Definition:
    """Gemma's kind: a space is a mark, nothing is split, unknown characters are bytes."""
    bytes_of_all = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Definition(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", *bytes_of_all], show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return tokenizer


def _word_piece() -> Definition:
    tokenizer = Definition(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[UNK]", "[CLS]"], show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def _unigram() -> Definition:
    tokenizer = Definition(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=200, special_tokens=["<unk>"], unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def _with_odd_tokens() -> Definition:
    tokenizer = _byte_level(None)
    tokenizer.add_tokens([AddedToken("fox", single_word=True), AddedToken("the end", normalized=False)])
    return tokenizer


KINDS: dict[str, Callable[[], Definition]] = {
    "gpt2": lambda: _byte_level(None),
    "llama": lambda: _byte_level(LLAMA),
    "qwen": lambda: _byte_level(QWEN, normalizers.NFC()),
    "qwen without nfc": lambda: _byte_level(QWEN),
    "mixed case": _that_adds_and_cuts_off,
    "marked spaces": _marked_spaces,
    "word piece": _word_piece,
    "unigram": _unigram,
    "odd tokens": _with_odd_tokens,
}
ENGINES = [name for name in ("gigatoken", "fastokens") if importlib.util.find_spec(name)]


@cache
def tokenizer_json(kind: str) -> str:
    text: str = KINDS[kind]().to_str()
    return text


def save(kind: str, folder: Path) -> str:
    location = folder / "tokenizer.json"
    location.write_text(tokenizer_json(kind))
    return str(location)


@cache
def definition(kind: str, special_tokens: str = "text") -> Definition:
    tokenizer = Definition.from_str(tokenizer_json(kind))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = special_tokens == "text"
    return tokenizer


def defined_ids(kind: str, texts: Sequence[str], special_tokens: str = "text") -> list[list[int]]:
    """What Hugging Face's library says, one text at a time."""
    tokenizer = definition(kind, special_tokens)
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]


def lists(encoded: tuple[Any, Any]) -> list[list[int]]:
    ids, offsets = encoded
    found: list[list[int]] = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(ids)).to_pylist()
    return found


_PIECES = """
the The fox isn't we'll I'M 's 'S 12 1234567 é e\u0301 \u0301 ä中 文 日本 ไทย العر 🙂 👨‍👩‍👧 \u1100\u1161
ﬁ \u017f \u212a def( ):-> #!? /// <|endoftext|> <|endoftext the\u2581end \u2581 Ġ ## zzz
"""
PIECES = _PIECES.split()
SPACES = (" ", "  ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u3000", "\xa0", "\u2028", "\x85", "\0")
CUTS = (" ", " a", "b ", "\n", "\nC", "D\n", "\n中")
documents = st.lists(
    st.sampled_from(PIECES) | st.sampled_from(SPACES) | st.sampled_from(CUTS) | st.text(max_size=4), max_size=25
).map("".join)
