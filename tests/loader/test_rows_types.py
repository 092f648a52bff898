"""Rows of tokens: which types of `tokens` and `documents` are taken, and what is refused by column and file."""

from __future__ import annotations

import pytest

from penstock.base.errors import ConfigError
from penstock.loader.rows import Rows
from tests.loader.test_reference import make_data

TOKENS = [[1, 2, 3, 4], [5, 6, 7, 8]]


def refusal(types: dict[str, str], **columns: list) -> ConfigError:
    records = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    data = make_data([records], types)
    with pytest.raises(ConfigError) as refused:
        Rows([data.shards], data.schema, 3)
    return refused.value


@pytest.mark.parametrize("word", ["int64", "uint32", "uint64", "bool", "date32", "timestamp[s]"])
@pytest.mark.parametrize("fixed", [False, True])
def test_tokens_that_a_batch_of_int32_cannot_hold_are_refused(word, fixed):
    tokens = [[True, False, True, True]] * 2 if word == "bool" else TOKENS
    kind = f"fixed_size_list<{word}>[4]" if fixed else f"list<{word}>"
    error = refusal({"tokens": kind}, tokens=tokens)
    assert kind in error.what
    assert "int32" in error.what
    assert "uint16 or int32" in error.next_step


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("fixed_size_list<int32>[2]", [[0, 2], [0, 3]]),
        ("list<float32>", [[0.0, 2.0], []]),
        ("list<uint64>", [[0, 2], []]),
        ("list<string>", [["0"], []]),
        ("string", ["a", "b"]),
        ("int32", [1, 2]),
    ],
)
def test_documents_that_are_no_list_of_whole_numbers_are_refused(word, values):
    error = refusal({"tokens": "list<int32>", "documents": word}, tokens=TOKENS, documents=values)
    assert f"column 'documents' is {word}" in error.what
    assert "list<int32>" in error.next_step


@pytest.mark.parametrize(
    ("column", "types", "columns"),
    [
        ("tokens", {"tokens": "list<int32>"}, {"tokens": [[1, None], [2, 3]]}),
        ("tokens", {"tokens": "list<int32>"}, {"tokens": [[1, 2], None]}),
        ("tokens", {"tokens": "fixed_size_list<uint16>[4]"}, {"tokens": [[1, 2, 3, 4], None]}),
        (
            "documents",
            {"tokens": "list<int32>", "documents": "list<int32>"},
            {"tokens": TOKENS, "documents": [[0], None]},
        ),
        (
            "documents",
            {"tokens": "list<int32>", "documents": "list<int32>"},
            {"tokens": TOKENS, "documents": [[0], [None]]},
        ),
    ],
)
def test_nulls_are_refused_by_column_and_file(column, types, columns):
    error = refusal(types, **columns)
    assert f"column {column!r} has nulls" in error.what
    assert error.where.endswith(".safetensors")
    assert "filter" in error.next_step
