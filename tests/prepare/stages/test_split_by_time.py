"""Split by time: `split: {by_time: at, test: "2024-06-01"}`."""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import penstock
from penstock.base.errors import ConfigError, InputError
from penstock.cli import main
from penstock.prepare.stages import build_stage
from tests.prepare.stages.rows import checked_stage, make_rows

JUNE = "2024-06-01"
BORDER = [datetime(2024, 5, 31, 23, 59, 59, 999999), datetime(2024, 6, 1), datetime(2024, 6, 1, 0, 0, 0, 1)]


def splits_of(written, times) -> list[str]:
    rows = make_rows({"at": times})
    stage = checked_stage("split", written, rows)
    return [stage.splits()[number] for number in stage(rows).splits]


@pytest.mark.parametrize(
    ("times", "boundary"),
    [
        (pa.array(BORDER, pa.timestamp("us")), JUNE),
        (pa.array(BORDER, pa.timestamp("us")), "2024-06-01 00:00:00"),
        (pa.array(BORDER, pa.timestamp("us")), date(2024, 6, 1)),
        (pa.array(BORDER, pa.timestamp("us")), datetime(2024, 6, 1)),
        (pa.array(BORDER, pa.timestamp("us", "UTC")), JUNE),
        (pa.array(BORDER, pa.timestamp("us", "Europe/Berlin")), JUNE),
        (pa.array(BORDER, pa.timestamp("us", "Europe/Berlin")), "2024-06-01T02:00:00+02:00"),
        (pa.array([date(2024, 5, 31), date(2024, 6, 1), date(2024, 6, 2)]), JUNE),
        (pa.array([date(2024, 5, 31), date(2024, 6, 1), date(2024, 6, 2)], pa.date64()), JUNE),
        (pa.array([1717199999, 1717200000, 1717200001]), 1717200000),
        (pa.array([1717199999, 1717200000, 1717200001], pa.uint32()), 1717200000),
        (pa.array([1717199999.5, 1717200000.0, 1717200000.5]), 1717200000),
        (pa.array([Decimal("9.99"), Decimal("10.00"), Decimal("10.01")]), 10),
        (pa.array([Decimal("0.19"), Decimal("0.20"), Decimal("0.21")]), 0.2),
    ],
)
def test_rows_from_the_time_on_are_test_and_earlier_ones_train(times, boundary):
    assert splits_of({"by_time": "at", "test": boundary}, times) == ["train", "test", "test"]


def test_nanoseconds_are_not_rounded():
    last = int(np.datetime64("2024-06-01", "ns").astype("i8")) - 1
    times = pa.array([last, last + 1], pa.timestamp("ns"))
    assert splits_of({"by_time": "at", "test": JUNE}, times) == ["train", "test"]


def test_each_split_ends_where_the_next_begins_whatever_their_order_in_the_job():
    days = pa.array([date(2024, month, 1) for month in (4, 5, 6, 7)])
    one = {"by_time": "at", "validation": "2024-05-01", "test": JUNE}
    other = {"test": JUNE, "validation": "2024-05-01", "by_time": "at"}
    assert splits_of(one, days) == ["train", "validation", "test", "test"]
    assert splits_of(other, days) == splits_of(one, days)
    assert build_stage("split", one) == build_stage("split", other)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"by_time": "at"}, "name at least one split and the time at which it begins"),
        ({"by_time": "at", "train": JUNE}, "'train' cannot be a split's name"),
        ({"by_time": "at", "by": "user", "test": JUNE}, "by: it cannot be combined with"),
        ({"by_time": "at", "seed": 1, "test": JUNE}, "seed: it cannot be combined with"),
        ({"by_time": ["at"], "test": JUNE}, "by_time"),
        ({"by_time": "at", "test": float("nan")}, "test: nan is not a time"),
        ({"by_time": "at", "test": True}, "test: True is not a time"),
        ({"by_time": "at", "test": None}, "test: None is not a time"),
        ({"by_time": "at", "test": [JUNE]}, "is not a time at which a split can begin"),
        ({"by_time": ["at", "day"], "test": JUNE}, "by_time: expected a string"),
        ({"by_time": "at", "test": float("inf")}, "test: inf is not a time"),
    ],
)
def test_what_cannot_be_a_split_by_time_is_refused(written, message):
    with pytest.raises(ConfigError) as caught:
        build_stage("split", written)
    assert message in caught.value.what


@pytest.mark.parametrize(
    ("kind", "boundary", "message", "advice"),
    [
        (pa.timestamp("us"), "June", "'June' is not", "2024-06-01"),
        (pa.timestamp("us"), 1.5, "1.5 is not", "2024-06-01"),
        (pa.timestamp("us"), "2024-06-01T00:00:00Z", "has no zone", "2024-06-01"),
        (pa.timestamp("us"), "2024-06-01T00:00:00.123456789", "is not", "2024-06-01"),
        (pa.date32(), "2024-06-01T12:00:00", "a day without a time is needed", "2024-06-01"),
        (pa.int64(), JUNE, "a number is needed", "cast: {at: 'timestamp[s]'}"),
        (pa.int64(), 0.5, "a whole number is needed", "unit of the column"),
        (pa.int8(), 300, "is not", "unit of the column"),
        (pa.string(), JUNE, "not a time, a day or a number", "cast: {at: 'timestamp[us]'}"),
        (pa.time32("s"), "12:00:00", "not a time, a day or a number", "cast"),
        (pa.list_(pa.timestamp("us")), JUNE, "both sides of a boundary", "`filter: at < 2024-06-01`"),
    ],
)
def test_a_column_or_boundary_that_does_not_fit_is_refused_with_the_next_step(kind, boundary, message, advice):
    stage = build_stage("split", {"by_time": "at", "test": boundary})
    with pytest.raises(ConfigError) as caught:
        stage.output_schema(pa.schema([("at", kind)]), None)
    assert message in caught.value.what
    assert advice in caught.value.next_step


def test_the_conditions_of_the_next_step_can_be_copied_into_a_job():
    stage = build_stage("split", {"by_time": "seen at", "test": JUNE})
    with pytest.raises(ConfigError) as caught:
        stage.output_schema(pa.schema([("seen at", pa.list_(pa.timestamp("us")))]), None)
    first, second = re.findall(r"`(filter: '.*?')`(?= and| before)", caught.value.next_step)
    conditions = [build_stage("filter", yaml.safe_load(each)["filter"]) for each in (first, second)]
    for condition in conditions:
        condition.output_schema(pa.schema([("seen at", pa.timestamp("us"))]), None)
    assert [each.where for each in conditions] == [("`seen at` < 2024-06-01",), ("`seen at` >= 2024-06-01",)]


def test_two_splits_that_begin_together_are_refused():
    stage = build_stage("split", {"by_time": "at", "a": JUNE, "b": "2024-06-01T00:00:00"})
    with pytest.raises(ConfigError, match="a and b begin at the same time"):
        stage.output_schema(pa.schema([("at", pa.timestamp("s"))]), None)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    times = [datetime(2024, month, day, 12) for month in range(1, 13) for day in range(1, 29)]
    table = pa.table({"at": pa.array(times, pa.timestamp("ms")), "user": [n % 7 for n in range(len(times))]})
    for number in range(4):
        pq.write_table(table.slice(number * 84, 84), tmp_path / f"{number}.parquet")
    return tmp_path


def prepare(folder: Path, written, stages=(), **options) -> penstock.Manifest:
    job = {"input": str(folder / "*.parquet"), "output": str(folder / "out"), "stages": [*stages, {"split": written}]}
    return penstock.run({**job, "memory": "1GB", "workers": 0, **options}, progress=False)


@pytest.mark.parametrize("format", ["safetensors", "arrays"])
def test_a_dataset_is_divided_at_the_boundaries(events, format):
    prepare(events, {"by_time": "at", "validation": "2024-05-01", "test": JUNE}, format=format)
    spans = {}
    for split in ("train", "validation", "test"):
        times = penstock.open(events / "out", split)[:]["at"].to_pylist()
        spans[split] = (min(times).month, max(times).month, len(times))
    assert spans == {"train": (1, 4, 112), "validation": (5, 5, 28), "test": (6, 12, 196)}


def test_a_row_without_a_time_is_bad_input(events):
    pq.write_table(pa.table({"at": pa.array([None], pa.timestamp("ms")), "user": [9]}), events / "4.parquet")
    with pytest.raises(InputError, match="no time to split by: column 'at' is null") as caught:
        prepare(events, {"by_time": "at", "test": JUNE})
    assert "`filter: at is not null`" in caught.value.next_step
    assert "4.parquet, row 0" in caught.value.where
    manifest = prepare(events, {"by_time": "at", "test": JUNE}, on_bad_input="set_aside")
    assert {step.step: step.set_aside for step in manifest.account}["split"] == {"no time to split by": 1}
    (line,) = (events / "out" / manifest.rejected[0].file).read_text().splitlines()
    assert json.loads(line)["row"]["user"] == 9


def test_nan_is_no_time():
    rows = make_rows({"at": [1.0, float("nan"), None, 3.0]})
    divided = checked_stage("split", {"by_time": "at", "test": 2}, rows)(rows)
    assert divided.splits.tolist() == [0, 1]
    assert [line["detail"] for line in divided.set_aside[0].kept] == ["column 'at' is NaN", "column 'at' is null"]


def test_the_condition_that_is_proposed_leaves_out_nan_and_null(events):
    for file in events.iterdir():
        file.unlink()
    pq.write_table(pa.table({"at": [1.0, float("nan"), None, 3.0]}), events / "1.parquet")
    with pytest.raises(InputError, match="column 'at' is NaN") as caught:
        prepare(events, {"by_time": "at", "test": 2})
    condition = re.search("`filter: (.*?)`", caught.value.next_step)[1]
    manifest = prepare(events, {"by_time": "at", "test": 2}, [{"filter": condition}])
    assert (manifest.records("train"), manifest.records("test")) == (1, 1)


def test_behind_group_a_key_of_days_divides_records(events):
    stages = [{"cast": {"at": "date32"}}, {"group": {"by": ["user", "at"]}}]
    with pytest.raises(InputError):  # noon is no day
        prepare(events, {"by_time": "at", "test": JUNE}, stages)
    stages[0] = {"cast": {"columns": {"at": "date32"}, "lossy": True}}
    manifest = prepare(events, {"by_time": "at", "test": JUNE}, stages)
    assert (manifest.records("train"), manifest.records("test")) == (140, 196)


def test_behind_group_the_times_of_events_are_refused(events):
    with pytest.raises(ConfigError, match=r"stages\[1\].split: by_time: column 'at' is list<"):
        prepare(events, {"by_time": "at", "test": JUNE}, [{"group": {"by": "user", "order": "at"}}])


def test_a_job_file_may_write_the_day_without_quotes(events):
    job = events / "job.yaml"
    job.write_text("input: '*.parquet'\noutput: out\nstages:\n  - split: {by_time: at, test: 2024-06-01}\n")
    unquoted = penstock.run(job, progress=False)
    job.write_text(job.read_text().replace(JUNE, f"'{JUNE}'"))
    assert penstock.run(job, progress=False) == unquoted


def test_the_words_about_an_empty_split_name_its_time(events, capfd):
    job = {"input": str(events / "*.parquet"), "output": str(events / "out"), "memory": "1GB", "workers": 0}
    written = {**job, "stages": [{"split": {"by_time": "at", "test": "2034-06-01"}}]}
    (events / "job.yaml").write_text(yaml.safe_dump(written))
    assert main(["run", str(events / "job.yaml")]) == 0
    assert "test: no record came into it; no row has such a time" in " ".join(capfd.readouterr().out.split())
