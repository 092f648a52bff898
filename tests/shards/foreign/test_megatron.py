"""`penstock export --to megatron`: documents of a dataset, whole, as sequences of Megatron's .bin and .idx files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import ConfigError, InputError
from penstock.shards.foreign import megatron
from penstock.shards.foreign.exporting import export
from tests.loader.making import KEPT, make_kept_documents, prepare
from tests.shards.foreign.megatron_files import read_pair
from tests.shards.making import write_dataset

Documents = list[list[int]]


def make_documents(count: int, longest: int, seed: int = 3) -> Documents:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 60_000, size).tolist() for size in rng.integers(1, longest, count)]


def packed(folder: Path, documents: Documents, stages: list[Any], kind: pa.DataType | None = None) -> Path:
    return prepare(folder, pa.table({"tokens": pa.array(documents, pa.list_(kind or pa.uint16()))}), stages)


def exported(path: Path, split: str = "train") -> Documents:
    export(path, "megatron", f"{path}-megatron", overwrite=True)
    return read_pair(Path(f"{path}-megatron") / split)[1]


@pytest.mark.parametrize("longest", [20, 900])
def test_documents_that_a_wrapped_stream_cut_come_out_whole(tmp_path, longest):
    """Over two rows or over many, over the end of a shard; only the tail, which `pack` counts, is missing."""
    documents = make_documents(200 if longest > 100 else 9000, longest)
    path = packed(tmp_path, documents, [{"pack": 32}])
    assert len(penstock.open(path).manifest.splits["train"]) > 2
    found, stream = exported(path), [token for document in documents for token in document]
    assert found[:-1] == documents[: len(found) - 1]
    assert [token for document in found for token in document] == stream[: len(stream) // 32 * 32]


@pytest.mark.parametrize("at_once", [1, 40, 1000])
def test_it_does_not_matter_how_many_tokens_are_read_at_once(tmp_path, monkeypatch, at_once):
    path = packed(tmp_path, make_documents(60, 90), [{"pack": 16}])
    export(path, "megatron", tmp_path / "a")
    monkeypatch.setattr(megatron, "_AT_ONCE", at_once)
    monkeypatch.setattr(megatron, "_DOCUMENTS_AT_ONCE", 7)
    export(path, "megatron", tmp_path / "b")
    for name in ("train.bin", "train.idx", "export.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_documents_of_best_fit_rows_come_row_by_row_and_pieces_of_long_ones_stay_pieces(tmp_path):
    documents = make_documents(100, 60)
    found = exported(packed(tmp_path, documents, [{"pack": {"length": 40, "method": "best_fit"}}]))
    pieces = [document[start : start + 40] for document in documents for start in range(0, len(document), 40)]
    assert sorted(found) == sorted(pieces)


@pytest.mark.parametrize("stages", [[], [{"pack": {"length": 1000, "method": "none"}}]])
def test_a_row_that_is_a_document_is_a_sequence(tmp_path, stages):
    documents = make_documents(80, 50)
    assert exported(packed(tmp_path, documents, stages)) == documents


def test_rows_of_another_job_are_not_joined(tmp_path):
    """A filter may have left out the row where a document began."""
    columns = {"tokens": pa.array([[1, 2], [3, 4]]), "documents": pa.array([[0], [1]], pa.list_(pa.int32()))}
    write_dataset(tmp_path / "in", {"train": [[pa.RecordBatch.from_pydict(columns)]]})
    assert exported(tmp_path / "in") == [[1, 2], [3], [4]]


@pytest.mark.parametrize(
    ("kind", "written"),
    [(pa.uint8(), "uint16"), (pa.uint16(), "uint16"), (pa.int16(), "int32"), (pa.int32(), "int32"), (None, "int32")],
)
def test_ids_have_16_bits_where_they_are_stored_in_16_and_else_32(tmp_path, kind, written):
    batch = pa.RecordBatch.from_pydict({"tokens": pa.array([[1, 2], [3]], pa.list_(kind or pa.int64()))})
    write_dataset(tmp_path / "in", {"train": [[batch]]})
    export(tmp_path / "in", "megatron", tmp_path / "out")
    assert read_pair(tmp_path / "out" / "train") == (written, [[1, 2], [3]])


def test_every_split_has_files_of_its_own_and_an_empty_document_stays(tmp_path):
    batch = pa.RecordBatch.from_pydict({"tokens": pa.array([[1, 2], [], [2**31 - 1], []], pa.list_(pa.int32()))})
    write_dataset(tmp_path / "in", {"train": [[batch], [batch]], "test": [[batch.slice(0, 0)]], "val": []})
    made = penstock.export(tmp_path / "in", "megatron")
    assert (made.rows, made.tokens, made.files) == (
        {"train": 8, "test": 0, "val": 0},
        {"train": 6, "test": 0, "val": 0},
        6,
    )
    out = tmp_path / "in-megatron"
    assert read_pair(out / "train")[1] == [[1, 2], [], [2**31 - 1], []] * 2
    assert read_pair(out / "test")[1] == read_pair(out / "val")[1] == []
    assert sorted(os.listdir(out)) == [
        "export.json",
        *(f"{n}.{e}" for n in ("test", "train", "val") for e in ("bin", "idx")),
    ]


def test_a_document_that_the_index_has_no_room_for_is_refused_with_its_length(tmp_path, monkeypatch):
    path = packed(tmp_path / "job", [[7] * 100], [{"pack": 10}])
    monkeypatch.setattr(megatron, "LARGEST", 99)
    with pytest.raises(InputError, match="a document has 100 tokens, and Megatron's index has room for 99"):
        export(path, "megatron", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_megatron_has_no_place_for_is_refused(tmp_path):
    kept = prepare(tmp_path / "job", make_kept_documents(60, 30, 3), [{"pack": {"length": 33, "keep": KEPT}}])
    with pytest.raises(ConfigError, match="but Megatron takes only tokens"):
        export(kept, "megatron", tmp_path / "out")
    with pytest.raises(ConfigError, match=r"megatron is one \.bin and one \.idx file per split"):
        penstock.export(kept, "megatron", shard_size="1MB")
