"""Events: each is a line of the log and a call of the observer, in the order they were said."""

from __future__ import annotations

import json
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.events import EVENTS, LIVE, Event
from penstock.base.events.log import EventLog, last_sample
from penstock.base.stores import open_store


def test_an_event_is_logged_and_handed_on(tmp_path):
    folder, seen = open_store(str(tmp_path)), []
    with EventLog(folder, seen.append) as log:
        log.say("task_done", task="é", rows=7)
    with EventLog(folder, None) as log:
        log.say("run_done")
    lines = [json.loads(line) for line in folder.read(EVENTS).splitlines()]
    assert seen == lines[:1]
    assert [line["event"] for line in lines] == ["task_done", "run_done"]
    assert (lines[0]["task"], lines[0]["rows"]) == ("é", 7)
    assert lines[0]["time"] <= lines[1]["time"]


FIELDS = {get_args(each.__annotations__["event"])[0]: each.__annotations__.keys() for each in get_args(Event)}


@pytest.mark.parametrize("workers", [0, 2])
def test_every_event_of_a_run_has_the_documented_fields_and_is_in_the_log(tmp_path, workers):
    for number in range(3):
        pq.write_table(pa.table({"x": [1.0, 2.0, 3.0]}), tmp_path / f"in-{number}.parquet")
    heard = []
    job = {"input": str(tmp_path / "in-*.parquet"), "output": str(tmp_path / "out"), "workers": workers}
    penstock.run({**job, "stages": [{"normalize": {"columns": ["x"]}}]}, observe=heard.append)
    penstock.run({**job, "stages": [{"normalize": {"columns": ["x"]}}]}, observe=heard.append)
    usual = {"start", "pass", "task", "sample", "pass_done", "done", "already_done"}
    assert {event["event"] for event in heard} == usual
    for event in heard:
        assert event.keys() == FIELDS[event["event"]]
    lines = [json.loads(line) for line in (tmp_path / "out" / EVENTS).read_text().splitlines()]
    assert lines == [event for event in heard if event["event"] not in ("sample", "already_done")]


def test_samples_replace_each_other_beside_the_log(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.base.events.log._LIVE_SECONDS", 0.0)
    folder = open_store(str(tmp_path))
    with EventLog(folder, None) as log:
        for memory in range(1000):
            log.sample(memory=memory)
        assert json.loads(folder.read(LIVE))["memory"] == 999
        assert folder.size(EVENTS) == 0
    assert not folder.exists(LIVE)


def test_a_damaged_sample_is_none(tmp_path):
    folder = open_store(str(tmp_path))
    folder.commit_bytes(LIVE, b'{"event": "sa')
    assert last_sample(folder) is None


def test_a_run_that_fails_says_so_in_its_log(tmp_path):
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "in.parquet")

    def stop(event):
        if event["event"] == "pass":
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        penstock.run({"input": str(tmp_path / "in.parquet"), "output": str(tmp_path / "out"), "workers": 0}, stop)
    last = json.loads((tmp_path / "out" / EVENTS).read_text().splitlines()[-1])
    assert last.keys() == FIELDS["failed"]
    assert last["what"] == "ValueError: mine"
