"""Whether a run is at work in an output can be asked at any time, without a lock."""

import os
import socket
import threading

import pytest

from penstock.base.stores import open_store
from penstock.prepare.run.owner import run_at_work

HERE = f"process {os.getpid()} on {socket.gethostname()}, since 2026-01-02 03:04:05, job 0123".encode()


def test_asking_never_refuses_a_run_that_starts(tmp_path):
    store, is_over, answers = open_store(tmp_path), threading.Event(), []

    def ask():
        while not is_over.is_set():
            answers.append(run_at_work(store).is_true)

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(300):
        with store.hold(HERE):
            pass
    is_over.set()
    asking.join()
    assert answers


def test_a_run_is_at_work_while_it_holds_the_output(tmp_path):
    store = open_store(tmp_path)
    assert str(run_at_work(store)) == "no run is at work"
    with store.hold(HERE):
        words = f"process {os.getpid()} on {socket.gethostname()}, since 2026-01-02 03:04:05"
        assert str(run_at_work(store)) == f"a run is at work: {words}"
    assert run_at_work(store).is_true is False  # its words are still in the lock


@pytest.mark.parametrize(
    ("written", "is_at_work"),
    [
        (b"", False),
        (b"something else", False),
        (b"process 4194305 on " + socket.gethostname().encode() + b", since 2026-01-02 03:04:05", False),
        (b"process 1 on another-machine, since 2026-01-02 03:04:05", None),
    ],
)
def test_a_lock_of_the_dead_of_nobody_or_of_another_machine(tmp_path, written, is_at_work):
    store = open_store(tmp_path)
    with store.hold(written):
        pass
    assert run_at_work(store).is_true is is_at_work
