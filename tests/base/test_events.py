"""Events: each is a line of the log and a call of the observer, in the order they were said."""

from __future__ import annotations

import json

from penstock.base.events import EVENTS, EventLog
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
