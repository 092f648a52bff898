"""A text that is cut where the tokenizer allows it has the ids of the whole text."""

from __future__ import annotations

import json
from itertools import chain, pairwise

import numpy as np
import pytest
from hypothesis import given, settings

from penstock.prepare.tokenizers.cutting import Cutter, places_to_cut
from penstock.prepare.tokenizers.outline import outline_of
from penstock.prepare.tokenizers.split_pattern import HAN, LETTERS, NotUnderstood, SplitPattern
from tests.prepare.tokenizers.making import (
    GPT2,
    LLAMA,
    MIXED_CASE,
    QWEN,
    defined_ids,
    documents,
    tokenizer_json,
)

CUT_KINDS = ["gpt2", "llama", "qwen", "qwen without nfc", "mixed case", "marked spaces", "word piece", "unigram"]
LINE = frozenset("\n")


def cut(kind: str, text: str, most_bytes: int, special_tokens: str = "text") -> list[str]:
    data = text.encode()
    cutter = Cutter(places_to_cut(outline_of(tokenizer_json(kind).encode()), special_tokens))
    places = cutter.cut(np.frombuffer(data, "u1"), np.array([0, len(data)], "i8"), most_bytes)
    return [data[start:end].decode() for start, end in pairwise(places)]


@pytest.mark.proof
@pytest.mark.parametrize("kind", CUT_KINDS)
@settings(max_examples=150, deadline=None)
@given(text=documents)
def test_pieces_have_the_ids_of_the_whole(kind: str, text: str) -> None:
    pieces = cut(kind, text, 1)
    assert "".join(pieces) == text
    assert list(chain.from_iterable(defined_ids(kind, pieces))) == defined_ids(kind, [text])[0]


@pytest.mark.parametrize("kind", CUT_KINDS)
def test_plain_text_is_cut_often(kind: str) -> None:
    text = "the quick brown fox\njumps over the lazy dog. " * 100
    assert max(map(len, cut(kind, text, 100))) < 130


def test_chinese_text_is_cut_at_ends_of_lines() -> None:
    text = "中文字日本語。\n" * 100
    assert len(cut("qwen", text, 50)) > 30
    assert cut("gpt2", text, 50) == [text]  # a line's end may go with white space before it


def test_a_tokenizer_whose_added_tokens_look_around_is_not_cut() -> None:
    assert cut("odd tokens", "the quick brown fox", 1) == ["the quick brown fox"]


def test_an_added_token_with_a_space_is_not_cut_in_two() -> None:
    rules = json.loads(tokenizer_json("gpt2"))
    rules["added_tokens"].append({**rules["added_tokens"][0], "id": 999, "content": "the end", "special": False})
    assert places_to_cut(outline_of(json.dumps(rules).encode()), "text") == ()


def test_a_vocabulary_with_a_token_over_the_place_allows_no_cut() -> None:
    rules = json.loads(tokenizer_json("marked spaces"))
    assert len(places_to_cut(outline_of(json.dumps(rules).encode()), "text")) == 1
    rules["model"]["vocab"]["e\u2581"] = len(rules["model"]["vocab"])
    assert places_to_cut(outline_of(json.dumps(rules).encode()), "text") == ()


@pytest.mark.parametrize("pattern", [GPT2, LLAMA, QWEN, MIXED_CASE])
def test_known_patterns_split_before_a_space_between_letters(pattern: str) -> None:
    known = SplitPattern(pattern)
    assert known.keeps_apart(LETTERS, frozenset(" "))
    assert known.always_matches(frozenset(" "))


@pytest.mark.parametrize(("pattern", "splits"), [(GPT2, False), (LLAMA, True), (QWEN, True), (MIXED_CASE, True)])
def test_patterns_that_end_lines_first_split_behind_them(pattern: str, splits: bool) -> None:
    assert SplitPattern(pattern).keeps_apart(LINE, LETTERS | HAN) == splits


def test_an_end_of_line_inside_a_group_is_no_alternative() -> None:
    assert not SplitPattern(r"(a|\s*[\r\n]+|b)c|\p{L}+|\s+(?!\S)|\s+").keeps_apart(LINE, LETTERS)


@pytest.mark.parametrize("pattern", [r"\S+\s", r"[^\n]+", r"\p{L}+ ?", r"\w+(?: \w+)*", r"\w+(?!\S)|\s+", "[a-z ]{2}"])
def test_patterns_that_reach_over_a_space_do_not(pattern: str) -> None:
    assert not SplitPattern(pattern).keeps_apart(LETTERS, frozenset(" "))


@pytest.mark.parametrize(
    "pattern",
    [r"\bword\b", r"^a", r"a$", r"(?<=a)b", r"(?=a)b", r"(a)\1", r"a++", r"\s*+ x", r"[a-z&&[^b]]", r"[[:alpha:]]",
     r"\p{Han}+", r"(a", r"a)", r"[a", r"[\u6000-\u7000]", "[\u6000]", r"a**"],
)  # fmt: skip
def test_patterns_that_are_not_simple_are_refused(pattern: str) -> None:
    with pytest.raises(NotUnderstood):
        SplitPattern(pattern)
