"""Batch files: what was written is what numpy opens, without a pickle; equal samples are equal bytes."""

from __future__ import annotations

import errno
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.base.errors import FileError, InputError
from penstock.base.faults import Sweep, sweeping
from penstock.base.fingerprint import digest
from penstock.base.stores import open_store
from penstock.shards.foreign.batch_file import BatchFileWriter
from penstock.shards.manifest import ShardFacts
from penstock.shards.schema import schema_from_arrow


def games(count: int) -> pa.RecordBatch:
    """Samples of the shapes that batch files are for."""
    rng = np.random.default_rng(7)
    features = rng.normal(size=(count, 5)).astype("f4")
    features[::3, 1] = np.array([0x7FC12345], "u4").view("f4")  # a NaN with a payload
    masks = rng.integers(0, 2, (count, 4)).astype("i1")
    masks[::2] = 0
    return pa.RecordBatch.from_pydict(
        {
            "features": fixed(features),
            "labels_action": pa.array(np.where(np.arange(count) % 4, np.arange(count), -1), pa.int16()),
            "masks_action": fixed(masks),
            "board": fixed(rng.integers(-1, 2, (count, 3, 2)).astype("i1")),
            "game": pa.array([f"gäme {number % 3}" for number in range(count)], pa.string()),
            "won": pa.array([number % 2 == 0 for number in range(count)], pa.bool_()),
        }
    )


def fixed(values: np.ndarray[Any, Any]) -> pa.Array:
    flat = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return flat


def write(
    folder: Path, batch: pa.RecordBatch, *, number: int = 3, batch_size: int = 500, at_once: int = 7
) -> ShardFacts:
    writer = BatchFileWriter(open_store(str(folder)), number, schema_from_arrow(batch.schema, "here"), batch_size)
    for start in range(0, batch.num_rows, at_once):
        part = batch.slice(start, at_once)
        writer.write(part, "a.txt", np.arange(start, start + part.num_rows))
    facts = writer.commit()
    writer.close()
    return facts


def shown(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.npz"))


def test_numpy_opens_what_was_written_without_a_pickle(tmp_path):
    batch = games(20)
    facts = write(tmp_path, batch)
    with np.load(tmp_path / "batch_0003.npz", allow_pickle=False) as arrays:
        assert arrays["features"].dtype == "f4"
        assert arrays["features"].tobytes() == np.asarray(batch["features"].flatten()).tobytes()
        assert arrays["labels_action"].dtype == "i2"
        assert arrays["labels_action"][:5].tolist() == [-1, 1, 2, 3, -1]
        assert arrays["masks_action"].tolist() == batch["masks_action"].to_pylist()
        assert arrays["masks_action"].dtype == "i1"
        assert arrays["board"].tolist() == batch["board"].to_pylist()
        assert arrays["board"].shape == (20, 3, 2)
        assert arrays["game"].tolist() == batch["game"].to_pylist()
        assert arrays["won"].dtype == bool
        assert arrays["won"].tolist() == batch["won"].to_pylist()
        assert json.loads(arrays["metadata"].tobytes())["rows"] == [["a.txt", 0, 20]]
    assert (facts.name, facts.records) == ("batch_0003", 20)
    (file,) = facts.files
    data = (tmp_path / file.file).read_bytes()
    assert (file.file, file.bytes, file.digest) == ("batch_0003.npz", len(data), digest(data))


def test_members_are_stored_as_they_are(tmp_path):
    write(tmp_path, games(20))
    with zipfile.ZipFile(tmp_path / "batch_0003.npz") as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert archive.testzip() is None


def test_samples_over_the_batch_size_go_to_further_files_in_the_order_of_their_names(tmp_path):
    facts = write(tmp_path, games(23), batch_size=10)
    names = ["batch_0003.npz", "batch_0003_001.npz", "batch_0003_002.npz"]
    assert shown(tmp_path) == names == [file.file for file in facts.files]
    labels = [np.load(tmp_path / name)["labels_action"] for name in names]
    assert [len(each) for each in labels] == [10, 10, 3]
    assert np.concatenate(labels).tolist() == games(23)["labels_action"].to_pylist()


def test_a_full_last_file_is_followed_by_no_empty_one(tmp_path):
    assert len(write(tmp_path, games(20), batch_size=10).files) == 2


@pytest.mark.proof
def test_names_stay_in_order_where_numbers_have_more_digits(tmp_path):
    order = [write(tmp_path, games(1), number=number).name for number in (0, 9, 9999, 10_000, 99_999, 100_000)]
    assert order == sorted(order)
    assert order[3] == "batch__10000"
    many = [file.file for file in write(tmp_path, games(1002), batch_size=1).files]
    assert many == sorted(many)


def test_equal_samples_are_equal_bytes_however_they_came(tmp_path):
    write(tmp_path / "first", games(20), batch_size=8, at_once=20)
    write(tmp_path / "second", games(20), batch_size=8, at_once=3)
    for name in shown(tmp_path / "first"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_positions_are_kept_as_runs_of_ordinals(tmp_path):
    batch = games(6)
    writer = BatchFileWriter(open_store(str(tmp_path)), 0, schema_from_arrow(batch.schema, "here"), 100)
    writer.write(batch, "a.txt", np.array([0, 1, 2, 5, 6, 9]))
    writer.write(batch.slice(0, 2), "a.txt", np.array([10, 11]))
    writer.write(batch.slice(0, 1), "b.txt", np.array([12]))
    writer.commit()
    metadata = json.loads(np.load(tmp_path / "batch_0000.npz")["metadata"].tobytes())
    assert metadata["rows"] == [["a.txt", 0, 3], ["a.txt", 5, 2], ["a.txt", 9, 3], ["b.txt", 12, 1]]


def test_files_of_a_task_that_did_not_commit_are_removed(tmp_path):
    batch = games(25)
    writer = BatchFileWriter(open_store(str(tmp_path)), 0, schema_from_arrow(batch.schema, "here"), 10)
    writer.write(batch, "a.txt", np.arange(25))
    assert len(shown(tmp_path)) == 2
    writer.close()
    assert shown(tmp_path) == []


def test_a_task_without_samples_has_no_file(tmp_path):
    assert write(tmp_path, games(0)) == ShardFacts("batch_0003", 0, ())
    assert shown(tmp_path) == []


def test_a_batch_is_let_go_of_though_some_of_its_samples_wait_for_more(tmp_path):
    batch = pa.RecordBatch.from_pydict({"x": pa.array(np.arange(100_000)).cast(pa.int32())})
    writer = BatchFileWriter(open_store(str(tmp_path)), 0, schema_from_arrow(batch.schema, "here"), 99_999)
    writer.write(batch, "a.txt", np.arange(100_000))
    before = pa.total_allocated_bytes()
    del batch
    assert before - pa.total_allocated_bytes() >= 400_000
    assert [file.file for file in writer.commit().files] == ["batch_0000.npz", "batch_0000_001.npz"]


def test_an_archive_of_64_bits_is_opened_too(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)  # from here on Python's zipfile takes 64 bits, not from 2 GiB
    write(tmp_path, games(50))
    monkeypatch.undo()
    assert np.load(tmp_path / "batch_0003.npz")["game"].tolist() == games(50)["game"].to_pylist()


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (pa.array([[1], [1, 2]]), "has type list<int64>, which a batch file cannot hold"),
        (pa.array([b"a", b"b"]), "has type binary, which a batch file cannot hold"),
        (pa.array([1, None]), "column 'x' has a null"),
        (pa.array(["a", None]), "column 'x' has a null"),
        (pa.array(["a", "b\0"]), "ends with a NUL character"),
        (pa.array([[1, 2], [3, None]], pa.list_(pa.int8(), 2)), "1 nulls inside its lists"),
    ],
)
def test_what_numpy_cannot_hold_is_refused_by_column_and_row(tmp_path, array, reason):
    with pytest.raises(InputError, match=reason) as caught:
        write(tmp_path, pa.RecordBatch.from_pydict({"x": array}))
    if "type" not in reason:
        assert "a.txt" in str(caught.value)
        assert "row" in str(caught.value)
    assert shown(tmp_path) == []


def test_a_column_called_metadata_is_refused(tmp_path):
    with pytest.raises(InputError, match="a column named 'metadata'"):
        write(tmp_path, pa.RecordBatch.from_pydict({"metadata": [1]}))


def test_a_full_disk_is_told_and_leaves_no_file(tmp_path):
    watched = Sweep()
    with sweeping(watched):
        write(tmp_path / "whole", games(5))
    writes = [number for number, (kind, _) in enumerate(watched.operations) if kind == "write"]
    for number in (writes[0], writes[len(writes) // 2], writes[-1]):
        with pytest.raises(FileError, match="No space left"), sweeping(Sweep(fail_at=number, error=errno.ENOSPC)):
            write(tmp_path / f"full {number}", games(5))
        assert shown(tmp_path / f"full {number}") == []
