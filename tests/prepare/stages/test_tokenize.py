"""Tokenize: large documents have the tokens of small ones, in whatever memory they are made."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.base.errors import ConfigError, InputError
from penstock.base.stores import open_store
from penstock.prepare import tokenizers
from penstock.prepare.budget.room import NOBODY_COUNTS
from penstock.prepare.stages import build_stage
from penstock.prepare.stages.stage import Stage
from penstock.prepare.stages.text.tokenize import Tokenize
from tests.prepare.stages.rows import make_rows
from tests.promises import text_making


@pytest.mark.proof
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("ends", [{}, {"add_eos": False}, {"add_bos": True, "bos": text_making.EOS}])
def test_tokens_of_large_documents_lie_in_a_file_and_are_the_same(tmp_path, monkeypatch, threads, ends):
    texts = ["water " * 70_000, "", *text_making.documents(40, seed=3), None]
    stage = _opened(tmp_path, threads, ends)
    held = stage(make_rows({"text": texts})).batch
    monkeypatch.setattr(tokenizers, "LARGE_ROW", 1000)
    in_a_file = stage(make_rows({"text": texts})).batch
    assert in_a_file.equals(held)
    assert not list(tmp_path.glob("out/**/*scratch*"))


def test_large_documents_without_a_token_are_no_special_case(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizers, "LARGE_ROW", -1)
    given = _opened(tmp_path, 1, {"add_eos": False})(make_rows({"text": ["", ""]}))
    assert given.batch.column("tokens").to_pylist() == [[], []]


def test_more_tokens_than_arrow_counts_are_refused_by_number(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizers, "LARGE_ROW", 10)
    monkeypatch.setattr(tokenizers, "MOST_TOKENS", 3)
    with pytest.raises(InputError, match=r"one document has \d+ tokens, but an Arrow list holds at most 3"):
        _opened(tmp_path, 1, {})(make_rows({"text": ["water flows through pipes"]}))


@pytest.mark.parametrize("token", [text_making.EOS, text_making.end()])
def test_the_tokens_that_begin_and_end_a_document_are_named_by_text_or_id(tmp_path, token):
    stage = _opened(tmp_path, 1, {"eos": token, "add_bos": True, "bos": token})
    (ids,) = stage(make_rows({"text": ["water"]})).batch.column("tokens").to_pylist()
    assert ids == [text_making.end(), *text_making.ids_of("water")]


@pytest.mark.parametrize(
    ("token", "message", "advice"),
    [
        ("<|end>", "the tokenizer has no token '<|end>'. Did you mean '<|end|>'?", "special ones are: <|end|>"),
        (10**9, "the tokenizer has no token with the id 1000000000", "by an id from 0 to"),
        (-1, "the tokenizer has no token with the id -1", "by an id from 0 to"),
    ],
)
def test_a_token_that_the_tokenizer_lacks_is_refused(tmp_path, token, message, advice):
    with pytest.raises(ConfigError) as caught:
        _opened(tmp_path, 1, {"eos": token})
    assert message in caught.value.what
    assert advice in caught.value.next_step


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"eos": True}, "eos: it must name a token"),
        ({"bos": False}, "bos: it must name a token"),
        ({"eos": "</s>", "add_eos": False}, "eos: '</s>' has no effect, because add_eos is false"),
        ({"bos": "<s>"}, "bos: '<s>' has no effect, because add_bos is false"),
        ({"bos": 0, "add_bos": "template"}, "bos: 0 has no effect, because add_bos is template"),
    ],
)
def test_a_token_that_would_not_be_added_is_refused(written, message):
    with pytest.raises(ConfigError) as caught:
        build_stage("tokenize", {"tokenizer": "tokenizer.json", **written})
    assert message in caught.value.what


def _opened(folder: Path, threads: int, ends: dict[str, object]) -> Stage:
    tokenizer = str(text_making.write_tokenizer(folder / "tokenizer"))
    (folder / "out").mkdir()
    stage = Tokenize(tokenizer=tokenizer, engine="hf", **ends).located(str(folder), str(folder / "out"), (), "")
    stage.output_schema(pa.schema({"text": pa.string()}), pa.record_batch({"text": ["a"]}))
    return stage.opened(open_store(str(folder / "out")), 0, threads, NOBODY_COUNTS)
