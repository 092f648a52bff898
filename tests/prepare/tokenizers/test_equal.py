"""Every engine gives the ids of Hugging Face's library, on any text."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.prepare.tokenizers.engine import Engine, engine_module
from tests.prepare.tokenizers.making import ENGINES, defined_ids, documents, lists, save

FAST_KINDS = ["gpt2", "llama", "qwen", "qwen without nfc", "mixed case", "marked spaces"]
OTHER_KINDS = ["word piece", "unigram", "odd tokens"]
CASES = [(engine, kind) for engine in ENGINES for kind in FAST_KINDS] + [("hf", kind) for kind in OTHER_KINDS]


@lru_cache(maxsize=1)
def engine_of(name: str, kind: str, special_tokens: str) -> Engine:
    with tempfile.TemporaryDirectory() as folder:
        engine: Engine = engine_module(name).Engine(save(kind, Path(folder)), special_tokens)
    return engine


@pytest.mark.proof
@pytest.mark.parametrize(("name", "kind"), CASES)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(documents, min_size=1, max_size=4), special_tokens=st.sampled_from(["text", "tokens"]))
def test_ids_are_those_of_hugging_face(name: str, kind: str, texts: list[str], special_tokens: str) -> None:
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype="i8")
    found = engine_of(name, kind, special_tokens).encode(np.frombuffer(b"".join(encoded), "u1"), offsets)
    assert lists(found) == defined_ids(kind, texts, special_tokens)
