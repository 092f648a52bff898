"""Split by count: `split: {test: 1000}` takes exactly so many rows or keys, whatever machine it is done on."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.base.errors import ConfigError, PlanError
from penstock.prepare.rows.hashing import combine, hash_array
from penstock.prepare.stages import build_stage
from penstock.prepare.stages.fitting.smallest import Smallest
from penstock.prepare.stages.splitting.by_count import MOST
from tests.prepare.stages.rows import checked_stage, make_rows

NAMES = ("train", "test", "val")


def divided(written, batches: list) -> list[list[int]]:
    """Split numbers of the rows of each batch; every batch is a task."""
    stage = checked_stage("split", written, batches[0])
    fit = stage.fit()
    states = [fit.pack(fit.update(fit.start(), stage.measured(rows))) for rows in batches]
    merged = fit.pack(fit.start())
    for state in json.loads(json.dumps(states)):
        merged = fit.merge(merged, state)
    bound = stage.bind(json.loads(json.dumps(fit.finish(merged))))
    return [bound(rows).splits.tolist() for rows in batches]


@settings(max_examples=60, deadline=None)
@given(
    keys=st.lists(st.integers(0, 30), min_size=1, max_size=200),
    counts=st.dictionaries(st.sampled_from(["test", "val"]), st.integers(1, 8), min_size=1),
    cuts=st.lists(st.integers(0, 200), max_size=4),
    seed=st.integers(0, 3),
)
def test_the_keys_with_the_smallest_hashes_are_taken_as_a_sort_of_all_keys_would(keys, counts, cuts, seed):
    edges = [0, *sorted(min(cut, len(keys)) for cut in cuts), len(keys)]
    batches = [make_rows({"key": keys[a:b]}) for a, b in itertools.pairwise(edges) if b > a]
    written = {"by": "key", "seed": seed, **counts}
    hashes = dict(zip(keys, _seeded(hash_array(pa.array(keys)), seed).tolist(), strict=True))
    if len(hashes) <= sum(counts.values()):
        with pytest.raises(PlanError, match=f"{len(hashes)} different values of key reach the split"):
            divided(written, batches)
        return
    ordered = sorted(hashes, key=lambda key: hashes[key])
    expected, first = dict.fromkeys(hashes, 0), 0
    for number, name in enumerate(sorted(counts), start=1):
        expected |= dict.fromkeys(ordered[first : first + counts[name]], number)
        first += counts[name]
    assert list(itertools.chain(*divided(written, batches))) == [expected[key] for key in keys]


def _seeded(hashes, seed):
    return combine(hashes, np.full(len(hashes), seed, "u8")) if seed else hashes


@pytest.mark.parametrize("tasks", [1, 3, 7])
def test_so_many_rows_are_taken_and_none_more(tasks):
    batches = [make_rows({"a": range(1000)}, f"part-{number}.parquet") for number in range(tasks)]
    numbers = np.concatenate(divided({"test": 100, "val": 37}, batches))
    assert np.bincount(numbers).tolist() == [tasks * 1000 - 137, 100, 37]


def test_files_of_the_same_path_in_two_sources_are_not_taken_in_pairs():
    rows = make_rows({"a": range(1000)})
    other = type(rows)(rows.batch, 1, rows.paths, rows.ordinals)
    first, second = divided({"test": 101}, [rows, other])
    assert sum(first) + sum(second) == 101
    assert first != second


def test_rows_that_name_one_position_twice_are_refused_where_that_would_decide():
    rows = make_rows({"a": range(10)})
    assert sum(map(sum, divided({"test": 4}, [rows, rows]))) == 4
    with pytest.raises(PlanError, match="test: 3 cannot be exact: two rows at its end have the same hash"):
        divided({"test": 3}, [rows, rows])


def test_the_largest_hash_can_be_taken_and_left():
    fit = Smallest((("test", 1),), "rows", is_distinct=False)
    most = 2**64 - 1
    assert fit.finish(fit.pack(np.array([most - 1, most], "u8"))) == {"test": most - 1}


def test_what_a_task_holds_does_not_grow_with_its_rows():
    stage = build_stage("split", {"test": 10})
    fit, state = stage.fit(), stage.fit().start()
    for number in range(20):
        state = fit.update(state, stage.measured(make_rows({"a": range(5000)}, f"{number}")))
    assert len(state) == 11
    assert len(fit.pack(state)) <= stage.state_bytes(100_000) == 121


def test_another_seed_takes_other_rows():
    rows = make_rows({"a": range(10_000)})
    first, second = (np.concatenate(divided({"test": 1000, "seed": seed}, [rows])) for seed in (0, 1))
    assert (first & second).sum() == pytest.approx(100, abs=40)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"test": 1000, "val": 0.1}, "test: 1000 is a count and val: 0.1 a share: a split takes either"),
        ({"test": 0}, "test: 0 is neither a count of 1 or more nor a share"),
        ({"test": -5}, "test: -5 is neither a count"),
        ({"test": 5, "val": 0}, "val: 0 is neither a count"),
        ({"test": True, "val": 5}, "test: True is not a whole number"),
        ({"test": 5, "val": "many"}, "val: 'many' is not a whole number"),
        ({"train": 5}, "'train' cannot be a split's name"),
        ({"test": MOST, "val": 1}, "the counts add up to 100,001, and exact counts go up to 100,000"),
        ({"test": 1000.0}, "test: 1000.0 is not a share between 0 and 1"),
        ({"by": "a", "by_time": "at", "test": 5}, "cannot be combined with `by_time`"),
    ],
)
def test_what_cannot_be_a_split_by_count_is_refused(written, message):
    with pytest.raises(ConfigError) as caught:
        build_stage("split", written)
    assert message in caught.value.what


def test_a_whole_number_written_as_a_float_is_told_how_to_write_it():
    with pytest.raises(ConfigError) as caught:
        build_stage("split", {"test": 1000.0})
    assert "test: 1000" in caught.value.next_step


def test_the_order_in_the_job_decides_nothing():
    one, other = build_stage("split", {"val": 2, "test": 3}), build_stage("split", {"test": 3, "val": 2})
    assert one == other
    assert one.splits() == NAMES
    assert one.describe() == {"sizes": {"test": 3, "val": 2}, "by": ()}


# Whole jobs.


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    for number in range(5):
        columns = {"user": rng.integers(0, 60, 400), "value": rng.random(400), "at": rng.integers(0, 1000, 400)}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet", row_group_size=100)
    return tmp_path


def prepare(folder: Path, stages, output: str = "out", **options) -> penstock.Manifest:
    job = {"input": str(folder / "*.parquet"), "output": str(folder / output), "stages": stages, "workers": 0}
    return penstock.run({**job, "memory": "1GB", "slice_size": "16kB", **options}, progress=False)


def records(manifest) -> dict[str, int]:
    return {split: manifest.records(split) for split in manifest.splits}


def bytes_of(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and ".penstock" not in path.parts]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("format", ["safetensors", "npy", "arrays"])
@pytest.mark.parametrize("normalize", [False, True])
def test_every_format_has_exactly_so_many_rows(data, format, normalize):
    stages = [{"split": {"test": 100, "val": 31}}, *([{"normalize": ["value"]}] if normalize else [])]
    manifest = prepare(data, stages, format=format)
    assert records(manifest) == {"train": 1869, "test": 100, "val": 31}
    assert sum(len(penstock.open(data / "out", split)) for split in NAMES) == 2000
    if normalize:  # by the training rows alone
        values = np.asarray(penstock.open(data / "out", "train")[:]["value"])
        assert values.mean() == pytest.approx(0, abs=1e-4)
        assert values.std() == pytest.approx(1, abs=1e-4)
    assert penstock.verify(data / "out")


@pytest.mark.parametrize("format", ["safetensors", "arrays"])
def test_all_rows_of_a_key_are_in_one_split(data, format):
    prepare(data, [{"split": {"by": "user", "test": 7, "val": 3}}], format=format)
    users = {split: set(penstock.open(data / "out", split)[:]["user"].to_pylist()) for split in NAMES}
    assert [len(users[split]) for split in NAMES] == [50, 7, 3]
    assert len(set().union(*users.values())) == 60


@pytest.mark.parametrize("format", ["safetensors", "arrayrecord"])
def test_behind_group_keys_are_counted_and_not_records(data, format):
    types = {"user": "string", "at": "timestamp[us]", "value": "float32"}
    group = {"group": {"by": "user", "order": "at", "max_record": "200"}}
    cast = {"cast": {"columns": types, "lossy": True}}
    prepare(data, [cast, group, {"split": {"test": 7}}], format=format, slice_size="30kB")
    key = "src_id" if format == "arrayrecord" else "user"
    users = [penstock.open(data / "out", split)[:][key].to_pylist() for split in ("train", "test")]
    assert [len(set(each)) for each in users] == [53, 7]
    assert len(users[1]) > 7
    assert not set(users[0]) & set(users[1])


@pytest.mark.parametrize("written", [{"test": 7}, {"test": 0.2}])
def test_behind_group_by_a_column_called_key_its_records_stay_together(data, written):
    stages = [{"select": {"key": "user", "value": "value"}}, {"group": {"by": "key", "max_record": "200"}}]
    prepare(data, [*stages, {"split": written}], slice_size="30kB")
    train, test = (penstock.open(data / "out", split)[:]["key"].to_pylist() for split in ("train", "test"))
    assert not set(train) & set(test)
    assert written != {"test": 7} or len(set(test)) == 7


def test_only_rows_that_reach_the_split_count(data):
    manifest = prepare(data, [{"filter": "value < 0.1"}, {"split": {"test": 50}}])
    taken = {step.step: step.taken for step in manifest.account}["split"]
    assert records(manifest) == {"train": taken - 50, "test": 50}
    assert taken < 300


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            {"test": 2000},
            r"split: \{test: 2000\} takes all, since 2,000 rows reach the split: nothing is left for train",
        ),
        ({"test": 1500, "val": 600}, r"asks for 2,100, and 2,000 rows reach the split"),
        ({"by": "user", "test": 61}, "asks for 61, and 60 different values of user reach the split"),
    ],
)
def test_more_than_there_is_is_refused_before_the_dataset_is_written(data, written, message):
    with pytest.raises(PlanError, match=message) as caught:
        prepare(data, [{"split": written}])
    assert "ask for fewer, or use shares" in caught.value.next_step
    assert not bytes_of(data / "out")


STAGES = [
    [{"split": {"test": 100, "val": 31}}, {"normalize": ["value"]}],
    [{"filter": "value < 0.7"}, {"split": {"by": "user", "test": 7}}],
    [{"group": {"by": "user", "order": "at"}}, {"split": {"test": 7}}],
]


@pytest.mark.proof
@pytest.mark.parametrize("stages", STAGES)
def test_the_same_bytes_with_any_number_of_workers_and_any_memory(data, stages):
    prepare(data, stages, "inside")
    prepare(data, stages, "one", workers=1, memory="2GB")
    prepare(data, stages, "two", workers=2, strategy="streaming")
    assert bytes_of(data / "inside") == bytes_of(data / "one") == bytes_of(data / "two")


def test_the_rows_of_an_arrays_job_are_those_of_a_job_of_shards(data):
    prepare(data, [{"split": {"test": 100}}], "shards")
    prepare(data, [{"split": {"test": 100}}], "arrays", format="arrays")
    rows = [penstock.open(data / output, "test")[:].to_pydict() for output in ("shards", "arrays")]
    assert rows[0] == rows[1]


def test_a_function_behind_the_split_is_shown_the_first_rows(data):
    def doubled(batch):
        assert batch.num_rows
        return batch.append_column("twice", pa.array(np.asarray(batch["value"]) * 2))

    assert records(prepare(data, [{"split": {"test": 10}}, doubled])) == {"train": 1990, "test": 10}


@pytest.mark.proof
def test_batch_files_that_lie_between_give_the_same_rows(data):
    (data / "own.py").write_text(
        "def samples(path):\n    for n in range(50):\n        yield {'n': n, 'file': path.name}\n"
    )
    job = {
        "input": {"files": str(data / "*.parquet"), "function": "own:samples"},
        "format": "arrays",
        "stages": [{"split": {"test": 40}}],
        "memory": "1GB",
        "workers": 0,
        "provenance": False,  # batch files keep none
    }
    found = []
    for output, more in (("direct", {}), ("merged", {"intermediate_dir": str(data / "between"), "batch_size": 30})):
        (data / "job.json").write_text(json.dumps({**job, "output": output, **more}))
        penstock.run(data / "job.json", progress=False)
        found.append(penstock.open(data / output, "test")[:].to_pydict())
    assert len(found[0]["n"]) == 40
    assert found[0] == found[1]


def test_a_plan_whose_driver_could_not_hold_the_hashes_is_refused_with_the_next_step(tmp_path):
    """Wide tables have many slices of few rows; here are many of many."""
    table = pa.table({"a": pa.array(np.arange(400_000), pa.int64())})
    for number in range(20):
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=1000, compression="none")
    with pytest.raises(PlanError, match="the driver needs") as caught:
        prepare(tmp_path, [{"split": {"test": 100_000}}], memory="150MB", slice_size="8kB")
    assert "smaller counts in `split`, or shares" in caught.value.next_step
