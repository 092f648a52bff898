"""Promise 4: in = out + set aside by reason, with broken files among good ones; nothing is skipped in silence."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from tests.promises import workshop

GOOD_ROWS = 6000


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Two good files, and one of each way a Parquet file can be broken."""
    data = workshop.make_input(tmp_path / "data", files=2, rows=GOOD_ROWS)
    whole = (data / "part-0.parquet").read_bytes()
    (data / "broken-empty.parquet").write_bytes(b"")
    (data / "broken-truncated.parquet").write_bytes(whole[: len(whole) // 2])
    (data / "broken-page.parquet").write_bytes(_with_damaged_row_group(data / "part-1.parquet", group=2))
    pq.write_table(workshop.make_rows(100, 1).drop_columns(["rtt"]), data / "other-columns.parquet")
    (data / "not-parquet.parquet").write_text("src,rtt\n1,2\n")
    return data


def _with_damaged_row_group(path: Path, group: int) -> bytes:
    """The file with 200 bytes overwritten inside one row group's first column."""
    column = pq.read_metadata(path).row_group(group).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 200] = b"\xff" * 200
    return bytes(data)


def _steps(output: Path) -> dict[str, dict[str, Any]]:
    account = json.loads((output / "manifest.json").read_text())["account"]
    for step in account:
        assert step["taken"] == step["given"] + sum(step["set_aside"].values()), step
    for before, after in itertools.pairwise(account[1:]):  # files are another thing than what is read of them
        assert after["taken"] == (sum(before["made"].values()) or before["given"]), after
    return {step["step"]: step for step in account}


def _rejected(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted((output / "rejected").glob("*.jsonl")) for line in path.open()]


def test_broken_files_among_good_ones_are_set_aside_by_name(mixed, tmp_path):
    job = workshop.write_job(tmp_path / "job.yaml", mixed, on_bad_input="set_aside")
    penstock.run(job)
    steps = _steps(tmp_path / "out")
    assert steps["files"] == {
        "step": "files",
        "unit": "files",
        "taken": 7,
        "given": 3,
        "set_aside": {"other columns than the first file": 1, "unreadable file": 3},
        "made": {},
    }
    assert steps["read"]["taken"] == 3 * GOOD_ROWS
    assert steps["read"]["set_aside"] == {"unreadable row group": 1500}
    rejected = {line["file"]: line for line in _rejected(tmp_path / "out")}
    assert set(rejected) == {
        "broken-empty.parquet",
        "broken-page.parquet",
        "broken-truncated.parquet",
        "not-parquet.parquet",
        "other-columns.parquet",
    }
    assert all(line["reason"] and line["detail"] for line in rejected.values())
    assert rejected["broken-page.parquet"]["row_group"] == 2
    assert rejected["broken-page.parquet"]["position"] == 3000


def test_every_good_row_arrives_exactly_once_and_unchanged(tmp_path):
    data = workshop.make_input(tmp_path / "data")
    penstock.run(workshop.write_job(tmp_path / "job.yaml", data, stages=[{"split": {"test": 0.3}}], workers=0))
    written = pa.concat_tables([penstock.open(tmp_path / "out", split)[:] for split in ("train", "test")])
    given = pa.concat_tables([pq.read_table(path) for path in sorted(data.iterdir())])
    assert _sorted(written) == _sorted(given)


def _sorted(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


@pytest.mark.parametrize("bad", ["broken-empty", "broken-truncated", "broken-page", "other-columns", "not-parquet"])
def test_by_default_a_broken_file_stops_the_run_and_is_named(mixed, tmp_path, bad):
    for path in mixed.glob("*-*.parquet"):
        if not path.name.startswith(("part-", bad)):
            path.unlink()
    if bad == "other-columns":  # the first file decides, so the odd one must not be first
        (mixed / "other-columns.parquet").rename(mixed / "z-other-columns.parquet")
    workers = 2 if bad == "broken-page" else 0  # the others are met by the plan, before there are workers
    done = workshop.run(workshop.write_job(tmp_path / "job.yaml", mixed, workers=workers))
    assert done.returncode == 4, done.stderr
    error = json.loads(done.stdout)
    assert bad in error["where"]
    assert "on_bad_input: set_aside" in error["next_step"]
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_bad_lines_of_text_are_kept_with_their_place_and_reason(tmp_path):
    lines = [json.dumps({"a": number, "b": "x" * (number % 50)}) for number in range(5000)]
    lines[1234] = '{"a": 1, "b": '
    lines[2345] = '{"a": "seven", "b": "x"}'
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    keys = {"stages": [], "on_bad_input": "set_aside", "workers": 0}
    penstock.run(workshop.write_job(tmp_path / "job.yaml", tmp_path / "rows.jsonl", **keys))
    assert _steps(tmp_path / "out")["read"] == {
        "step": "read",
        "unit": "rows",
        "taken": 5000,
        "given": 4998,
        "set_aside": {"not a valid record": 2},
        "made": {},
    }
    assert [line["raw"] for line in _rejected(tmp_path / "out")] == [lines[1234], lines[2345]]
    assert len(penstock.open(tmp_path / "out")) == 4998


def test_filtered_rows_are_counted_and_kept_only_by_option(tmp_path):
    data = workshop.make_input(tmp_path / "data", files=1)
    expected = sum(1 for size in workshop.make_rows(GOOD_ROWS, 0)["size"].to_pylist() if not size > 700)
    for keep in (False, True):
        stages = [{"filter": {"where": "size > 700", "keep": keep}}]
        penstock.run(workshop.write_job(tmp_path / str(keep) / "job.yaml", data, stages=stages, workers=0))
        output = tmp_path / str(keep) / "out"
        assert _steps(output)["filter"]["set_aside"] == {"size > 700": expected}
        assert len(_rejected(output)) == (expected if keep else 0)


def test_no_rows_at_all_is_a_valid_dataset(tmp_path):
    data = workshop.make_input(tmp_path / "data", files=1)
    penstock.run(workshop.write_job(tmp_path / "job.yaml", data, stages=[{"filter": "size > 99999"}], workers=0))
    assert len(penstock.open(tmp_path / "out")) == 0
    assert penstock.open(tmp_path / "out")[:].num_rows == 0
    assert penstock.verify(tmp_path / "out").ok


# Events: those that are in records, counted in the data itself, and those set aside.


@pytest.mark.core
@pytest.mark.parametrize("format_name", ["safetensors", "npy", "arrayrecord"])
def test_every_event_is_in_one_record_or_set_aside(tmp_path, format_name):
    data = workshop.make_event_input(tmp_path / "data")
    (data / "part-9.parquet").write_bytes(_with_damaged_row_group(data / "part-1.parquet", group=1))
    keys = {"format": format_name, "on_bad_input": "set_aside", "workers": 1 if format_name == "safetensors" else 0}
    penstock.run(workshop.write_events_job(tmp_path / "job.yaml", data, **keys))
    steps = _steps(tmp_path / "out")
    splits = {split: list(workshop.events_of(tmp_path / "out", split)) for split in ("train", "test")}
    records = [record for found in splits.values() for record in found]
    events = sum(len(times) for _, times, _ in records)
    assert (steps["read"]["unit"], steps["read"]["taken"]) == ("events", 4 * 2500)
    assert steps["read"]["set_aside"] == {"unreadable row group": 800}
    assert set(steps["group"]["set_aside"]) == {"null key"}
    aside = sum(sum(step["set_aside"].values()) for step in steps.values() if step["unit"] == "events")
    assert events + aside == 4 * 2500
    assert events == steps["group"]["given"]
    assert len(records) == steps["group"]["made"]["records"] == steps["write"]["given"]
    null_keys = [line for line in _rejected(tmp_path / "out") if line["reason"] == "null key"]
    assert len(null_keys) == steps["group"]["set_aside"]["null key"] > 0
    keys = [{key for key, _, _ in found} for found in splits.values()]
    assert keys[0] & keys[1] == set(), "a key is in both splits"


def test_every_event_is_the_one_that_was_read(tmp_path):
    data = workshop.make_event_input(tmp_path / "data")
    group = {"group": {"by": "src", "order": "time", "null_keys": "group", "max_record": "4kB"}}
    penstock.run(workshop.write_events_job(tmp_path / "job.yaml", data, stages=[group], workers=0))
    table = penstock.open(tmp_path / "out")[:]
    written = []
    for record in table.to_pylist():
        columns = [record[name] for name in table.column_names if name != "src"]
        assert record["time"] == sorted(record["time"])
        written += [(record["src"], *event) for event in zip(*columns, strict=True)]
    given = pa.concat_tables([pq.read_table(path) for path in sorted(data.iterdir())]).to_pylist()
    assert sorted(map(repr, written)) == sorted(repr(tuple(row.values())) for row in given)


@pytest.mark.thorough
def test_an_arrayrecord_file_holds_the_same_events_for_any_reader(tmp_path):
    """Read with array_record and pyarrow alone, as the people who have readers for it do."""
    data = workshop.make_event_input(tmp_path / "data")
    for format_name in ("safetensors", "arrayrecord"):
        job = workshop.write_events_job(tmp_path / format_name / "job.yaml", data, format=format_name, workers=0)
        penstock.run(job)
    assert _steps(tmp_path / "safetensors" / "out") == _steps(tmp_path / "arrayrecord" / "out")
    for split in ("train", "test"):
        native = list(workshop.events_of(tmp_path / "safetensors" / "out", split))
        foreign = list(workshop.events_of(tmp_path / "arrayrecord" / "out", split))
        assert len(native) > 20
        assert native == foreign


def test_no_events_at_all_is_a_valid_dataset_in_both_formats(tmp_path):
    data = workshop.make_event_input(tmp_path / "data", files=1)
    for format_name in ("safetensors", "arrayrecord"):
        stages = [{"filter": "rtt > 99999"}, *workshop.EVENT_STAGES[1:]]
        keys = {"stages": stages, "format": format_name, "workers": 0}
        job = workshop.write_events_job(tmp_path / format_name / "job.yaml", data, **keys)
        penstock.run(job)
        assert _steps(job.parent / "out")["write"]["given"] == 0
        assert penstock.verify(job.parent / "out").ok
        assert list(workshop.events_of(job.parent / "out", "train")) == []
