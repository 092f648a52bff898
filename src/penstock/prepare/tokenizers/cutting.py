"""Cutting: the rules of a tokenizer.json -> places where a text may be cut, encoded apart, and no id changes.

There are two kinds of place: before a space between ASCII letters, and behind the end of a line that is followed by an
ASCII letter or a Chinese character. Each part of the tokenizer must be known to treat both sides alike, together and
apart, and one of them must always make a boundary there: a split pattern, or a vocabulary that has no token which could
reach over it. Where that is not known, texts are encoded whole.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.prepare.tokenizers.engine import Offsets, TextBytes
from penstock.prepare.tokenizers.outline import ENTRY, Outline
from penstock.prepare.tokenizers.split_pattern import HAN, LETTERS, NotUnderstood, SplitPattern

# In UTF-8 a byte below 128 is a character, and E4 B8 to E8 begin those of U+4E00 to U+8FFF.
_SPACE = rb"(?<=[A-Za-z])(?= [A-Za-z])"
_LINE = rb"(?<=\n)(?=[A-Za-z\xe5-\xe8]|\xe4[\xb8-\xbf])"
_SIDES = {_SPACE: (LETTERS, frozenset(" ")), _LINE: (frozenset("\n"), LETTERS | HAN)}
_OVER = {_SPACE: "[A-Za-z][ \u2581]", _LINE: "\n[A-Za-z\u4e00-\u8fff]"}  # what a token holds that reaches over one
_SPELLED_OVER = {_SPACE: rb"[A-Za-z](?:\xe2\x96\x81|\\u2581)", _LINE: rb"\\n(?:[A-Za-z\xe4-\xe8]|\\u[4-8])"}  # in JSON
# No character of a cut composes with the one before it, in any form; the others look at one character at a time.
_NORMALIZERS = ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer")
_MARK = "\u2581"  # what a space becomes where words are not split before the model sees them
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
Places = tuple[bytes, ...]  # kinds of place, each a pattern that matches there
_KEEPS, _CUTS = "keeps", "cuts"  # what a part does there: nothing on either side changes; and it is always a boundary


def places_to_cut(outline: Outline, special_tokens: str) -> Places:
    """The kinds that a tokenizer allows; none where its texts must be encoded whole."""
    return tuple(kind for kind in _SIDES if _allows(kind, outline, special_tokens))


class Cutter:
    """Cuts texts at such places."""

    def __init__(self, places: Places) -> None:
        self._places = re.compile(b"|".join(places)) if places else None

    def cut(self, data: TextBytes, offsets: Offsets, most_bytes: int) -> Offsets:
        """`offsets` with cuts between them: pieces of `most_bytes` and then up to the next place."""
        large = np.flatnonzero(np.diff(offsets) > most_bytes)
        if self._places is None or not len(large):
            return offsets
        cuts = [list(self._cuts(self._places, data, int(offsets[i]), int(offsets[i + 1]), most_bytes)) for i in large]
        return np.sort(np.concatenate([offsets, *(np.array(each, "i8") for each in cuts)]))

    def _cuts(self, places: re.Pattern[bytes], data: TextBytes, start: int, end: int, most_bytes: int) -> Iterator[int]:
        buffer = data.data[start:end]
        place = most_bytes
        while place < len(buffer) and (found := places.search(buffer, place)):
            yield start + found.start()
            place = found.start() + most_bytes


def _allows(kind: bytes, outline: Outline, special_tokens: str) -> bool:
    added = [each for each in outline.added_tokens if special_tokens == "tokens" or not each.get("special")]
    normalizers = _parts(outline.rules.get("normalizer"), "normalizers")
    marked = any(_marks_spaces(part) for part in normalizers)
    contents = (each["content"] if marked else each["content"].replace(_MARK, "") for each in added)
    # What stands beside such an added token decides whether it is one, or goes with it.
    reaches_out = any(each.get(option) for each in added for option in ("lstrip", "rstrip", "single_word"))
    if reaches_out or any(re.search(_OVER[kind], content) for content in contents):
        return False
    if not all(part["type"] in _NORMALIZERS or _marks_spaces(part) for part in normalizers):
        return False
    splits = _parts(outline.rules.get("pre_tokenizer"), "pretokenizers")
    if marked:
        effects = [_KEEPS if part.get("pattern") == {"String": " "} else None for part in splits]  # it finds none
    else:
        effects = [_effect(kind, part) for part in splits]
    return None not in effects and (_CUTS in effects or _model_cuts(kind, outline))


def _parts(component: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    """A component, or those of a sequence of them."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component]
    return [part for each in component[inner] for part in _parts(each, inner)]


def _marks_spaces(part: dict[str, Any]) -> bool:
    return part == {"type": "Replace", "pattern": {"String": " "}, "content": _MARK}


def _model_cuts(kind: bytes, outline: Outline) -> bool:
    """Whether no token holds what stands on both sides: then no merge joins them, and each side merges by itself."""
    model = outline.rules["model"]
    if not model.get("byte_fallback") or model.get("ignore_merges") or model.get("dropout"):
        return False
    spelled = re.compile(_SPELLED_OVER[kind])
    suspects = (entry[1] for entry in ENTRY.finditer(outline.words) if spelled.search(entry[1]))
    return bool(outline.words) and not any(re.search(_OVER[kind], json.loads(each)) for each in suspects)


def _effect(kind: bytes, part: dict[str, Any]) -> str | None:
    """Effect of a pre-tokenizer at such a place; None if it is not known."""
    name = part["type"]
    if name in ("Digits", "Punctuation"):
        return _KEEPS  # each character goes by itself, and none of the four is one of theirs
    if name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
        return _CUTS
    if name == "Metaspace":  # it puts a mark before what does not begin with a space
        if kind != _SPACE or part.get("replacement") != _MARK:
            return None
        return _CUTS if part.get("split", True) else _KEEPS
    if name == "ByteLevel":
        if part.get("add_prefix_space", True) and kind != _SPACE:
            return None
        return _pattern_effect(kind, _GPT2) if part.get("use_regex", True) else _KEEPS
    if name == "Split" and (part["behavior"] in ("Isolated", "Removed")):
        return _pattern_effect(kind, part["pattern"].get("Regex"))
    return None


def _pattern_effect(kind: bytes, source: str | None) -> str | None:
    before, after = _SIDES[kind]
    try:
        pattern = SplitPattern(source or "")
    except NotUnderstood:
        return None
    if not source or not pattern.keeps_apart(before, after):
        return None
    return _CUTS if pattern.always_matches(after) else _KEEPS
