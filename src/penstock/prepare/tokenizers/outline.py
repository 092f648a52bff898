"""Outline: a tokenizer.json -> everything it says except its two large tables, and the ids that the tables hold.

Vocabulary and merges are nine tenths of such a file and hundreds of megabytes as Python objects. Whoever only wants to
know the rules, or one id, does without them.
"""

import json
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.base.errors import InputError, file_error
from penstock.base.files import ReadFile
from penstock.base.fingerprint import digest

_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_KEY = rb"\s*+(" + _STRING + rb")\s*:\s*"
ENTRY = re.compile(_KEY + rb"(\d++)\s*+,?", re.DOTALL)
_PIECE = rb"\s*+\[\s*" + _STRING + rb"\s*,\s*[-+.eE0-9]++\s*\]\s*+,?"
_PAIR = rb"\s*+(?:" + _STRING + rb"|\[\s*" + _STRING + rb"\s*,\s*" + _STRING + rb"\s*\])\s*+,?"
# Possessive throughout: a match that could be taken back would remember a place for each of its entries.
_WORDS = re.compile(rb'"vocab"\s*:\s*\{((?:\s*+' + _STRING + rb"\s*:\s*\d++\s*+,?)*+)\s*\}", re.DOTALL)
_PIECES = re.compile(rb'"vocab"\s*:\s*\[((?:' + _PIECE + rb")*+)\s*\]", re.DOTALL)
_MERGES = re.compile(rb'"merges"\s*:\s*\[(?:' + _PAIR + rb")*+\s*\]", re.DOTALL)
_ADDED = re.compile(
    r'"added_tokens"\s*:\s*(\[(?:\s*+\{(?:[^"{}]++|' + _STRING.decode() + r")*+\}\s*+,?)*+\s*\])", re.DOTALL
)


@dataclass(frozen=True)
class Outline:
    """Contents of a tokenizer.json. `rules` is its JSON with empty tables."""

    rules: dict[str, Any]
    digest: str
    vocabulary_size: int  # the largest id + 1, added tokens included
    words: bytes  # the vocabulary, as it is spelled in the file

    @property
    def added_tokens(self) -> list[dict[str, Any]]:
        return self.rules.get("added_tokens") or []

    def id_of(self, token: str) -> int | None:
        """The id of a token of this very text, in any table."""
        for added in self.added_tokens:
            if added["content"] == token:
                return int(added["id"])
        spellings = {json.dumps(token, ensure_ascii=False).encode(), json.dumps(token).encode()}
        return next((int(entry[2]) for entry in ENTRY.finditer(self.words) if entry[1] in spellings), None)

    def token_of(self, number: int) -> str | None:
        """The text of the token that has this id."""
        for added in self.added_tokens:
            if added["id"] == number:
                return str(added["content"])
        entries = ENTRY.finditer(self.words)
        return next((str(json.loads(entry[1])) for entry in entries if int(entry[2]) == number), None)


def read_outline(location: str) -> Outline:
    """Raises InputError for a file that is no tokenizer.json. It is asked for several times, and read once."""
    try:
        found = os.stat(location)
    except OSError as error:
        raise file_error(error, "open", location) from error
    return _read_outline(location, found.st_mtime_ns, found.st_size)


def forget_outlines() -> None:
    """The vocabulary as text is tens of megabytes, and nobody asks again once it is decided what runs a tokenizer."""
    _read_outline.cache_clear()


@lru_cache(maxsize=2)
def _read_outline(location: str, *_: int) -> Outline:
    with ReadFile(location) as handle:
        data = handle.read()
    try:
        return outline_of(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f"this is not a tokenizer.json of Hugging Face tokenizers ({type(error).__name__}: {error})",
            where=location,
            next_step="name a tokenizer.json, a directory that holds one, or a hub id",
        ) from error


def outline_of(data: bytes) -> Outline:
    words, pieces, merges = _WORDS.search(data), _PIECES.search(data), _MERGES.search(data)
    vocabulary = words or pieces
    small = data
    for table, empty in sorted(
        ((table, empty) for table, empty in ((vocabulary, b'"vocab":{}'), (merges, b'"merges":[]')) if table),
        key=lambda each: -each[0].start(),
    ):
        small = small[: table.start()] + empty + small[table.end() :]
    rules = json.loads(small)
    if words:
        largest = max((int(entry[2]) for entry in ENTRY.finditer(words[1])), default=-1)
    else:
        largest = (len(re.findall(_PIECE, pieces[1], re.DOTALL)) if pieces else len(rules["model"]["vocab"])) - 1
    largest = max([largest, *(int(added["id"]) for added in rules.get("added_tokens") or [])])
    return Outline(rules, digest(data), largest + 1, words[1] if words else b"")


def without_special_tokens(text: str) -> str:
    """The tokenizer.json without the added tokens that it calls special."""
    found = _ADDED.search(text)
    if not found:
        return text
    kept = [added for added in json.loads(found[1]) if not added.get("special")]
    return text[: found.start(1)] + json.dumps(kept, ensure_ascii=False) + text[found.end(1) :]
