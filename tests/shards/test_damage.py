"""A flipped byte, a cut or swapped file: always refused, always by name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import IntegrityError, OutputError, PenstockError
from penstock.base.stores import open_store
from penstock.shards.columns import BLOCK
from penstock.shards.manifest import MANIFEST, Step, write_manifest
from tests.shards.making import write_dataset

CONTAINERS = ["safetensors", "npy"]


@pytest.fixture(params=CONTAINERS)
def dataset(request, tmp_path):
    path = tmp_path / "out"
    batch = pa.RecordBatch.from_pydict({"text": ["x", None, "é"]})
    write_dataset(path, {"train": [[batch]]}, request.param)
    return path


def files_of(path: Path) -> list[str]:
    names = [os.path.join(folder, name) for folder, _, files in os.walk(path) for name in files]
    return sorted(os.path.relpath(name, path) for name in names)


def read_everything(path: Path) -> None:
    """What a user does who never calls verify."""
    opened = penstock.open(path)
    opened[:].validate(full=True)
    list(opened)


def verify_everything(path: Path) -> None:
    for problem in penstock.verify(path).problems:
        raise problem


def named_by(act: Callable[[Path], None], path: Path) -> str:
    """What the integrity error says and where, or nothing."""
    try:
        act(path)
    except IntegrityError as error:
        return f"{error.what} {error.where}"
    return ""


def test_a_sound_dataset_has_no_problem(dataset):
    checked = penstock.verify(dataset)
    assert checked.ok
    assert checked.records == 3
    assert checked.files == len(files_of(dataset))
    assert checked.bytes == sum((dataset / name).stat().st_size for name in files_of(dataset) if name != MANIFEST)
    read_everything(dataset)


@pytest.mark.proof
@pytest.mark.parametrize("act", [read_everything, verify_everything])
def test_a_flipped_bit_at_every_byte_of_every_file_is_named(dataset, act):
    for name in files_of(dataset):
        good = (dataset / name).read_bytes()
        for position in range(len(good)):
            bit = 1 << position % 8
            (dataset / name).write_bytes(good[:position] + bytes([good[position] ^ bit]) + good[position + 1 :])
            assert name in named_by(act, dataset), f"{name}, byte {position}, bit {bit}"
        (dataset / name).write_bytes(good)
    act(dataset)


@pytest.mark.proof
@pytest.mark.parametrize(("act", "step"), [(verify_everything, 1), (read_everything, 7)])
def test_every_other_length_of_every_file_is_named(dataset, act, step):
    for name in files_of(dataset):
        good = (dataset / name).read_bytes()
        for length in range(0, len(good), step):
            (dataset / name).write_bytes(good[:length])
            assert name in named_by(act, dataset), f"{name} cut to {length}"
        (dataset / name).write_bytes(good + b"\0")
        assert name in named_by(act, dataset), f"{name} with a byte more"
        (dataset / name).write_bytes(good)


@pytest.mark.proof
@pytest.mark.parametrize("byte", [b"0", b"9", b"e", b".", b"-", b'"', b"{", b"]", b" ", b"\x00", b"\xff"])
def test_no_other_character_in_a_header_passes(tmp_path, byte):
    path = tmp_path / "out"
    batch = pa.RecordBatch.from_pydict({"a": np.arange(30_000)})  # several blocks: offsets of three digits and more
    write_dataset(path, {"train": [[batch]]})
    (name,) = [name for name in files_of(path) if name != MANIFEST]
    good = (path / name).read_bytes()
    header = 8 + int.from_bytes(good[:8], "little")
    for position in range(header):
        if good[position : position + 1] != byte:
            (path / name).write_bytes(good[:position] + byte + good[position + 1 :])
            assert name in named_by(verify_everything, path), f"byte {position}"


def test_a_missing_file_is_named(dataset):
    for name in files_of(dataset):
        hidden = (dataset / name).rename(dataset.parent / "hidden")
        if name == MANIFEST:
            with pytest.raises(OutputError, match="this dataset is not finished"):
                penstock.verify(dataset)
        else:
            assert f"{name} is missing" in named_by(verify_everything, dataset)
        hidden.rename(dataset / name)


def test_a_file_too_many_is_named(dataset):
    (dataset / "train" / "notes.txt").write_text("mine")
    problems = penstock.verify(dataset).problems
    assert [problem.where for problem in problems] == ["train/notes.txt"]
    assert "does not belong" in problems[0].what


def test_penstocks_own_folder_is_no_file_too_many(dataset):
    (dataset / ".penstock" / "run.json").write_text("{}")
    assert penstock.verify(dataset).ok


def test_swapped_files_are_named(tmp_path):
    path = tmp_path / "out"
    shards = [[pa.RecordBatch.from_pydict({"a": [i, i + 1]})] for i in range(2)]
    for container in CONTAINERS:
        shutil.rmtree(path, ignore_errors=True)
        write_dataset(path, {"train": shards}, container)
        one, other = [name for name in files_of(path) if name.endswith(("a.npy", ".safetensors"))]
        data = (path / one).read_bytes()
        (path / one).write_bytes((path / other).read_bytes())
        (path / other).write_bytes(data)
        first, second = penstock.verify(path).problems
        assert one in first.where
        assert other in second.where


def test_a_damaged_block_is_told_by_its_number_and_column_and_only_when_touched(tmp_path):
    batch = pa.RecordBatch.from_pydict({"a": np.arange(100_000), "b": np.arange(100_000, dtype="i4")})
    write_dataset(tmp_path, {"train": [[batch]]})
    name = "train/00000-of-00001.safetensors"
    good = (tmp_path / name).read_bytes()
    start = len(good) - 4 * 100_000 - 8 * 100_000  # column a is before b
    damaged = bytearray(good)
    damaged[start + 3 * BLOCK + 17] ^= 1
    (tmp_path / name).write_bytes(damaged)
    opened = penstock.open(tmp_path)
    per_block = BLOCK // 8
    assert opened[3 * per_block - 1]["a"] == 3 * per_block - 1
    assert opened[4 * per_block]["a"] == 4 * per_block
    for row in (3 * per_block, 4 * per_block - 1):
        with pytest.raises(IntegrityError, match="block 3 of column 'a' is damaged"):
            opened[row]
    (problem,) = penstock.verify(tmp_path).problems
    assert name in problem.where
    assert f"bytes {3 * BLOCK:,} to {4 * BLOCK:,}" in problem.where


def test_an_account_that_does_not_balance_is_told(tmp_path):
    manifest = write_dataset(tmp_path, {"train": [[pa.RecordBatch.from_pydict({"a": [1]})]]})
    wrong = replace(manifest, account=(Step("filter", "rows", 5, 3, {"a > 0": 1}),))
    write_manifest(open_store(str(tmp_path)), wrong)
    (problem,) = penstock.verify(tmp_path).problems
    assert "the account of 'filter' does not balance" in problem.what


def test_what_is_not_a_dataset_is_refused(tmp_path):
    with pytest.raises(PenstockError, match="there is no dataset here"):
        penstock.open(tmp_path)
    (tmp_path / ".penstock").mkdir()
    with pytest.raises(PenstockError, match="this dataset is not finished"):
        penstock.open(tmp_path)
