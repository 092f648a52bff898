"""Texts for the tests of near-duplicates: of few words and characters, so that shingles are shared often."""

from __future__ import annotations

from hypothesis import strategies as st

SPACES = [chr(point) for point in range(0x110000) if chr(point).isspace()]
NO_SPACES = ["\u200b", "\ufeff", "\u180e", "\u2060", "\0", "\x1b", "\x7f", "\u0084", "\u0086", "\u2027", "\u2030"]
LETTERS = ["a", "b", "ab", "é", "e\u0301", "水", "力", "ไ", "カ", "\U00020000", "\U0001f600", "x" * 70, *NO_SPACES]

texts = st.lists(st.sampled_from([*LETTERS, *["a", "水", " "] * 4, *SPACES]), max_size=30).map("".join)
