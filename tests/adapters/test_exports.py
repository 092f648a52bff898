"""Exports read back by the libraries they are for: datasets and transformers; array_record, grain and protobuf."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import datasets
import grain
import numpy as np
import pyarrow as pa
import pytest
import tokenizers
import torch
import transformers
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import penstock
from penstock.shards.foreign.exporting import export
from tests.loader.making import SPLIT_ROWS, make_arrays, make_ragged_rows, make_token_rows, prepare
from tests.shards.making import make_batch, write_dataset

LENGTH = 65


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Packed rows in two splits, through a job."""
    return prepare(tmp_path_factory.mktemp("rows"), make_token_rows(700, LENGTH, 1), SPLIT_ROWS)


def own(path: Path, split: str, column: str = "tokens") -> list[Any]:
    return penstock.open(path, split)[:][column].to_pylist()


# datasets and transformers.


def test_splits_are_loaded_as_a_dictionary_of_datasets(rows, tmp_path):
    exported = export(rows, "hf", tmp_path / "out", shard_size="20kB")
    assert exported.files > 4
    found = datasets.load_from_disk(str(tmp_path / "out"))
    assert isinstance(found, datasets.DatasetDict)
    for split in ("train", "test"):
        assert found[split].num_rows == exported.rows[split]
        assert sum(map(len, found[split]["input_ids"])) == exported.tokens[split]
        assert found[split][:]["input_ids"] == own(rows, split)
        assert found[split].split == split
    number = datasets.Sequence(datasets.Value("int32"))
    assert found["train"].features == datasets.Features({"input_ids": number, "seq_lengths": number})


def test_a_split_alone_is_a_dataset_that_can_be_worked_with(rows, tmp_path):
    export(rows, "hf", tmp_path / "out", split="train", shard_size="20kB")
    found = datasets.load_from_disk(str(tmp_path / "out"))
    assert isinstance(found, datasets.Dataset)
    shuffled = found.shuffle(seed=1).select(range(50))
    assert shuffled.filter(lambda row: row["input_ids"][0] % 2 == 0).num_rows < 50
    shuffled.save_to_disk(str(tmp_path / "again"))
    assert datasets.load_from_disk(str(tmp_path / "again"))[:] == shuffled[:]
    tensors = found.with_format("torch")[3:5]["input_ids"]
    assert torch.equal(torch.stack(list(tensors)), torch.tensor(own(rows, "train")[3:5]))


def test_the_library_knows_a_dataset_again_by_its_fingerprint(rows, tmp_path):
    for name, size in (("a", "20kB"), ("b", "1GB")):
        export(rows, "hf", tmp_path / name, split="train", shard_size=size)
    a, b = (datasets.load_from_disk(str(tmp_path / name)) for name in "ab")
    assert a._fingerprint == b._fingerprint
    assert a[:] == b[:]


def test_a_language_model_trains_on_rows_that_its_collator_took(rows, tmp_path):
    export(rows, "hf", tmp_path / "out", split="train")
    found = datasets.load_from_disk(str(tmp_path / "out")).remove_columns("seq_lengths")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0}, "<pad>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>")
    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)
    batch = collate([found[row] for row in range(4)])
    assert batch["input_ids"].tolist() == own(rows, "train")[:4]
    config = transformers.GPT2Config(vocab_size=50_000, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=1)
    model = transformers.GPT2LMHeadModel(config)
    loss = model(**batch).loss
    loss.backward()
    assert torch.isfinite(loss)


def test_columns_of_every_type_are_loaded(tmp_path):
    batch = make_batch(30, 5)
    write_dataset(tmp_path / "in", {"train": [[batch.slice(0, 11)], [batch.slice(11)]]})
    export(tmp_path / "in", "hf", tmp_path / "out")
    found = datasets.load_from_disk(str(tmp_path / "out"))
    assert found.column_names == batch.schema.names
    assert found.features.arrow_schema.types == found.data.schema.types
    assert found.data.schema.types == datasets.Features.from_arrow_schema(found.data.schema).arrow_schema.types


@pytest.mark.parametrize(("table", "name"), [(make_arrays(50, 7), "features"), (make_ragged_rows(50, 60, 4), "tokens")])
def test_arrays_and_rows_of_different_lengths_are_loaded(tmp_path, table, name):
    path = prepare(tmp_path / "job", table, [])
    export(path, "hf", tmp_path / "out")
    found = datasets.load_from_disk(str(tmp_path / "out"))
    assert found[:]["input_ids" if name == "tokens" else name] == own(path, "train", name)


def test_a_split_without_rows_is_loaded(tmp_path):
    batch = pa.RecordBatch.from_pydict({"tokens": pa.array([[1]], pa.list_(pa.uint16(), 1))})
    write_dataset(tmp_path / "in", {"train": [[batch]], "test": []})
    export(tmp_path / "in", "hf", tmp_path / "out")
    found = datasets.load_from_disk(str(tmp_path / "out"))
    assert (found["train"][:], found["test"].num_rows) == ({"input_ids": [[1]]}, 0)
    assert found["train"].features == found["test"].features


# ArrayRecord of tf.train.Example.


@functools.cache
def example_class() -> Any:
    """tf.train.Example, from the numbers and types of its fields; tensorflow itself is 1.6 GB."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")

    def message(within: Any, name: str, *fields: tuple[str, int, int, str]) -> Any:
        made = within.add(name=name)
        for field, number, label, kind in fields:
            plain = getattr(kinds, f"TYPE_{kind.upper()}", None)
            type_name = None if plain else f".tensorflow.{kind}"
            made.field.add(
                name=field, number=number, label=label, type=plain or kinds.TYPE_MESSAGE, type_name=type_name
            )
        return made

    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    for name, kind in (("BytesList", "bytes"), ("FloatList", "float"), ("Int64List", "int64")):
        message(file.message_type, name, ("value", 1, many, kind))
    lists = [
        ("bytes_list", 1, one, "BytesList"),
        ("float_list", 2, one, "FloatList"),
        ("int64_list", 3, one, "Int64List"),
    ]
    feature = message(file.message_type, "Feature", *lists)
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message(file.message_type, "Features", ("feature", 1, many, "Features.FeatureEntry"))
    entry = message(features.nested_type, "FeatureEntry", ("key", 1, one, "string"), ("value", 2, one, "Feature"))
    entry.options.map_entry = True
    message(file.message_type, "Example", ("features", 1, one, "Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def source(folder: Path, split: str) -> Any:
    """As MaxText opens files that match a pattern."""
    return grain.sources.ArrayRecordDataSource([str(path) for path in sorted(folder.glob(f"{split}-*.arrayrecord"))])


def test_grain_and_protobuf_read_every_row_in_order_and_at_random(rows, tmp_path):
    exported = export(rows, "maxtext", tmp_path / "out", shard_size="20kB")
    assert exported.files > 4
    for split in ("train", "test"):
        records, expected = source(tmp_path / "out", split), own(rows, split)
        assert len(records) == exported.rows[split] == len(expected)
        for number in (*range(len(expected)), 5, 3):
            example = example_class().FromString(records[number])
            assert list(example.features.feature) == ["text"]
            assert list(example.features.feature["text"].int64_list.value) == expected[number]


def test_the_bytes_are_those_that_protobuf_itself_writes(tmp_path):
    ids = [[0, 127, 128, 2**14, 2**21, 2**28, 2**31 - 1], [], [5]]
    batch = pa.RecordBatch.from_pydict({"tokens": pa.array(ids, pa.list_(pa.int32()))})
    write_dataset(tmp_path / "in", {"train": [[batch]]})
    export(tmp_path / "in", "maxtext", tmp_path / "out")
    records = source(tmp_path / "out", "train")
    for number, row in enumerate(ids):
        example = example_class()()
        example.features.feature["text"].int64_list.value.extend(row)
        assert records[number] == example.SerializeToString()


def test_a_grain_pipeline_makes_batches_of_rows(rows, tmp_path):
    export(rows, "maxtext", tmp_path / "out", split="train")

    def parse(record: bytes) -> np.ndarray:
        return np.array(example_class().FromString(record).features.feature["text"].int64_list.value)

    batches = grain.MapDataset.source(source(tmp_path / "out", "train")).map(parse).batch(4)
    np.testing.assert_array_equal(batches[2], own(rows, "train")[8:12])


def test_files_without_rows_are_a_source_without_elements(tmp_path):
    batch = pa.RecordBatch.from_pydict({"tokens": pa.array([[1]], pa.list_(pa.uint16(), 1))})
    write_dataset(tmp_path / "in", {"train": [[batch]], "test": []})
    export(tmp_path / "in", "maxtext", tmp_path / "out")
    assert [len(source(tmp_path / "out", split)) for split in ("train", "test")] == [1, 0]
