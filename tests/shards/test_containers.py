"""The files of a shard are plain safetensors and npy files that other people's readers open."""

from __future__ import annotations

import base64
import json

import numpy as np
import pyarrow as pa
import pytest
import safetensors
import safetensors.numpy
import xxhash

import penstock
from penstock.base.stores import open_store
from penstock.shards.columns import BLOCK, CHECKSUMS, ColumnWriter, Hold, npy_name, open_columns
from tests.shards.making import make_batch, write_dataset


def test_safetensors_opens_our_files(tmp_path):
    batch = pa.RecordBatch.from_pydict(
        {"rtt": pa.array([1.5, None, -0.0], pa.float32()), "src": ["a", "", "ccc"], "vec": [[1, 2], [3, 4], [5, 6]]}
    )
    batch = batch.set_column(2, "vec", batch["vec"].cast(pa.list_(pa.int16(), 2)))
    write_dataset(tmp_path, {"train": [[batch]]})
    tensors = safetensors.numpy.load_file(tmp_path / "train/00000-of-00001.safetensors")
    assert set(tensors) == {CHECKSUMS, "rtt", "rtt/valid", "src/bytes", "src/offsets", "vec"}
    assert tensors["rtt"].tolist() == [1.5, 0.0, 0.0]
    assert tensors["rtt/valid"].tolist() == [1, 0, 1]
    assert tensors["src/bytes"].tobytes() == b"accc"
    assert tensors["src/offsets"].tolist() == [0, 1, 1, 4]
    assert tensors["vec"].tolist() == [[1, 2], [3, 4], [5, 6]]
    with safetensors.safe_open(tmp_path / "train/00000-of-00001.safetensors", "numpy") as file:
        facts = file.metadata()
    assert (facts["format"], facts["format_version"], facts["records"]) == ("penstock", "2", "3")
    assert json.loads(facts["schema"])[0] == {"name": "rtt", "type": "float32"}


@pytest.mark.parametrize("rows", [0, 1, 100])
def test_safetensors_opens_files_of_every_type(tmp_path, rows):
    write_dataset(tmp_path, {"train": [[make_batch(rows, seed=1)]]})
    tensors = safetensors.numpy.load_file(tmp_path / "train/00000-of-00001.safetensors")
    for name, column in penstock.open(tmp_path).columns(0).items():
        assert tensors[name].dtype == column.array.dtype
        assert tensors[name].tobytes() == column.array.tobytes()


def test_numpy_opens_our_npy_files(tmp_path):
    batch = make_batch(20, seed=2)
    write_dataset(tmp_path, {"train": [[batch]]}, "npy")
    for name, column in penstock.open(tmp_path).columns(0).items():
        array = np.load(tmp_path / npy_name("train/00000-of-00001", name))
        assert (array.dtype, array.shape) == (column.array.dtype, column.array.shape)
        assert array.tobytes() == column.array.tobytes()


@pytest.mark.parametrize("container", ["safetensors", "npy"])
def test_every_column_starts_at_a_multiple_of_its_item_size(tmp_path, container):
    write_dataset(tmp_path, {"train": [[make_batch(7, seed=3)]]}, container)
    columns = penstock.open(tmp_path).columns(0)
    assert columns
    for column in columns.values():
        assert column.array.ctypes.data % column.array.itemsize == 0  # a mapping starts at a page
        assert column.array.flags.aligned
        assert not column.array.flags.writeable


@pytest.mark.parametrize("container", ["safetensors", "npy"])
def test_an_empty_shard_has_its_columns(tmp_path, container):
    batch = make_batch(0, seed=0)
    write_dataset(tmp_path, {"train": [[batch]]}, container)
    dataset = penstock.open(tmp_path)
    assert len(dataset) == 0
    assert dataset[:].schema == batch.schema
    assert dataset.columns(0)
    assert penstock.verify(tmp_path).ok


def test_pieces_may_come_in_any_order_and_cross_blocks_anywhere(tmp_path):
    folder = open_store(str(tmp_path))
    rng = np.random.default_rng(0)
    values = {"wide": rng.integers(0, 2**40, 40_000), "narrow": rng.integers(0, 255, (3 * BLOCK + 5, 1), dtype="u1")}
    writers = [ColumnWriter(folder, name, "safetensors", Hold(0)) for name in ("whole", "pieces")]
    for column, array in values.items():
        writers[0].add(column, array)
    edges = np.sort(rng.integers(0, 40_000, 50))
    for low, high in zip([0, *edges], [*edges, None], strict=True):
        for column in ("narrow", "wide"):
            scale = len(values[column]) / 40_000
            writers[1].add(column, values[column][int(low * scale) : None if high is None else int(high * scale)])
    facts = [writer.commit({"k": "v"}) for writer in writers]
    assert facts[0][0].digest == facts[1][0].digest
    assert folder.read("whole.safetensors") == folder.read("pieces.safetensors")
    columns = open_columns(folder, facts[1])
    for column, array in values.items():
        assert np.array_equal(columns[column].read(0, len(array)), array)
    assert len(columns["wide"]._hashes) == -(-40_000 * 8 // BLOCK)


def test_a_shard_that_is_not_committed_leaves_nothing(tmp_path):
    folder = open_store(str(tmp_path))
    writer = ColumnWriter(folder, "train/0", "npy", Hold(0))
    writer.add("a", np.arange(10))
    writer.close()
    assert folder.list() == []


def test_names_that_look_like_another_fields_columns_are_kept_apart_in_npy(tmp_path):
    batch = pa.RecordBatch.from_pydict(
        {
            "a": [[1], [2, 3]],
            "a.values": [7.5, 8.5],
            "a.offsets": [5, 6],
            "b": [None, 1],
            "b.valid": [3, 4],
            "é %": [1, 2],
        }
    )
    write_dataset(tmp_path, {"train": [[batch]]}, "npy")
    assert penstock.open(tmp_path)[:].to_pylist() == batch.to_pylist()
    assert penstock.verify(tmp_path).ok


def test_the_bytes_of_this_shard_never_change(tmp_path):
    """The format is a contract: other bytes here are another format version."""
    batch = pa.RecordBatch.from_pydict(
        {
            "a": pa.array([1, None, 3], pa.int32()),
            "b": ["x", "", "é"],
            "c": pa.array(["k", "k", None]).dictionary_encode(),
        }
    )
    facts = [
        write_dataset(tmp_path / container, {"train": [[batch]]}, container).splits["train"][0].files
        for container in ("safetensors", "npy")
    ]
    assert [(file.file.rpartition("/")[2], file.bytes, file.digest) for file in facts[0]] == PINNED_SAFETENSORS
    assert [(file.file.rpartition("/")[2], file.bytes, file.digest) for file in facts[1]] == PINNED_NPY


def test_checksums_beside_npy_files_are_packed_a_word_a_block(tmp_path):
    batch = pa.RecordBatch.from_pydict({"a": np.arange(2 * BLOCK // 8 + 1)})
    write_dataset(tmp_path, {"train": [[batch]]}, "npy")
    (path,) = (tmp_path / "train").glob("*.checksums.json")
    packed = base64.b64decode(json.loads(path.read_text())["checksums"])
    data = np.arange(2 * BLOCK // 8 + 1).tobytes()
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    assert np.frombuffer(packed, "<u8").tolist() == [xxhash.xxh3_64_intdigest(block) for block in blocks]


PINNED_SAFETENSORS = [("00000-of-00001.safetensors", 954, "85bb3cd1b0ab486b2b4c0ec97cd282b3")]
PINNED_NPY = [
    ("00000-of-00001.b.offsets.npy", 160, "d9fe39ed19d75fd0924feadc54c20018"),
    ("00000-of-00001.c.dictionary.offsets.npy", 144, "65e882f12008da751161e3602bac6927"),
    ("00000-of-00001.a.npy", 140, "c22bab98683993b496dc2d22e11129c4"),
    ("00000-of-00001.c.codes.npy", 140, "d4a2088a7ba976423b1490c426bcc6b4"),
    ("00000-of-00001.a.valid.npy", 131, "4acac4f958233813afed52970d10d735"),
    ("00000-of-00001.b.bytes.npy", 131, "8537f14e6308f0d25b29341476f71ea8"),
    ("00000-of-00001.c.dictionary.bytes.npy", 129, "e6d183a444df111827d86121a17306ac"),
    ("00000-of-00001.c.valid.npy", 131, "80e1693d14695078f20fcd7c081ce924"),
    ("00000-of-00001.checksums.json", 436, "95adf49f5879b97d856aaa9adc53ded1"),
]
