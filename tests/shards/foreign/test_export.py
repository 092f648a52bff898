"""What exports to folders share: a folder that is whole or not there, only where it may be, in files of some size."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import ConfigError, FileError, IntegrityError, OutputError
from penstock.base.memory import own_memory
from penstock.base.stores import open_store
from penstock.cli import main
from penstock.shards.dataset import Dataset
from penstock.shards.foreign.export import cut, written_beside
from penstock.shards.foreign.exporting import export
from penstock.shards.foreign.pieces import row_ranges
from penstock.shards.manifest import Step, read_manifest, write_manifest
from tests.loader.making import KEPT, make_kept_documents, make_token_rows, prepare
from tests.shards.making import write_dataset
from tests.show.desk import document

SHARDED = pytest.mark.parametrize("to", ["hf", "maxtext", "zarr"])
EXPORTS = pytest.mark.parametrize("to", ["hf", "maxtext", "megatron", "zarr"])


def make_rows(path: Path, rows: int = 60, test: int = 9) -> Path:
    """Packed rows: three shards of training rows, one of them empty, and some to test with."""
    train = make_token_rows(rows, 33, 1).combine_chunks().to_batches()[0]
    splits = {"train": [[train.slice(0, 40)], [train.slice(0, 0)], [train.slice(40)]], "test": [[train.slice(0, test)]]}
    write_dataset(path, splits)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Files.


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], [[]]),
        ([5], [[5]]),
        ([4, 4, 4], [[4, 4], [4]]),
        ([5, 5, 1], [[5, 5], [1]]),
        ([99, 1, 10, 1], [[99], [1], [10], [1]]),
    ],
)
def test_pieces_are_put_together_up_to_a_size_and_one_that_is_larger_stays_alone(sizes, expected):
    groups = cut((b"x" * size for size in sizes), 10)
    assert [[len(piece) for piece in group] for group in groups] == expected


@pytest.mark.parametrize("to", ["hf", "maxtext"])
def test_no_file_is_larger_than_the_size_that_was_asked_for(tmp_path, to):
    """Ids are stored in 2 bytes and written in 4, or in 3 with a head for each row; codes are written as text."""
    rows = np.random.default_rng(0).integers(0, 65_535, (1500, 256)).astype("u2")
    kinds = pa.array(["x" * 50, "y"] * 750).dictionary_encode()
    columns = {"tokens": pa.array(list(rows), pa.list_(pa.uint16())), "kind": kinds}
    write_dataset(tmp_path / "in", {"train": [[pa.RecordBatch.from_pydict(columns)]]})
    export(tmp_path / "in", to, tmp_path / "out", shard_size="500KB")
    sizes = sorted(path.stat().st_size for path in (tmp_path / "out").rglob("*.arr*"))
    assert sizes[-1] <= 500_000
    assert sizes[1] > 250_000  # all but the last are filled


def test_rows_are_read_so_many_at_once_that_they_have_the_bytes_allowed(tmp_path):
    texts = ["x" * (row * 37 % 500) for row in range(300)]
    columns = {
        "text": pa.array(texts),
        "coded": pa.array(texts).dictionary_encode(),
        "nothing": pa.array([None] * 300, pa.string()).dictionary_encode(),
        "words": pa.array([[text] * (len(text) % 3) for text in texts]),
        "numbers": pa.array([[1.0] * (len(text) % 7) for text in texts]),
        "board": pa.array([[[1, 2], [3, 4]]] * 300, pa.list_(pa.list_(pa.int8(), 2), 2)),
    }
    write_dataset(tmp_path / "in", {"train": [[pa.RecordBatch.from_pydict(columns)]]})
    dataset = penstock.open(tmp_path / "in")
    assert isinstance(dataset, Dataset)
    ranges = [(start, stop) for _, start, stop in row_ranges(dataset, dataset.schema, 5000)]
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == 300
    for start, stop in ranges:
        plain = pa.table({name: dataset[start:stop][name].combine_chunks().to_pylist() for name in ("text", "words")})
        assert stop - start == 1 or plain.nbytes + sum(map(len, texts[start:stop])) < 8000
    assert any(stop - start > 1 for start, stop in ranges)


@SHARDED
@pytest.mark.parametrize("size", ["some", "0", "50%", "-3MB", ""])
def test_words_that_are_no_size_are_refused(tmp_path, to, size):
    path = make_rows(tmp_path / "rows")
    with pytest.raises(ConfigError) as caught:
        export(path, to, tmp_path / "out", shard_size=size)
    told = '--shard-size 200MB (in Python: shard_size="200MB")'
    assert (caught.value.where, caught.value.next_step) == ("--shard-size, shard_size=", told)
    assert os.listdir(tmp_path) == ["rows"]


@SHARDED
def test_a_size_that_makes_very_many_files_is_refused_with_the_numbers(tmp_path, to):
    path = make_rows(tmp_path / "rows", 3000)
    with pytest.raises(ConfigError, match=r"in files of 7 B that would be about \d\d,\d\d\d files, more than 10,000"):
        export(path, to, tmp_path / "out", shard_size=7)


# Places.


@EXPORTS
def test_a_folder_that_is_there_is_replaced_only_when_told_and_only_if_it_is_ours(tmp_path, to):
    path, out = make_rows(tmp_path / "rows"), tmp_path / "out"
    out.mkdir()
    export(path, to, out)  # an empty one is as good as none
    with pytest.raises(OutputError, match="exists already") as caught:
        export(path, to, out)
    assert "--overwrite" in caught.value.next_step
    before = contents(out)
    export(path, to, out, overwrite=True, split="test")
    assert contents(out) != before
    (out / ("zarr.json" if to == "zarr" else "export.json")).unlink()
    before = contents(out)
    with pytest.raises(OutputError, match="not an export of penstock"):
        export(path, to, out, overwrite=True)
    assert contents(out) == before
    assert sorted(os.listdir(tmp_path)) == ["out", "rows"]


@EXPORTS
def test_a_place_where_the_folder_cannot_be_is_refused(tmp_path, to):
    path = make_rows(tmp_path / "some" / "rows")
    (tmp_path / "file").write_text("mine")
    for place in (path / "train", path, tmp_path / "some"):
        with pytest.raises(OutputError, match="the export must not be inside the dataset"):
            export(path, to, place, overwrite=True)
    with pytest.raises(OutputError, match="this is a file"):
        export(path, to, tmp_path / "file", overwrite=True)
    with pytest.raises(FileError, match="cannot write"):
        export(path, to, tmp_path / "nowhere" / "out")
    assert penstock.verify(path).ok


@EXPORTS
def test_what_is_no_dataset_of_columns_is_refused(tmp_path, to):
    with pytest.raises(OutputError, match="there is no dataset here"):
        export(tmp_path, to, tmp_path / "out")
    path = make_rows(tmp_path / "rows")
    with pytest.raises(OutputError, match=r"no split 'tset'\. Did you mean 'test'"):
        export(path, to, tmp_path / "out", split="tset")
    folder = open_store(str(path))
    write_manifest(folder, replace(read_manifest(folder), config={"format": "arrayrecord"}))
    with pytest.raises(ConfigError, match=r"records of \.arrayrecord files have no columns"):
        export(path, to, tmp_path / "out")
    write_manifest(folder, replace(read_manifest(folder), config={"format": "npz"}))
    with pytest.raises(OutputError, match="batch files, which are not merged"):
        export(path, to, tmp_path / "out")
    assert os.listdir(tmp_path) == ["rows"]


# Whole or not at all.


@EXPORTS
def test_the_same_dataset_gives_the_same_files(tmp_path, to):
    path = make_rows(tmp_path / "rows")
    for name in ("a", "b"):
        export(path, to, tmp_path / name, **({} if to == "megatron" else {"shard_size": "1kB"}))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert len(contents(tmp_path / "a")) >= 5


@EXPORTS
def test_a_damaged_block_is_named_and_the_export_of_before_stays(tmp_path, to):
    path, out = make_rows(tmp_path / "rows"), tmp_path / "out"
    export(path, to, out)
    before = contents(out)
    shard = path / "train" / "00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\7")
    with pytest.raises(IntegrityError, match="block 0 of column 'tokens' is damaged"):
        export(path, to, out, overwrite=True)
    assert contents(out) == before
    assert sorted(os.listdir(tmp_path)) == ["out", "rows"]


FULL_DISK = """
import resource, sys
sys.dont_write_bytecode = True  # or half a module would stay behind, for everybody
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from penstock.cli import main
sys.exit(main(["export", *sys.argv[2:]]))
"""


@pytest.mark.proof
@EXPORTS
@pytest.mark.parametrize("room", [0, 500])
def test_a_disk_that_takes_no_more_leaves_nothing_behind(tmp_path, to, room):
    path = make_rows(tmp_path / "rows")
    command = [sys.executable, "-c", FULL_DISK, str(room), str(path), "--to", to]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 8, done.stderr
    assert [line.partition(":")[0].strip() for line in done.stderr.splitlines()] == ["FileError", "where", "try"]
    assert os.listdir(tmp_path) == ["rows"]


KILLED = """
import os, signal, sys
from penstock.shards.foreign.export import written_beside
with written_beside(sys.argv[1]) as folder:
    open(folder.local_path("half a file"), "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_export_left_is_gone_with_the_next(tmp_path):
    path, out = make_rows(tmp_path / "rows"), tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", KILLED, str(out)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert sorted(os.listdir(tmp_path)) == ["out.penstock-part", "rows"]
    export(path, "hf", out)
    assert sorted(os.listdir(tmp_path)) == ["out", "rows"]
    assert "half a file" not in os.listdir(out)


def test_two_exports_to_one_place_do_not_meet(tmp_path):
    path, out = make_rows(tmp_path / "rows"), tmp_path / "out"
    with written_beside(str(out)), pytest.raises(OutputError, match="another export writes to the same place"):
        export(path, "hf", out)


@EXPORTS
def test_tokens_are_held_against_the_account_of_a_packed_dataset(tmp_path, to):
    path = make_rows(tmp_path / "rows")
    folder = open_store(str(path))
    for given, intact in ((69 * 33, True), (69 * 33 + 1, False)):
        account = (
            Step("tokenize", "tokens", given + 5, given + 5),
            Step("pack", "tokens", given + 5, given, {"tail": 5}),
        )
        write_manifest(folder, replace(read_manifest(folder), tokens=account))
        if intact:
            assert sum(export(path, to, tmp_path / "out").tokens.values()) == given
        else:
            with pytest.raises(
                IntegrityError, match=r"2,277 tokens were written, and the manifest's account has 2,278"
            ):
                export(path, to, tmp_path / "other")
    assert export(path, to, tmp_path / "one", split="test").tokens == {"test": 9 * 33}
    assert sorted(os.listdir(tmp_path)) == ["one", "out", "rows"]


# Memory, and the command.


def peak_of(*arguments: Any) -> int:
    """Bytes of memory that the call took beyond what the process had."""
    before, peak, stop = own_memory().counted, [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.002):
            peak[0] = max(peak[0], own_memory().counted)

    watcher = threading.Thread(target=watch)
    watcher.start()
    export(*arguments)
    stop.set()
    watcher.join()
    return peak[0] - before


@pytest.mark.proof
@EXPORTS
def test_memory_does_not_grow_with_the_dataset(tmp_path, to):
    """60 MB of tokens, in one shard; the files have twice as much."""
    tokens = np.random.default_rng(0).integers(0, 50_000, (1500, 2048)).astype("u2")
    batch = pa.RecordBatch.from_pydict(
        {"tokens": pa.FixedSizeListArray.from_arrays(pa.array(tokens.reshape(-1)), 2048)}
    )
    write_dataset(tmp_path / "in", {"train": [[batch] * 10]})
    del tokens, batch
    export(make_rows(tmp_path / "small"), to, tmp_path / "warm")
    assert peak_of(tmp_path / "in", to, tmp_path / "out") < 30 * 10**6


@pytest.mark.parametrize("to", ["hf", "maxtext"])
def test_the_command_tells_rows_tokens_files_and_bytes(tmp_path, capfd, to):
    path, out = make_rows(tmp_path / "rows"), tmp_path / f"rows-{to}"
    command = ["export", str(path), "--to", to]
    assert main([*command, "--shard-size", "1kB"]) == 0
    shown = capfd.readouterr().out
    lines = [line.split() for line in shown.splitlines() if line.startswith("t")]
    assert lines == [["train", "60", f"{60 * 33:,}"], ["test", "9", "297"]]
    assert f"wrote {out}, " in shown
    assert " files, " in shown
    assert main([*command, "--json"]) == 5
    capfd.readouterr()
    assert main([*command, "--json", "--overwrite", "--split", "test"]) == 0
    facts = document(capfd.readouterr().out)
    assert (facts["rows"], facts["tokens"], facts["to"], facts["output"]) == ({"test": 9}, {"test": 297}, to, str(out))
    assert facts["files"] == 1
    assert facts["bytes"] == sum(map(len, contents(out).values()))


def test_a_shard_size_of_hdf5_and_an_unknown_format_are_refused(tmp_path, capfd):
    command = ["export", str(make_rows(tmp_path / "rows")), "--to"]
    assert main([*command, "hdf5", "--shard-size", "1MB"]) == 2
    assert "hdf5 is one file, whatever its size" in capfd.readouterr().err
    assert main([*command, "maxtxt"]) == 2
    assert "Did you mean 'maxtext'?" in capfd.readouterr().err


def test_kept_columns_go_to_hf_and_are_refused_by_maxtext(tmp_path):
    path = prepare(tmp_path / "job", make_kept_documents(60, 30, 3), [{"pack": {"length": 33, "keep": KEPT}}])
    export(path, "hf", tmp_path / "hf")
    (file,) = (tmp_path / "hf").glob("*.arrow")
    found, rows = pa.ipc.open_stream(file.read_bytes()).read_all(), penstock.open(path)[:]
    assert found.column_names == ["input_ids", "seq_lengths", *KEPT]
    assert all(found[name].to_pylist() == rows[name].to_pylist() for name in KEPT)
    with pytest.raises(ConfigError, match="`pack` kept source, weight, mask, score beside the tokens"):
        export(path, "maxtext", tmp_path / "maxtext")
