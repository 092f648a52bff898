"""A dataset that penstock prepared is the input of another job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, InputError, IntegrityError
from penstock.shards.record import Encoder
from penstock.shards.schema import schema_from_arrow
from tests.promises import arrow_types, killing, workshop

WHEN = {"memory": "1GB", "workers": 0}


def run(source: Any, output: Path, *stages: Any, **options: Any) -> penstock.Manifest:
    source = source if isinstance(source, dict) else {"path": source}
    job = {"input": {**source, "path": str(source["path"])}, "output": str(output), "stages": list(stages)}
    return penstock.run({**job, **WHEN, **options}, progress=False)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Four files of 500 rows, with a key, a number, a text and nulls."""
    for number in range(4):
        table = workshop.make_rows(500, number)
        pq.write_table(table, tmp_path / f"{number}.parquet")
    return tmp_path


@pytest.mark.parametrize("format", ["safetensors", "npy"])
def test_every_type_comes_through_as_it_was(tmp_path, format):
    table = pa.table({f"c{number}": array for number, array in enumerate(arrow_types.columns().values())})
    table = table.select([name for name in table.column_names if _is_kept(table[name].combine_chunks())])
    with pa.OSFile(str(tmp_path / "in.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    run(tmp_path / "in.arrow", tmp_path / "one", format=format)
    run(tmp_path / "one", tmp_path / "two", format=format)
    one, two = (penstock.open(tmp_path / name)[:] for name in ("one", "two"))
    assert table.num_columns > 50
    assert one.schema == two.schema
    for name in one.column_names:
        left, right = one[name].combine_chunks(), two[name].combine_chunks()
        assert arrow_types.exact(left) == arrow_types.exact(right), one.schema.field(name)


def _is_kept(array: pa.Array) -> bool:
    """Whether a dataset can hold it."""
    try:
        (field,) = schema_from_arrow(pa.schema([("c", array.type)]), "here")
        list(Encoder(field).encode(array))
    except (ConfigError, InputError):
        return False
    return True


def test_arrays_come_through_with_the_names_of_their_features(tmp_path):
    np.savez(
        tmp_path / "batch_0.npz",
        features=np.arange(30, dtype="f4").reshape(10, 3),
        feature_cols=np.array(["a", "b", "c"]),
    )
    first = penstock.run(
        {"input": {"npz": str(tmp_path / "*.npz")}, "output": str(tmp_path / "one"), "format": "arrays", **WHEN},
        progress=False,
    )
    second = run(tmp_path / "one", tmp_path / "two", {"split": {"test": 0.5}}, format="arrays")
    assert second.feature_names == first.feature_names
    parts = [np.load(tmp_path / "two" / f"X_{split}.npy") for split in ("train", "test")]
    assert sorted(np.concatenate(parts)[:, 0].tolist()) == [3.0 * number for number in range(10)]


def test_grouped_records_arrive_as_lists_and_keep_their_order(rows):
    run(rows, rows / "one", {"group": {"by": "src", "order": "time"}}, {"split": {"test": 0.2}})
    run({"path": rows / "one", "split": "test"}, rows / "two", {"filter": "length(rtt) >= 2"})
    before = [record for record in penstock.open(rows / "one", "test")[:].to_pylist() if len(record["rtt"]) > 1]
    assert json.dumps(penstock.open(rows / "two")[:].to_pylist(), default=str) == json.dumps(before, default=str)


def test_only_the_columns_that_are_asked_for_are_read_and_a_split_may_be_cut(rows):
    run(rows, rows / "one")
    manifest = run({"path": rows / "one", "split": "train[100:300]"}, rows / "two", {"select": ["size", "kind"]})
    assert [field.name for field in manifest.schema] == ["size", "kind"]
    assert penstock.open(rows / "two")[:]["size"] == penstock.open(rows / "one")[100:300]["size"]


def test_a_text_column_of_a_dataset_can_be_read_alone(rows):
    run(rows, rows / "one")
    run({"path": rows / "one", "text_column": "src"}, rows / "two")
    assert penstock.open(rows / "two")[:]["text"].to_pylist() == penstock.open(rows / "one")[:]["src"].to_pylist()


def test_a_position_is_the_number_that_open_takes(rows):
    run(rows, rows / "one", {"split": {"test": 0.3}}, slice_size="8kB")
    run({"path": rows / "one", "split": "test"}, rows / "two", {"filter": {"where": "size < 700", "keep": True}})
    lines = [json.loads(line) for file in (rows / "two" / "rejected").iterdir() for line in file.open()]
    dataset = penstock.open(rows / "one", "test")
    assert lines
    assert all(line["file"] == "test" for line in lines)
    assert all(dataset[line["position"]]["size"] == line["row"]["size"] >= 700 for line in lines)


def test_several_splits_need_a_choice_and_a_wrong_name_is_told(rows):
    run(rows, rows / "one", {"split": {"test": 0.2}})
    with pytest.raises(InputError, match="this dataset has 2 splits: train, test") as caught:
        run(rows / "one", rows / "two")
    assert "split: train" in caught.value.next_step
    with pytest.raises(InputError, match=r"there is no split 'tset'\. Did you mean 'test'"):
        run({"path": rows / "one", "split": "tset"}, rows / "two")
    sources = [{"path": str(rows / "one"), "split": split} for split in ("train", "test")]
    both = penstock.run({"input": sources, "output": str(rows / "two"), **WHEN}, progress=False)
    assert both.records("train") == 2000


@pytest.mark.parametrize("output", ["one", "one/inside", "."])
def test_a_job_does_not_write_into_the_dataset_that_it_reads(rows, output):
    run(rows / "0.parquet", rows / "one")
    before = workshop.bytes_of(rows / "one")
    with pytest.raises(InputError, match="the output must not be inside the input dataset"):
        run(rows / "one", rows / output)
    assert workshop.bytes_of(rows / "one") == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "csv"}, "`format:` is an option for files"),
        ({"function": "json:loads"}, "`function:` is an option for files"),
    ],
)
def test_options_for_files_are_refused(rows, options, message):
    run(rows / "0.parquet", rows / "one")
    with pytest.raises(InputError, match=message):
        run({"path": rows / "one", **options}, rows / "two")


def test_types_have_no_say_in_a_dataset(rows):
    run(rows / "0.parquet", rows / "one")
    with pytest.raises(ConfigError, match="types: it is an option for text formats"):
        run({"path": rows / "one", "types": {"size": "int8"}}, rows / "two")


def test_an_unfinished_dataset_is_refused(rows):
    run(rows / "0.parquet", rows / "one")
    (rows / "one" / "manifest.json").unlink()
    with pytest.raises(InputError, match="is not finished") as caught:
        run(rows / "one", rows / "two")
    assert "run its job again" in caught.value.next_step


def test_batch_files_and_records_without_columns_are_refused_with_the_next_step(rows):
    pq.write_table(pa.table({"x": [1.0, 2.0]}), rows / "x.pq")
    run(rows / "x.pq", rows / "batches", format="npz")
    with pytest.raises(InputError, match="holds batch files") as caught:
        run(rows / "batches", rows / "two")
    assert "`npz:`" in caught.value.next_step
    run(rows / "0.parquet", rows / "records", {"group": {"by": "src", "order": "time"}}, format="arrayrecord")
    with pytest.raises(InputError, match="`format: arrayrecord`, whose records have no columns"):
        run({"path": rows / "records", "split": "train"}, rows / "two")


def test_a_dataset_among_other_files_stays_unread(rows):
    run(rows / "0.parquet", rows / "one")
    manifest = run(rows, rows / "elsewhere" / "two")
    assert manifest.records("train") == 2000


def test_a_damaged_block_stops_the_job_and_is_named(rows):
    manifest = run(rows, rows / "one")
    file = rows / "one" / manifest.splits["train"][0].files[0].file
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    with pytest.raises(IntegrityError, match="is damaged") as caught:
        run(rows / "one", rows / "two", on_bad_input="set_aside")
    assert str(rows / "one") in caught.value.where
    assert "the job that made this dataset" in caught.value.next_step


def test_a_dataset_that_was_prepared_anew_makes_the_second_job_new(rows):
    run(rows / "0.parquet", rows / "one")
    first = run(rows / "one", rows / "two")
    assert run(rows / "one", rows / "two") == first
    penstock.run({"input": str(rows / "1.parquet"), "output": str(rows / "one"), **WHEN}, redo=True, progress=False)
    with pytest.raises(penstock.OutputError, match="made from something else: train: changed"):
        run(rows / "one", rows / "two")


@pytest.mark.proof
def test_workers_and_memory_decide_no_byte(rows):
    run(rows, rows / "one", slice_size="16kB")
    stages = [{"filter": "size < 700"}, {"split": {"by": "src", "test": 0.2}}]
    run(rows / "one", rows / "two", *stages, slice_size="16kB")
    run(rows / "one", rows / "three", *stages, slice_size="16kB", workers=2, memory="600MB")
    assert workshop.bytes_of(rows / "two") == workshop.bytes_of(rows / "three")
    assert len(list((rows / "two" / ".penstock" / "tasks").iterdir())) > 3


@pytest.mark.proof
def test_a_chain_that_was_killed_ends_in_the_same_bytes(rows):
    run(rows, rows / "one", {"group": {"by": "src", "order": "time"}}, {"split": {"test": 0.2}}, slice_size="16kB")
    source, stages = {"path": str(rows / "one"), "split": "train"}, [{"split": {"by": "src", "val": 0.3, "seed": 1}}]
    keys = {"input": source, "stages": stages, "slice_size": "8kB", "workers": 0}
    clean = killing.clean_run(rows / "clean", lambda path, **more: workshop.write_job(path, "", **{**keys, **more}))
    assert clean.tasks > 3
    job = workshop.write_job(rows / "killed" / "job.yaml", "", **keys)
    with killing.dying_drivers() as die_at:
        for point in ("task.after_shards", "commit.before_rename", "task.after_shards"):
            die_at(job, point)
    clean.assert_recovers(job)


SHARES = {"by": "src", "val": 0.5}


def test_a_second_split_by_the_hashes_of_the_first_is_refused_unless_all_of_it_is_read(rows, tmp_path):
    run(rows, tmp_path / "one", {"split": {"by": "src", "test": 0.3}})
    test, train = ({"path": str(tmp_path / "one"), "split": split} for split in ("test", "train"))
    with pytest.raises(ConfigError, match=r"stages\[0\].split: .* was split by src with seed 0 already") as caught:
        run(test, tmp_path / "two", {"split": SHARES})
    assert "the shares of its test would be wrong" in caught.value.what
    assert caught.value.next_step == "seed: 1"
    run(test, tmp_path / "two", {"split": {**SHARES, "seed": 1}})
    second = {split: set(penstock.open(tmp_path / "two", split)[:]["src"].to_pylist()) for split in ("train", "val")}
    assert min(map(len, second.values())) > 0
    job = {"input": [test, train], "output": str(tmp_path / "all"), "stages": [{"split": {"by": "src", "test": 0.3}}]}
    penstock.run({**job, **WHEN}, progress=False)
    again = (penstock.open(tmp_path / name, "test").manifest.records("test") for name in ("one", "all"))
    assert len(set(again)) == 1


def test_a_copy_of_a_part_remembers_the_hashes_that_divided_it(rows, tmp_path):
    """The rows of the copy have the hashes of the part, whatever job made the copy."""
    run(rows, tmp_path / "one", {"split": {"by": "src", "test": 0.3}})
    run({"path": str(tmp_path / "one"), "split": "train"}, tmp_path / "copy", {"filter": "size > 0"})
    assert penstock.open(tmp_path / "copy").manifest.input["divided_by"] == [{"by": ["src"], "seed": 0}]
    run(tmp_path / "copy", tmp_path / "two", {"split": {**SHARES, "seed": 1}})
    for source, seed in ((tmp_path / "copy", 0), ({"path": str(tmp_path / "two"), "split": "train"}, 0)):
        with pytest.raises(ConfigError, match="a part of a dataset that was split by src with seed 0") as caught:
            run(source, tmp_path / "three", {"split": {**SHARES, "seed": seed}})
        assert caught.value.next_step == "seed: 1"
    run({"path": str(tmp_path / "two"), "split": "train"}, tmp_path / "three", {"split": {**SHARES, "seed": 2}})
    assert len(penstock.open(tmp_path / "three").manifest.input["divided_by"]) == 2
    assert "divided_by" not in penstock.open(tmp_path / "one").manifest.input
