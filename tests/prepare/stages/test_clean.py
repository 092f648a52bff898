"""Clean: text is trimmed as str.strip does, normalised as unicodedata does, valid, and never empty."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ConfigError
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages import build_stage
from tests.prepare.stages.rows import checked_stage, make_rows


def every_character() -> Iterator[str]:
    return (chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000)


WHITE = [each for each in every_character() if each.isspace()]
TEXTS = st.lists(st.one_of(st.none(), st.text(st.one_of(st.sampled_from(WHITE), st.characters(codec="utf-8")))))


def clean(texts: list[str | None], kind: pa.DataType | None = None, **options: Any) -> Rows:
    rows = make_rows({"text": pa.array(texts, kind or pa.string()), "number": list(range(len(texts)))})
    return checked_stage("clean", options, rows)(rows)


def texts_in(rows: Rows) -> list[str]:
    found: list[str] = rows.batch.column(0).to_pylist()
    return found


def test_every_white_space_of_unicode_is_cut_off_and_nothing_else_is():
    assert len(WHITE) > 20
    assert texts_in(clean([f"{each}x{each}" for each in WHITE])) == ["x"] * len(WHITE)
    others = [each for each in every_character() if not each.isspace()]
    left = clean(others).batch.column(0)
    assert left.equals(pa.array(others))  # as Arrow: a million texts in a message of pytest take their time


@given(TEXTS)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
def test_text_is_trimmed_as_str_strip_does(kind, texts):
    rows = clean(texts, kind)
    assert texts_in(rows) == [text.strip() for text in texts if text is not None and text.strip()]
    assert rows.batch.schema.field(0).type == kind
    assert rows.ordinals.tolist() == [n for n, text in enumerate(texts) if text is not None and text.strip()]
    assert rows.batch.column(1).to_pylist() == rows.ordinals.tolist()
    counts = {aside.reason: aside.count for aside in rows.set_aside}
    assert counts.get("null text", 0) == texts.count(None)
    assert counts.get("empty text", 0) == sum(text is not None and not text.strip() for text in texts)


@given(TEXTS, st.integers(0, 5), st.integers(0, 5))
def test_a_slice_of_a_longer_array_is_cleaned_like_a_whole_one(texts, before, behind):
    around = [" x "] * before + texts + ["\n"] * behind
    batch = pa.RecordBatch.from_pydict({"text": pa.array(around, pa.string())}).slice(before, len(texts))
    rows = build_stage("clean", {})(Rows(batch, 0, ("f",), np.arange(len(texts))))
    assert texts_in(rows) == texts_in(clean(texts))


@given(TEXTS)
def test_without_trimming_only_null_and_empty_texts_go(texts):
    assert texts_in(clean(texts, trim=False)) == [text for text in texts if text]


@pytest.mark.proof
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["Cn", "Cs"]), min_size=1)))
def test_nfc_is_that_of_unicodedata(texts):
    expected = [unicodedata.normalize("NFC", text).strip() for text in texts]
    assert texts_in(clean(texts, normalize="nfc")) == [text for text in expected if text]


def test_nfc_of_every_assigned_character_is_that_of_unicodedata():
    """Those that this Python knows; a newer Arrow may know more."""
    known = [each for each in every_character() if unicodedata.category(each) != "Cn"]
    texts = [f"a{each}b" for each in known]
    assert texts_in(clean(texts, normalize="nfc")) == [unicodedata.normalize("NFC", text) for text in texts]


def test_rows_that_are_left_out_are_kept_where_asked():
    rows = clean(["a", None, " \n", "b"], keep=True)
    assert [(line["reason"], line["position"]) for each in rows.set_aside for line in each.kept] == [
        ("null text", 1),
        ("empty text", 2),
    ]


def test_a_column_that_is_missing_or_no_text_is_refused():
    rows = make_rows({"body": ["a"], "size": [1]})
    with pytest.raises(ConfigError, match="body"):
        checked_stage("clean", {}, rows)
    with pytest.raises(ConfigError, match="int64, but must be text"):
        checked_stage("clean", {"column": "size"}, rows)
    with pytest.raises(ConfigError, match="body: string"):
        checked_stage("clean", {"column": "body"}, make_rows({"body": [None], "size": [1]}))
