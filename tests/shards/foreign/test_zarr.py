"""`penstock export --to zarr`: a group per split and an array per column, read here as the format's rules say.

tests/adapters/test_zarr.py reads the same with the library.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock
from penstock.base.errors import ConfigError, IntegrityError, OutputError
from penstock.base.stores import open_store
from penstock.cli import main
from penstock.shards.foreign.exporting import export
from penstock.shards.manifest import read_manifest, write_manifest
from tests.loader.making import KEPT, make_kept_documents, prepare
from tests.shards.foreign.test_hdf5 import SHAPED, make_games
from tests.shards.making import FIXED, TEXTS, make_array, make_batch, write_dataset
from tests.show.desk import document

TYPES = [*FIXED, *SHAPED, pa.decimal128(38, 10), pa.binary(3), *TEXTS, pa.dictionary(pa.int32(), pa.string())]
TYPES += [pa.list_(pa.int8()), pa.list_(pa.bool_()), pa.large_list(pa.float32()), pa.list_(pa.timestamp("us", "UTC"))]


def facts_of(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "zarr.json").read_text())
    assert found["zarr_format"] == 3
    return found


def read_array(place: Path) -> np.ndarray:
    """An array of Zarr, by its own metadata: chunks on a regular grid, little endian, zstd."""
    facts = facts_of(place)
    assert [codec["name"] for codec in facts["codecs"]] == ["bytes", "zstd"]
    chunk = facts["chunk_grid"]["configuration"]["chunk_shape"]
    whole = np.full(facts["shape"], facts["fill_value"], facts["data_type"])
    grid = [range(math.ceil(size / part)) for size, part in zip(facts["shape"], chunk, strict=True)]
    for numbers in itertools.product(*grid):
        data = place.joinpath("c", *map(str, numbers)).read_bytes()
        size = math.prod(chunk) * whole.itemsize
        block = np.frombuffer(pa.Codec("zstd").decompress(data, size), whole.dtype).reshape(chunk)
        places = tuple(slice(n * part, (n + 1) * part) for n, part in zip(numbers, chunk, strict=True))
        whole[places] = block[tuple(slice(0, size) for size in whole[places].shape)]
    return whole


def ragged(place: Path, values: str) -> list[Any]:
    flat, offsets = read_array(place / values), read_array(place / "offsets")
    return [flat[low:high] for low, high in itertools.pairwise(offsets.tolist())]


def own(path: Path, split: str, column: str) -> np.ndarray:
    dataset = penstock.open(path, split)
    return np.concatenate([dataset.columns(number)[column].array for number in range(len(dataset.counts))])


@pytest.mark.parametrize("container", ["safetensors", "npy"])
@pytest.mark.parametrize("size", ["16MB", "1kB"])
def test_every_split_is_a_group_and_every_column_an_array_of_the_same_bytes(tmp_path, container, size):
    path = make_games(tmp_path / "games", container)
    exported = export(path, "zarr", tmp_path / "games.zarr", shard_size=size)
    assert exported.rows == {"train": 62, "test": 9}
    root = facts_of(tmp_path / "games.zarr")
    assert (root["node_type"], root["attributes"]["dataset"]) == ("group", exported.dataset)
    for split in ("train", "test"):
        place, table = tmp_path / "games.zarr" / split, penstock.open(path, split)[:]
        assert facts_of(place)["node_type"] == "group"
        for name in ("board", "label"):
            found = read_array(place / name)
            assert found.tobytes() == own(path, split, name).tobytes()
            assert found.shape == own(path, split, name).shape
        for name in ("name", "kind"):
            assert [each.tobytes().decode() for each in ragged(place / name, "bytes")] == table[name].to_pylist()
        for field in penstock.open(path, split).schema:
            assert facts_of(place / field.name)["attributes"]["type"] == field.type


@pytest.mark.parametrize("size", ["16MB", "100B"])
def test_columns_of_every_type_keep_their_shape_and_bits(tmp_path, size):
    batch = make_batch(30, 5, 0, TYPES)
    write_dataset(tmp_path / "in", {"train": [[batch.slice(0, 11)], [batch.slice(0, 0)], [batch.slice(11)]]})
    export(tmp_path / "in", "zarr", tmp_path / "out", shard_size=size)
    table = penstock.open(tmp_path / "in")[:]
    for name, kind in zip(batch.schema.names, batch.schema.types, strict=True):
        place = tmp_path / "out" / "train" / name
        if facts_of(place)["node_type"] == "array":
            assert read_array(place).tobytes() == own(tmp_path / "in", "train", name).tobytes(), name
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            assert read_array(place / "values").tobytes() == own(tmp_path / "in", "train", f"{name}/values").tobytes()
            lengths = pc.list_value_length(table[name]).to_pylist()
            assert [len(each) for each in ragged(place, "values")] == lengths
        else:
            texts = [each.encode() if isinstance(each, str) else each for each in table[name].to_pylist()]
            assert [each.tobytes() for each in ragged(place, "bytes")] == texts


@pytest.mark.parametrize("method", ["wrapped", "best_fit"])
def test_packed_rows_have_their_tokens_documents_and_kept_columns(tmp_path, method):
    stages = [{"pack": {"length": 33, "method": method, "keep": KEPT}}]
    path = prepare(tmp_path / "job", make_kept_documents(200, 30, 3), stages)
    exported = export(path, "zarr", tmp_path / "out", shard_size="2kB")
    place, rows = tmp_path / "out" / "train", penstock.open(path)[:].to_pylist()
    assert exported.tokens == {"train": sum(len(row["tokens"]) for row in rows)}
    assert [each.tolist() for each in ragged(place / "documents", "values")] == [row["documents"] for row in rows]
    for name in ("tokens", *KEPT):
        found = read_array(place / name) if method == "wrapped" else ragged(place / name, "values")
        assert [each.tolist() for each in found] == [row[name] for row in rows]


def test_names_of_features_go_along(tmp_path):
    path, names = make_games(tmp_path / "games"), ["speed", "</script>", "höhe"]
    store = open_store(str(path))
    manifest = read_manifest(store)
    (path / "manifest.json").unlink()
    write_manifest(store, replace(manifest, feature_names={"board": names}))
    export(path, "zarr", tmp_path / "out")
    assert facts_of(tmp_path / "out" / "train" / "board")["attributes"]["feature_names"] == names
    assert "feature_names" not in facts_of(tmp_path / "out" / "train" / "label")["attributes"]


def test_no_chunk_is_larger_than_the_size_that_was_asked_for(tmp_path):
    """Random bytes cannot be compressed, and take a little more."""
    columns = {"x": np.random.default_rng(0).bytes(3_000_000)}
    table = pa.RecordBatch.from_pydict({"x": pa.array(np.frombuffer(columns["x"], "u1"))})
    write_dataset(tmp_path / "in", {"train": [[table]]})
    export(tmp_path / "in", "zarr", tmp_path / "out", shard_size="500kB")
    sizes = sorted(path.stat().st_size for path in (tmp_path / "out").rglob("c/*"))
    assert 490_000 < sizes[-1] <= 500_000
    assert len(sizes) == 7


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.list_(pa.dictionary(pa.int32(), pa.string()))], ids=str)
def test_lists_of_text_are_refused_by_name(tmp_path, kind):
    batch = pa.RecordBatch.from_arrays([pa.array([1]), make_array(kind, 1, np.random.default_rng(0), 0)], ["a", "odd"])
    write_dataset(tmp_path / "in", {"train": [[batch]]})
    with pytest.raises(ConfigError, match=r"column 'odd' is .*: Zarr gets numbers, text, and lists of numbers"):
        export(tmp_path / "in", "zarr", tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("values", [[1, None], [[1], None], [[1], [None]]])
def test_nulls_are_refused_and_nothing_is_left(tmp_path, values):
    write_dataset(tmp_path / "in", {"train": [[pa.RecordBatch.from_pydict({"a": values})]]})
    with pytest.raises(ConfigError, match="column 'a' has nulls"):
        export(tmp_path / "in", "zarr", tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("name", [".", "..", "__a", "zarr.json", "a\0b"])
def test_names_that_zarr_has_no_place_for_are_refused(tmp_path, name):
    write_dataset(tmp_path / "in", {"train": [[pa.RecordBatch.from_pydict({name: [1]})]]})
    with pytest.raises(ConfigError, match="Zarr cannot use this name"):
        export(tmp_path / "in", "zarr", tmp_path / "out")


def test_an_empty_split_has_arrays_without_rows(tmp_path):
    batch = make_batch(4, 5, 0, TYPES)
    write_dataset(tmp_path / "in", {"train": [[batch]], "test": [[batch.slice(0, 0)]]})
    export(tmp_path / "in", "zarr", tmp_path / "out")
    for name in batch.schema.names:
        place = tmp_path / "out" / "test" / name
        if facts_of(place)["node_type"] == "array":
            assert len(read_array(place)) == 0
        else:
            assert read_array(place / "offsets").tolist() == [0]


def test_a_group_of_somebody_else_is_never_replaced(tmp_path):
    path = make_games(tmp_path / "games")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "zarr.json").write_text(json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {"a": 1}}))
    with pytest.raises(OutputError, match="not an export of penstock"):
        export(path, "zarr", theirs, overwrite=True)
    export(path, "zarr", tmp_path / "ours")
    with pytest.raises(OutputError, match="exists already"):
        export(path, "zarr", tmp_path / "ours")
    export(path, "zarr", tmp_path / "ours", split="test", overwrite=True)
    assert sorted(each.name for each in (tmp_path / "ours").iterdir()) == ["test", "zarr.json"]


def test_an_export_in_an_input_folder_is_not_read_as_input(tmp_path):
    path = make_games(tmp_path / "games")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"a": 1}\n')
    export(path, "zarr", folder / "games.zarr")
    penstock.run({"input": str(folder), "output": str(tmp_path / "out"), "workers": 0}, progress=False)
    assert penstock.open(tmp_path / "out")[:].to_pylist() == [{"a": 1}]


def test_a_flipped_byte_of_the_dataset_is_named_and_no_export_appears(tmp_path):
    path = make_games(tmp_path / "games")
    file = sorted((path / "train").iterdir())[0]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(IntegrityError):
        export(path, "zarr", tmp_path / "out")
    assert [each.name for each in tmp_path.iterdir()] == ["games"]


def test_the_command_writes_beside_the_dataset_and_python_does_the_same(tmp_path, capsys):
    path = make_games(tmp_path / "games")
    assert main(["export", str(path), "--to", "zarr", "--json"]) == 0
    facts = document(capsys.readouterr().out)
    assert facts["output"] == str(tmp_path / "games.zarr")
    assert facts["rows"] == {"train": 62, "test": 9}
    again = penstock.export(path, "zarr", tmp_path / "again", shard_size="1MB")
    assert again.dataset == facts["dataset"]
    assert main(["export", str(path), "--to", "zarr"]) != 0
    assert "exists already" in capsys.readouterr().err
