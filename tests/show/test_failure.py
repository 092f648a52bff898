"""An error is one screen: what, where, what to try; a traceback only on demand."""

from __future__ import annotations

import pytest

from penstock.base.errors import Interrupted, PlanError, TaskError
from penstock.show.failure import known_error, message, tell

STACK = 'Current thread 0x2 (most recent call first):\n  File "/home/ann/mine.py", line 7 in wait'
TRACEBACK = "Traceback (most recent call last):\n  File ...\nValueError: no"


def lines(error: TaskError | PlanError, debug: bool = False) -> list[str]:
    return [line.plain for line in message(error, debug)]


def test_a_message_has_what_where_and_the_next_step():
    assert lines(PlanError("it needs 3 GB", where="job.yaml", next_step="memory: 4GB")) == [
        "PlanError: it needs 3 GB",
        "  where: job.yaml",
        "  try: memory: 4GB",
    ]


def test_the_stack_of_a_task_that_hung_is_part_of_the_message():
    error = TaskError("it hung")
    error.add_note("in slice 3")
    error.add_note(STACK)
    assert lines(error) == ["TaskError: it hung", "  note: in slice 3", '  File "/home/ann/mine.py", line 7 in wait']


def test_a_workers_traceback_is_shown_on_demand():
    error = TaskError("it raised")
    error.add_note(TRACEBACK)
    assert lines(error) == ["TaskError: it raised"]
    assert lines(error, debug=True) == ["TaskError: it raised", TRACEBACK]


def test_ctrl_c_outside_a_run_is_an_interruption_and_no_defect():
    assert isinstance(known_error(KeyboardInterrupt()), Interrupted)


def test_a_defect_is_told_in_one_line(capsys):
    assert tell(KeyError("first\nsecond"), as_json=False, debug=False) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("Defect of penstock: KeyError")
    assert len(told) == 2


@pytest.mark.parametrize("debug", [False, True])
def test_as_json_nothing_but_a_traceback_goes_to_stderr(debug, capsys):
    tell(PlanError("it needs 3 GB"), as_json=True, debug=debug)
    assert ("PlanError" in capsys.readouterr().err) is debug


@pytest.mark.parametrize("error", [MemoryError(), MemoryError("malloc of size 9 failed\nmore")])
def test_a_process_without_memory_is_no_defect(error):
    known = known_error(error)
    assert isinstance(known, PlanError)
    assert known.what in ("this process ran out of memory", "this process ran out of memory: malloc of size 9 failed")
