"""Older batches: files of the array-batch scripts become one dataset, features by name, samples by number and game."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, InputError
from penstock.prepare.job.config import Config
from penstock.prepare.run.halves import merge_batches
from penstock.prepare.sources.batches.pickled import frame_columns
from penstock.shards.verify import verify

NAMES = ["gold", "pieces", "check"]
pytestmark = pytest.mark.filterwarnings("ignore:trust_pickle", "ignore:'metadata'", "ignore:'df_pickle'")


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch):
    monkeypatch.setattr("penstock.prepare.sources.batches.contents._said", set())


def records(first: int, count: int) -> list[dict[str, Any]]:
    """What a sample's features are: 100 times the sample's number, and the place of the name."""
    return [{name: 100.0 * n + place for place, name in enumerate(NAMES)} for n in range(first, first + count)]


def games(first: int, count: int) -> list[dict[str, Any]]:
    return [{"game_id": n // 2, "turn": n, "player": f"p{n % 3}", "odd": None} for n in range(first, first + count)]


def objects(values: list[Any]) -> np.ndarray[Any, Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def write_arrays(path: Path, first: int, names: list[str] | None, count: int = 3, **more: Any) -> None:
    """A batch as the scripts wrote it last: arrays, the names of features, a pickled table, pickled metadata."""
    order = names if names is not None else NAMES
    features = np.array([[each.get(name, -1.0) for name in order] for each in records(first, count)], "f4")
    held: dict[str, Any] = {"df_pickle": pickle.dumps(games(first, count)), "strategic_features": features}
    held |= {} if names is None else {"strategic_feature_names": names}
    held |= {"labels_action": np.arange(first, first + count, dtype="i2"), "metadata": {"num_samples": count}}
    np.savez_compressed(path, **held | more)


def write_dicts(path: Path, first: int, names: list[str], count: int = 3, **more: Any) -> None:
    """A batch as the scripts wrote it first: lists of dicts."""
    features = [{name: each[name] for name in names} for each in records(first, count)]
    labels = [{"action": n} for n in range(first, first + count)]
    held = {"df_pickle": pickle.dumps(games(first, count)), "strategic_features": objects(features)}
    np.savez_compressed(path, **held | {"labels": objects(labels), "metadata": {"num_samples": count}} | more)


def write_job(folder: Path, stages: Any = (), trust: bool = True, **keys: Any) -> dict[str, Any]:
    source = {"npz": str(folder / "in" / "batch_*.npz"), "trust_pickle": trust}
    return {"input": source, "output": str(folder / "out"), "stages": list(stages), "workers": 0, **keys}


@pytest.fixture
def batches(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


EXPECTED = [[100.0 * n, 100.0 * n + 1, 100.0 * n + 2] for n in range(9)]

# Features.


@pytest.mark.proof
def test_features_of_lists_of_dicts_and_of_arrays_are_put_in_one_order_by_name(tmp_path, batches):
    write_arrays(batches / "batch_0000.npz", 0, NAMES)
    write_dicts(batches / "batch_0001.npz", 3, ["pieces", "check", "gold"])
    write_arrays(batches / "batch_0002.npz", 6, ["check", "gold", "pieces"])
    manifest = penstock.run(write_job(tmp_path, [{"normalize": {"columns": ["strategic_features"], "skip": ["0:3"]}}]))
    assert np.load(tmp_path / "out" / "X_train.npy").tolist() == EXPECTED
    assert np.load(tmp_path / "out" / "labels_action_train.npy").tolist() == list(range(9))
    assert manifest.feature_names == {"strategic_features": NAMES}
    assert (tmp_path / "out" / "feature_cols.json").read_text() == json.dumps(NAMES, indent=2)
    assert verify(tmp_path / "out").problems == ()
    assert not list((tmp_path / "out").glob("strategic_feature_names*"))


def test_as_many_names_as_samples_are_still_names(tmp_path, batches):
    write_arrays(batches / "batch_0000.npz", 0, NAMES, count=3)
    manifest = penstock.run(write_job(tmp_path, trust=False))
    assert [field.name for field in manifest.schema] == ["strategic_features", "labels_action"]


MISALIGNED = {
    "no names in a later file": ((NAMES, None), "its features have no names, and those of the first file have"),
    "no names in the first file": ((None, NAMES), "its features have names, and those of the first file have none"),
    "another name": ((NAMES, ["gold", "pieces", "silver"]), "feature 'silver', which the first file has not; it lacks"),
    "a name too many": ((NAMES, [*NAMES, "silver"]), "it has feature 'silver', which the first file has not"),
    "a name too few": ((NAMES, NAMES[:2]), "it lacks feature 'check' of the first file"),
}


@pytest.mark.parametrize("name", MISALIGNED)
def test_features_that_cannot_be_aligned_are_refused_with_both_files(tmp_path, batches, name):
    (first, second), reason = MISALIGNED[name]
    write_arrays(batches / "batch_0000.npz", 0, first)
    write_arrays(batches / "batch_0001.npz", 3, second)
    with pytest.raises(InputError) as caught:
        penstock.plan(write_job(tmp_path))
    assert reason in caught.value.what
    assert "batch_0001.npz; the first is " in str(caught.value.where)
    assert str(caught.value.where).endswith("batch_0000.npz")


def test_a_file_that_cannot_be_aligned_can_be_set_aside(tmp_path, batches):
    write_arrays(batches / "batch_0000.npz", 0, NAMES)
    write_arrays(batches / "batch_0001.npz", 3, None)
    write_arrays(batches / "batch_0002.npz", 6, NAMES)
    penstock.run(write_job(tmp_path, on_bad_input="set_aside"))
    assert np.load(tmp_path / "out" / "X_train.npy").tolist() == EXPECTED[:3] + EXPECTED[6:]


@pytest.mark.parametrize("names", [["gold", "gold", "check"], ["gold"]])
def test_names_that_do_not_name_every_feature_once_are_refused(tmp_path, batches, names):
    write_arrays(batches / "batch_0000.npz", 0, NAMES, strategic_feature_names=names)
    with pytest.raises(InputError, match="'strategic_features' has 3 features"):
        penstock.run(write_job(tmp_path))


@pytest.mark.proof
def test_names_that_were_pickled_are_read_where_pickles_are_trusted(tmp_path, batches):
    write_arrays(batches / "batch_0000.npz", 0, NAMES)
    turned = NAMES[::-1]
    write_arrays(batches / "batch_0001.npz", 3, turned, strategic_feature_names=objects(turned))
    penstock.run(write_job(tmp_path))
    assert np.load(tmp_path / "out" / "X_train.npy").tolist() == EXPECTED[:6]


def test_batch_files_without_names_are_taken_as_they_are(tmp_path, batches):
    write_arrays(batches / "batch_0000.npz", 0, None)
    write_arrays(batches / "batch_0001.npz", 3, None)
    manifest = penstock.run(write_job(tmp_path))
    assert np.load(tmp_path / "out" / "X_train.npy").tolist() == EXPECTED[:6]
    assert manifest.feature_names == {}
    assert not (tmp_path / "out" / "feature_cols.json").exists()


def test_behind_a_stage_of_ones_own_nobody_knows_the_names(tmp_path, batches, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turning.py").write_text("def same(batch):\n    return batch\n")
    write_arrays(batches / "batch_0000.npz", 0, NAMES)
    assert penstock.run(write_job(tmp_path, ["turning:same"])).feature_names == {}
    assert not (tmp_path / "out" / "feature_cols.json").exists()


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_what_another_program_tells_about_a_column_is_not_taken_for_names_of_features(tmp_path, ending):
    told = {"names": "not JSON", "penstock.feature_names": '["a"]'}
    table = pa.table({"x": [1, 2]}, schema=pa.schema([pa.field("x", pa.int64(), metadata=told)]))
    with pa.OSFile(str(tmp_path / f"in.{ending}"), "wb") as sink:
        if ending == "parquet":
            pq.write_table(table, sink)
        else:
            with pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
    penstock.run({"input": str(tmp_path / f"in.{ending}"), "output": str(tmp_path / "out"), "stages": [], "workers": 0})
    assert penstock.open(tmp_path / "out")[:]["x"].to_pylist() == [1, 2]
    assert not json.loads((tmp_path / "out" / "manifest.json").read_text()).get("feature_names")


@pytest.mark.proof
def test_heads_are_columns_by_name_and_a_head_that_a_file_lacks_is_named(tmp_path, batches):
    both = [{"a": 1, "b": 2}, {"b": 2, "a": 1}]
    np.savez(batches / "batch_0.npz", features=objects([{"x": 1.0}] * 2), labels=objects(both))
    np.savez(
        batches / "batch_1.npz",
        strategic_features=np.ones((1, 1), "f4"),
        strategic_feature_names=["x"],
        labels_b=np.array([2], "i2"),
        labels_a=np.array([1], "i2"),
    )
    penstock.run(write_job(tmp_path))
    assert np.load(tmp_path / "out" / "labels_a_train.npy").tolist() == [1] * 3
    assert np.load(tmp_path / "out" / "labels_b_train.npy").tolist() == [2] * 3
    np.savez(
        batches / "batch_1.npz",
        strategic_features=np.ones((1, 1), "f4"),
        strategic_feature_names=["x"],
        labels_b=np.array([2], "i2"),
    )
    with pytest.raises(InputError, match="it has no column 'labels_a'"):
        penstock.plan(write_job(tmp_path))


def test_a_whole_number_that_float32_cannot_hold_is_refused(tmp_path, batches):
    np.savez(batches / "batch_0.npz", features=objects([{"x": 2**24, "y": 1}, {"x": 2**24 + 1, "y": 1}]))
    with pytest.raises(InputError, match="feature 'x' is 16777217, which float32 cannot hold exactly") as caught:
        penstock.run(write_job(tmp_path))
    assert str(caught.value.where).endswith("sample 1")


# The order of files.


def test_batch_files_come_in_the_order_of_their_numbers(tmp_path, batches):
    for first, number in [(0, "9998"), (3, "9999"), (6, "10000")]:
        write_arrays(batches / f"batch_{number}.npz", first, NAMES)
    penstock.run(write_job(tmp_path, trust=False))
    assert np.load(tmp_path / "out" / "labels_action_train.npy").tolist() == list(range(9))


# The table beside the arrays.

SPLIT = {"split": {"by": "game_id", "val": 0.3, "test": 0.3}}


@pytest.mark.proof
def test_samples_are_split_by_the_game_of_their_pickled_table(tmp_path, batches):
    write_arrays(batches / "batch_0000.npz", 0, NAMES, 20)
    write_dicts(batches / "batch_0001.npz", 20, NAMES, 20)
    manifest = penstock.run(write_job(tmp_path, [SPLIT]))
    assert [field.name for field in manifest.schema] == ["strategic_features", "labels_action", "game_id"]
    found = {split: np.load(tmp_path / "out" / f"game_id_{split}.npy") for split in ("train", "val", "test")}
    assert sum(map(len, found.values())) == 40
    assert all(ids.dtype == "int64" for ids in found.values())
    assert sum(len(set(ids.tolist())) for ids in found.values()) == 20
    labels = np.load(tmp_path / "out" / "labels_action_train.npy")
    assert (labels // 2 == found["train"]).all()


@pytest.mark.parametrize("trust", [True, False])
def test_a_merge_trusts_pickles_where_the_job_does(tmp_path, batches, trust):
    config = Config({**write_job(tmp_path, [SPLIT], trust=trust), "intermediate_dir": str(batches)})
    merged = merge_batches(config, str(batches))
    assert [each.trust_pickle for each in merged.input] == [trust]
    assert merged.input[0].npz == (str(batches / "batch_*.npz"),)


def test_batch_files_that_are_the_input_are_not_written_once_more(tmp_path, batches):
    write_arrays(batches / "batch_0000.npz", 0, NAMES)
    before = sorted(batches.iterdir())
    penstock.run({**write_job(tmp_path, trust=False), "intermediate_dir": str(batches)})
    assert np.load(tmp_path / "out" / "X_train.npy").tolist() == EXPECTED[:3]
    assert sorted(batches.iterdir()) == before


@pytest.mark.proof
def test_a_selected_column_may_be_text_and_others_are_left_alone(tmp_path, batches):
    write_arrays(batches / "batch_0000.npz", 0, NAMES)
    penstock.run(write_job(tmp_path, [{"select": ["strategic_features", "player", "turn"]}]))
    assert [row["player"] for row in penstock.open(tmp_path / "out")] == ["p0", "p1", "p2"]
    assert np.load(tmp_path / "out" / "turn_train.npy").tolist() == [0, 1, 2]


class Trap:
    """Opening its pickle makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return __import__("os").mkdir, (self.path,)


LEFT_OUT = "'df_pickle' is a pickled table: it is left out, unopened. .*by: game_id"


def test_a_table_is_not_opened_where_no_stage_needs_it(tmp_path, batches):
    write_arrays(batches / "batch_0000.npz", 0, NAMES, df_pickle=pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.warns(UserWarning, match=LEFT_OUT):
        penstock.run(write_job(tmp_path))
    assert not (tmp_path / "sprung").exists()


def test_a_table_is_not_opened_without_trust(tmp_path, batches):
    write_arrays(batches / "batch_0000.npz", 0, NAMES, df_pickle=pickle.dumps(Trap(tmp_path / "sprung")))
    with (
        pytest.warns(UserWarning, match=f"{LEFT_OUT}.*trust_pickle: true"),
        pytest.raises(ConfigError, match="game_id"),
    ):
        penstock.run(write_job(tmp_path, [SPLIT], trust=False))
    assert not (tmp_path / "sprung").exists()


def columns_of(path: Path, table: Any) -> dict[str, np.ndarray[Any, Any]]:
    """What the process that opens pickles makes of a table's columns `x` and `y`."""
    np.savez(path, df_pickle=table if isinstance(table, bytes) else pickle.dumps(table))
    return frame_columns(str(path), ["x", "y", "not there"])[0]


@pytest.mark.parametrize(
    "table",
    [
        [{"x": 1, "y": "é"}, {"y": "", "x": 2}],
        {"x": [1, 2], "y": ("é", ""), "z": None},
        {"x": np.array([1, 2]), "y": np.array(["é", ""], object)},
    ],
    ids=["records", "lists", "arrays"],
)
def test_a_table_may_be_records_or_columns(tmp_path, table):
    found = columns_of(tmp_path / "a.npz", table)
    assert {name: (array.dtype.str, array.tolist()) for name, array in found.items()} == {
        "x": ("<i8", [1, 2]),
        "y": ("<U1", ["é", ""]),
    }


TABLES: dict[str, tuple[Any, str]] = {
    "pandas is not there": (b"cno_such_pandas.frame\nDataFrame\n.", "No module named 'no_such_pandas'"),
    "no table": (3, "it holds a int, not a table with columns"),
    "mixed types": ({"x": [1, 0.5]}, "column 'x' holds float, int"),
    "nulls": ({"x": ["a", None]}, "column 'x' holds NoneType, str"),
    "too large": ({"x": [2**64, 1]}, "column 'x' holds int"),
    "both signs": ({"x": [2**63, -1]}, "column 'x' holds int"),
    "dates": ({"x": np.zeros(3, "M8[s]")}, "column 'x' holds datetime64"),
    "text that ends in NUL": ({"x": ["a\0"]}, "text without a NUL at its end"),
    "records that differ": ([{"x": 1}, {"x": 1, "y": 1}], "sample 1 has 'y', sample 0 has not"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_that_cannot_be_used_is_named(tmp_path, name):
    table, reason = TABLES[name]
    with pytest.raises(InputError) as caught:
        columns_of(tmp_path / "a.npz", table)
    assert reason in caught.value.what
    assert str(caught.value.where).startswith(f"{tmp_path / 'a.npz'}, 'df_pickle'")


def test_a_table_of_other_rows_than_the_arrays_is_refused(tmp_path, batches):
    write_arrays(batches / "batch_0000.npz", 0, NAMES, df_pickle=pickle.dumps(games(0, 2)))
    with pytest.raises(InputError, match="column 'game_id' of 'df_pickle' has 2 rows, the arrays have 3"):
        penstock.plan(write_job(tmp_path, [SPLIT]))
