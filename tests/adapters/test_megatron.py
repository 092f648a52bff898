"""Exports to Megatron, read by Megatron's own dataset and equal to what its builder writes; and its files as input."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import penstock
from penstock.shards.foreign.exporting import export
from tests.loader.making import prepare
from tests.shards.foreign.megatron_files import write_pair

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that libraries for GPUs are missing
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder


def make_documents(kind: str) -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, np.iinfo(kind).max, size).tolist() for size in rng.integers(1, 100, 150)]


def build(prefix: Path, documents: list[list[list[int]]], kind: str) -> None:
    """Documents of sequences, written by Megatron."""
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=getattr(np, kind))
    for sequences in documents:
        tokens = [token for sequence in sequences for token in sequence]
        builder.add_document(torch.tensor(tokens, dtype=torch.int64), [len(sequence) for sequence in sequences])
    builder.finalize(f"{prefix}.idx")


def same_files(one: Path, other: Path) -> bool:
    return all(Path(f"{one}.{end}").read_bytes() == Path(f"{other}.{end}").read_bytes() for end in ("bin", "idx"))


@pytest.mark.parametrize("kind", ["uint16", "int32"])
def test_megatron_reads_each_document_and_its_builder_writes_the_same_bytes(tmp_path, kind):
    documents = make_documents(kind)
    documents[-1] += [0] * (-sum(map(len, documents)) % 32)  # no tail
    table = pa.table({"tokens": pa.array(documents, pa.list_(getattr(pa, kind)()))})
    export(prepare(tmp_path, table, [{"pack": 32}]), "megatron", tmp_path / "exported")
    dataset = IndexedDataset(str(tmp_path / "exported" / "train"))
    assert [dataset[number].tolist() for number in range(len(dataset))] == documents
    assert dataset.document_indices.tolist() == list(range(len(documents) + 1))
    assert dataset.index.dtype == getattr(np, kind)
    build(tmp_path / "theirs", [[document] for document in documents], kind)
    assert same_files(tmp_path / "exported" / "train", tmp_path / "theirs")


SENTENCES = [[[1, 2], [3]], [[4]], [[5, 6, 7], [8], [9, 10]]]


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "int16", "int32", "int64"])
def test_files_that_megatron_wrote_are_what_the_other_tests_write_and_read(tmp_path, kind):
    build(tmp_path / "theirs", SENTENCES, kind)
    write_pair(tmp_path / "ours", SENTENCES, kind)
    assert same_files(tmp_path / "theirs", tmp_path / "ours")
    job: dict[str, Any] = {"input": str(tmp_path / "theirs.idx"), "output": str(tmp_path / "out"), "workers": 0}
    penstock.run(job)
    rows = penstock.open(tmp_path / "out")[:]
    assert rows["tokens"].to_pylist() == [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10]]
    assert rows["sequences"].to_pylist() == [[0, 2], [0], [0, 3, 4]]
