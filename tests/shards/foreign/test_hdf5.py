"""`penstock export --to hdf5`: columns as they are, in a file that is whole or not there."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import ConfigError, FileError, InputError, IntegrityError, OutputError
from penstock.base.memory import own_memory
from penstock.cli import main
from penstock.shards.foreign.exporting import export
from penstock.shards.manifest import dataset_id
from tests.shards.making import FIXED, make_array, make_batch, write_dataset
from tests.shards.test_shapes import from_numpy
from tests.show.desk import document

CONTAINERS = ["safetensors", "npy"]
SHAPED = [
    pa.list_(pa.float32(), 893),
    pa.list_(pa.list_(pa.int8(), 8), 8),
    pa.list_(pa.list_(pa.bool_(), 3), 2),
    pa.list_(pa.float16(), 3),
]
TYPES = [*FIXED, *SHAPED, pa.decimal128(38, 10), pa.binary(3)]


def make_games(path: Path, container: Any = "safetensors") -> Path:
    """Two splits; the first has three shards, one of them empty."""
    rng = np.random.default_rng(0)

    def batch(rows: int) -> pa.RecordBatch:
        columns = {
            "board": from_numpy(rng.integers(-6, 7, (rows, 8, 8)).astype("i1")),
            "label": pa.array(rng.integers(-1, 9, rows), pa.int16()),
            "name": pa.array([f"näme {row}" * (row % 4) for row in range(rows)], pa.string()),
            "kind": pa.array([("a", "ß", "")[row % 3] for row in range(rows)]).dictionary_encode(),
        }
        return pa.RecordBatch.from_pydict(columns)

    write_dataset(path, {"train": [[batch(40), batch(5)], [batch(0)], [batch(17)]], "test": [[batch(9)]]}, container)
    return path


@pytest.mark.parametrize("container", CONTAINERS)
def test_every_split_is_a_group_and_every_column_a_dataset_of_the_same_bytes(tmp_path, container):
    path, file = make_games(tmp_path / "games", container), tmp_path / "games.h5"
    exported = export(path, "hdf5", file)
    assert (exported.rows, exported.bytes) == ({"train": 62, "test": 9}, file.stat().st_size)
    with h5py.File(file) as found:
        assert list(found) == ["test", "train"]
        assert found.attrs["dataset"] == exported.dataset == dataset_id(penstock.open(path)._store)
        for split in ("train", "test"):
            dataset = penstock.open(path, split)
            shards = [dataset.columns(number) for number in range(len(dataset.counts))]
            for name in ("board", "label"):
                own = np.concatenate([shard[name].array for shard in shards])
                assert (found[split][name].dtype, found[split][name].shape) == (own.dtype, own.shape)
                assert found[split][name][:].tobytes() == own.tobytes()
            table = dataset[:]
            for name in ("name", "kind"):
                assert list(found[split][name].asstr()) == table[name].to_pylist()
            assert {name: each.attrs["type"] for name, each in found[split].items()} == {
                field.name: field.type for field in dataset.schema
            }


def test_fixed_columns_of_every_type_keep_their_shape_and_bits(tmp_path):
    batch = make_batch(30, 5, 0, TYPES)
    write_dataset(tmp_path / "in", {"train": [[batch.slice(0, 11)], [batch.slice(11)]]})
    export(tmp_path / "in", "hdf5", tmp_path / "out.h5")
    shards = [penstock.open(tmp_path / "in").columns(number) for number in (0, 1)]
    with h5py.File(tmp_path / "out.h5") as found:
        for name in batch.schema.names:
            own = np.concatenate([shard[name].array for shard in shards])
            values = found["train"][name][:]
            assert (values.shape, values.tobytes()) == (own.shape, own.tobytes()), name
            assert (values.dtype == bool) == ("bool" in name)


def test_one_split_can_be_asked_for_alone(tmp_path):
    path = make_games(tmp_path / "games")
    assert export(path, "hdf5", tmp_path / "a.h5", split="test").rows == {"test": 9}
    with h5py.File(tmp_path / "a.h5") as found:
        assert list(found) == ["test"]
    with pytest.raises(OutputError, match=r"no split 'tset'\. Did you mean 'test'"):
        export(path, "hdf5", tmp_path / "b.h5", split="tset")


def test_text_longer_than_is_written_at_once_comes_whole(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.shards.foreign.hdf5._AT_ONCE", 50)
    monkeypatch.setattr("penstock.shards.foreign.hdf5._TEXTS_AT_ONCE", 7)
    texts = [chr(65 + row % 26) * (row * 7 % 120) for row in range(90)]
    columns = {
        "plain": pa.array(texts, pa.string()),
        "large": pa.array(texts, pa.large_string()),
        "coded": pa.array(texts).dictionary_encode(),
        "numbers": pa.array(range(90), pa.int64()),
        "wide": make_array(pa.list_(pa.int64(), 9), 90, np.random.default_rng(0), 0),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    write_dataset(tmp_path / "in", {"train": [[batch]]})
    export(tmp_path / "in", "hdf5", tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as found:
        for name in ("plain", "large", "coded"):
            assert list(found["train"][name].asstr()) == texts
        assert found["train"]["numbers"][:].tolist() == list(range(90))
        assert found["train"]["wide"][:].tolist() == batch["wide"].to_pylist()


def test_the_same_dataset_gives_the_same_file(tmp_path):
    path = make_games(tmp_path / "games")
    for name in ("a.h5", "b.h5"):
        export(path, "hdf5", tmp_path / name)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.binary()), pa.list_(pa.string()), pa.dictionary(pa.int32(), pa.binary())], ids=str
)
def test_other_ragged_columns_are_refused_by_name(tmp_path, kind):
    batch = pa.RecordBatch.from_arrays([pa.array([1]), make_array(kind, 1, np.random.default_rng(0), 0)], ["a", "odd"])
    write_dataset(tmp_path / "in", {"train": [[batch]]})
    with pytest.raises(ConfigError, match=r"column 'odd' is .*: HDF5 gets numbers") as caught:
        export(tmp_path / "in", "hdf5", tmp_path / "out.h5")
    assert "leave it out with `select:`" in caught.value.next_step
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize("container", CONTAINERS)
def test_arrays_of_any_length_and_bytes_are_values_and_offsets(tmp_path, container):
    rows = [[[1, 2], [3]], [], [[], [4, 5, 6]]]  # by shard
    lists = {
        "tokens": pa.list_(pa.int16()),
        "flags": pa.list_(pa.bool_()),
        "frames": pa.list_(pa.list_(pa.float32(), 2)),
    }

    def batch(shard: list[list[int]]) -> pa.RecordBatch:
        columns = {name: pa.array(shard, kind) for name, kind in lists.items() if name == "tokens"}
        columns["flags"] = pa.array([[each % 2 == 0 for each in row] for row in shard], lists["flags"])
        columns["frames"] = pa.array([[[each, -each] for each in row] for row in shard], lists["frames"])
        columns["image"] = pa.array([bytes(row) for row in shard], pa.binary())
        return pa.RecordBatch.from_pydict(columns)

    write_dataset(tmp_path / "in", {"train": [[batch(shard)] for shard in rows]}, container)
    export(tmp_path / "in", "hdf5", tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        train = file["train"]
        assert {train[name]["offsets"][:].tolist() == [0, 2, 3, 3, 6] for name in train} == {True}
        assert train["tokens"]["values"][:].tolist() == [1, 2, 3, 4, 5, 6]
        assert train["tokens"]["values"].dtype == np.int16
        assert train["flags"]["values"][:].tolist() == [False, True, False, True, False, True]
        assert train["frames"]["values"][:].tolist() == [[each, -each] for each in range(1, 7)]
        assert train["image"]["bytes"][:].tobytes() == bytes([1, 2, 3, 4, 5, 6])
        assert train["frames"].attrs["type"] == "list<fixed_size_list<float32>[2]>"


def test_a_null_inside_a_list_is_refused(tmp_path):
    batch = pa.RecordBatch.from_pydict({"a": pa.array([[1, None]], pa.list_(pa.int64()))})
    write_dataset(tmp_path / "in", {"train": [[batch]]})
    with pytest.raises(ConfigError, match="column 'a' has nulls"):
        export(tmp_path / "in", "hdf5", tmp_path / "out.h5")


def test_nulls_are_refused_and_nothing_is_left(tmp_path):
    whole = pa.RecordBatch.from_pydict({"a": pa.array([1, 2], pa.int64())})
    holed = pa.RecordBatch.from_pydict({"a": pa.array([1, None], pa.int64())})
    write_dataset(tmp_path / "in", {"train": [[whole], [holed]]})
    with pytest.raises(ConfigError, match="column 'a' has nulls") as caught:
        export(tmp_path / "in", "hdf5", tmp_path / "out.h5")
    assert caught.value.where == "train/00001-of-00002"
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize("coded", [False, True])
def test_text_that_hdf5_would_cut_short_is_refused_with_its_record(tmp_path, coded):
    texts = pa.array(["fine", "a\0b"])
    write_dataset(
        tmp_path / "in", {"train": [[pa.RecordBatch.from_pydict({"t": texts.dictionary_encode() if coded else texts})]]}
    )
    with pytest.raises(InputError, match="column 't' has a NUL") as caught:
        export(tmp_path / "in", "hdf5", tmp_path / "out.h5")
    assert caught.value.where == "train/00000-of-00001.safetensors, record 1"


@pytest.mark.parametrize("name", [".", "a\0b"])
def test_a_name_that_hdf5_cannot_have_is_refused(tmp_path, name):
    write_dataset(tmp_path / "in", {"train": [[pa.RecordBatch.from_pydict({name: [1]})]]})
    with pytest.raises(ConfigError, match="cannot hold a column named"):
        export(tmp_path / "in", "hdf5", tmp_path / "out.h5")


def test_a_damaged_block_is_named_and_the_file_of_before_stays(tmp_path):
    path, file = make_games(tmp_path / "games"), tmp_path / "games.h5"
    export(path, "hdf5", file)
    before = file.read_bytes()
    shard = path / "train" / "00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\7")
    with pytest.raises(IntegrityError, match="block 0 of column 'name/bytes' is damaged"):
        export(path, "hdf5", file, overwrite=True)
    assert file.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["games", "games.h5"]


def test_a_file_that_is_there_is_replaced_only_when_told(tmp_path):
    path, file = make_games(tmp_path / "games"), tmp_path / "games.h5"
    file.write_text("mine")
    with pytest.raises(OutputError, match="exists already") as caught:
        export(path, "hdf5", file)
    assert "--overwrite" in caught.value.next_step
    assert file.read_text() == "mine"
    export(path, "hdf5", file, overwrite=True)
    assert h5py.is_hdf5(file)


def test_a_place_where_the_file_cannot_be_is_refused(tmp_path):
    path = make_games(tmp_path / "games")
    with pytest.raises(OutputError, match="inside the dataset"):
        export(path, "hdf5", path / "train" / "games.h5")
    with pytest.raises(OutputError, match="this is a folder"):
        export(path, "hdf5", tmp_path)
    with pytest.raises(FileError, match="cannot write"):
        export(path, "hdf5", tmp_path / "nowhere" / "games.h5")
    assert penstock.verify(path).ok


FULL_DISK = """
import resource, sys
sys.dont_write_bytecode = True  # or half a module would stay behind, for everybody
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
from penstock.cli import main
sys.exit(main(["export", sys.argv[1], "--to", "hdf5", "--output", sys.argv[2]]))
"""


@pytest.mark.proof
@pytest.mark.parametrize("room", [0, 4_096, 16_000])
def test_a_disk_that_takes_no_more_leaves_nothing_behind(tmp_path, room):
    path = make_games(tmp_path / "games")
    command = [sys.executable, "-c", FULL_DISK, str(path), str(tmp_path / "games.h5"), str(room)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 8, done.stderr
    assert [line.partition(":")[0].strip() for line in done.stderr.splitlines()] == ["FileError", "where", "try"]
    assert os.listdir(tmp_path) == ["games"]


def test_without_h5py_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ConfigError) as caught:
        export(tmp_path, "hdf5", tmp_path / "out.h5")
    assert caught.value.next_step == "pip install 'penstock[hdf5]'"


def test_the_command_tells_rows_bytes_and_file(tmp_path, capfd):
    path, file = make_games(tmp_path / "games"), tmp_path / "games.h5"
    command = ["export", str(path), "--to", "hdf5", "--output", str(file)]
    assert main(command) == 0
    out = capfd.readouterr().out
    assert [line.split() for line in out.splitlines() if line.startswith("t")] == [["train", "62"], ["test", "9"]]
    assert f"wrote {file}, " in out
    assert main([*command, "--json"]) == 5
    capfd.readouterr()
    assert main([*command, "--json", "--overwrite", "--split", "test"]) == 0
    facts = document(capfd.readouterr().out)
    assert (facts["rows"], facts["bytes"], facts["to"]) == ({"test": 9}, file.stat().st_size, "hdf5")
    assert main([*command[:3], "hdf", *command[4:]]) == 2
    assert "Did you mean 'hdf5'?" in capfd.readouterr().err


@pytest.mark.proof
def test_memory_does_not_grow_with_the_dataset(tmp_path):
    """200 MB in one shard of numbers and text, within 24 MB."""
    features = from_numpy(np.random.default_rng(0).random((5000, 893), "f4"))
    batch = pa.RecordBatch.from_pydict({"x": features, "t": pa.array(["some text " * 100] * 5000)})
    write_dataset(tmp_path / "in", {"train": [[batch] * 9]})
    del features, batch
    write_dataset(tmp_path / "small", {"train": [[pa.RecordBatch.from_pydict({"t": ["warm"]})]]})
    export(tmp_path / "small", "hdf5", tmp_path / "small.h5")
    before, peak, stop = own_memory().counted, [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.005):
            peak[0] = max(peak[0], own_memory().counted)

    watcher = threading.Thread(target=watch)
    watcher.start()
    exported = export(tmp_path / "in", "hdf5", tmp_path / "out.h5")
    stop.set()
    watcher.join()
    assert exported.bytes > 200 * 10**6
    assert peak[0] - before < 24 * 10**6
