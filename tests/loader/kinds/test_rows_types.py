"""Rows of tokens: which types of `tokens` and `documents` are taken, and what is refused by column and file.

And the loader's promises, for each shape in which packed rows are stored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import ConfigError
from penstock.loader.kinds.rows import Rows
from tests.loader.making import hash_of
from tests.loader.tokens.test_reference import make_data
from tests.shards.making import write_dataset

TOKENS = [[1, 2, 3, 4], [5, 6, 7, 8]]
LENGTH = 16


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


# What is promised, for rows of one length and of any, in two bytes and in four.


def make_packed(path: Path, number: pa.DataType, ragged: bool) -> Path:
    """100 rows in three shards, one of them empty, and an empty split; the largest id is among them."""
    rng = np.random.default_rng(7)
    counts = rng.integers(0, LENGTH + 9, 100) if ragged else [LENGTH + 1] * 100
    most = 2 ** (16 if number == pa.uint16() else 31)
    tokens = [[most - 1, *rng.integers(0, most, count)][:count] for count in counts]
    starts = [sorted(rng.choice(LENGTH, rng.integers(0, 4), replace=False)) for _ in counts]
    columns = {
        "tokens": pa.array(tokens, pa.list_(number) if ragged else pa.list_(number, LENGTH + 1)),
        "documents": pa.array(starts, pa.list_(pa.int32())),
        "source": pa.array([f"book {row}" for row in range(100)]),
    }
    rows = pa.RecordBatch.from_pydict(columns)
    write_dataset(path, {"train": [[rows.slice(0, 70)], [rows.slice(0, 0)], [rows.slice(70)]], "test": []})
    return path


@pytest.fixture(scope="module", params=["uint16", "int32", "ragged uint16", "ragged int32"])
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    ragged, _, word = request.param.rpartition(" ")
    return make_packed(tmp_path_factory.mktemp("packed"), getattr(pa, word)(), bool(ragged))


def load(path: Path, **options: Any) -> Any:
    return penstock.load(
        path, **{"batch_size": 10, "length": LENGTH, "seed": 3, "workers": 0, "overflow": "truncate", **options}
    )


def test_an_epoch_has_every_row_once_with_its_ids_segments_and_positions(packed):
    found = [
        tuple(batch[name][row].tobytes() for name in ("inputs", "inputs_segmentation", "inputs_position"))
        for batch in load(packed, epochs=1)
        for row in range(10)
    ]
    expected = []
    for record in penstock.open(packed):
        ids = record["tokens"][:LENGTH].astype("i4")
        begins = np.unique([0, *record["documents"]])
        segments = np.searchsorted(begins, np.arange(len(ids)), side="right").astype("i4")
        positions = (np.arange(len(ids)) - begins[segments - 1]).astype("i4")
        expected.append(tuple(np.pad(each, (0, LENGTH - len(each))).tobytes() for each in (ids, segments, positions)))
    assert sorted(found) == sorted(expected)
    assert found != expected


def test_batch_k_is_the_same_on_any_thread_rank_and_after_any_restart(packed):
    loader = load(packed)
    expected = [hash_of(loader.batch(number)) for number in range(14)]
    with load(packed, workers=2) as ahead, load(packed, cache="disk", workers=1) as larger:
        assert [hash_of(next(ahead)) for _ in range(14)] == expected
        assert [hash_of(next(larger)) for _ in range(14)] == expected
        state = ahead.state()
    with load(packed, workers=1) as again:
        again.restore({**state})
        assert hash_of(next(again)) == hash_of(loader.batch(14))
    halves = [load(packed, rank=rank, world=2).batch(5) for rank in range(2)]
    whole = {name: np.concatenate([half[name] for half in halves]) for name in halves[0]}
    assert hash_of(whole) == expected[5]


def test_a_split_without_rows_is_refused_by_its_name(packed):
    with pytest.raises(ConfigError, match="no records in split 'test'"):
        load(packed, split="test")
