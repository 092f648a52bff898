"""Watch: a worker tells of itself while it has a task, through a real connection."""

import multiprocessing
import time

import numpy as np
import pytest

from penstock.prepare.engines.watch import Watch
from penstock.show.failure import working_stack


@pytest.fixture
def line():
    ours, theirs = multiprocessing.Pipe()
    with ours, theirs:
        yield ours, theirs


def _heard(connection, kind, seconds=20.0):
    """The next message of its kind."""
    deadline = time.monotonic() + seconds
    while connection.poll(max(0.0, deadline - time.monotonic())):
        message = connection.recv()
        if message[0] == kind:
            return message
    raise AssertionError(f"no {kind}")


def test_inside_a_function_with_a_limit_it_says_what_it_holds_and_what_it_came_to_hold(line):
    ours, theirs = line
    with Watch(theirs, stall_notice=60.0, limit=1) as watch:
        watch.report(0, "file.json")
        assert _heard(ours, "place")[1] == "file.json"
        before = _heard(ours, "holds")[1]
        hog = np.ones(10_000_000)
        _heard(ours, "holds")  # perhaps on its way before the array was there
        assert _heard(ours, "holds")[1] > before + hog.nbytes / 2


@pytest.mark.parametrize(("limit", "place"), [(0, "file.json"), (1, "")])
def test_without_a_limit_or_outside_a_function_it_says_nothing_of_memory(line, limit, place):
    ours, theirs = line
    with Watch(theirs, stall_notice=0.3, limit=limit) as watch:
        watch.report(0, place)
        _heard(ours, "stall")
    kinds = []
    while ours.poll(0):
        kinds.append(ours.recv()[0])
    assert "holds" not in kinds


def _stand_still(connection):
    return _heard(connection, "stall")


def test_a_task_that_stands_still_is_told_once_with_the_stack_of_its_thread(line):
    ours, theirs = line
    with Watch(theirs, stall_notice=0.2, limit=0) as watch:
        shown = working_stack(_stand_still(ours)[1])
        assert "in _stand_still" in shown
        assert "in _look" not in shown  # its own thread does no work
        assert not ours.poll(0.5)
        watch.report(1)
        _stand_still(ours)  # it moved, and stands still again


def test_rows_are_told_now_and_then_and_nothing_after_the_task(line):
    ours, theirs = line
    with Watch(theirs, stall_notice=60.0, limit=1) as watch:
        watch.report(3)
        assert not ours.poll(0)
        time.sleep(0.25)
        watch.report(5)
        assert _heard(ours, "progress") == ("progress", 5)
        watch.report(5, "file.json")
    while ours.poll(0):
        ours.recv()
    assert not ours.poll(0.3)
