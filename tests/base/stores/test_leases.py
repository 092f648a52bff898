"""Leases: one holder at a time, by the storage's clock; a new generation for each who takes over."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.base.stores.leases import Leases, Renewing
from penstock.base.stores.shared import SharedStore, begin_run, shared_root

TOKEN, LONG, SHORT = "0123456789abcdef", 600.0, 0.2


@pytest.fixture
def folder(tmp_path):
    begin_run(str(tmp_path), TOKEN)
    return tmp_path


def _member(folder, name, seconds=LONG):
    return Leases(SharedStore(shared_root(str(folder), TOKEN, name)), seconds)


def _file(folder, name):
    return folder / ".penstock" / "tmp" / f"run-{TOKEN}" / "leases" / name


def test_a_claim_is_held_by_one(folder):
    a, b = _member(folder, "a"), _member(folder, "b")
    assert a.claim("task")
    assert not b.claim("task")
    assert b.latest() == {"task": 1}
    assert not b.is_expired("task", 1)


def test_of_many_that_race_one_wins(folder):
    racers = [_member(folder, f"m{number}") for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for task in range(50):
            won = list(pool.map(lambda each, task=task: each.claim(f"t{task}"), racers))
            assert won.count(True) == 1
    for task in range(50):  # and of those that take over
        os.utime(_file(folder, f"t{task}.1"), (0, 0))
    with ThreadPoolExecutor(8) as pool:
        for task in range(50):
            won = list(pool.map(lambda each, task=task: each.claim(f"t{task}", 1), racers))
            assert won.count(True) == 1


def test_who_shows_no_life_is_followed_by_the_next_generation_and_finds_out(folder):
    a, b = _member(folder, "a"), _member(folder, "b")
    assert a.claim("task")
    os.utime(_file(folder, "task.1"), (time.time() - LONG - 5,) * 2)
    assert b.is_expired("task", 1)
    assert b.claim("task", 1)
    a.renew()
    b.renew()
    assert (a.take_lost(), b.take_lost()) == ({"task"}, set())
    assert a.take_lost() == set()
    a.settle("task")
    assert b.latest() == {"task": 2}


def test_the_time_of_a_claim_is_its_holders(folder):
    a, b = _member(folder, "a", SHORT), _member(folder, "b", LONG)
    a.claim("task")
    b.claim("other")
    os.utime(_file(folder, "task.1"), (time.time() - 1,) * 2)
    os.utime(_file(folder, "other.1"), (time.time() - 1,) * 2)
    assert b.is_expired("task", 1)
    assert not a.is_expired("other", 1)


@pytest.mark.parametrize("hours", [-1, 1])
def test_only_the_clock_of_the_storage_counts(folder, monkeypatch, hours):
    """A machine whose own clock is an hour away takes no claim too early, and one of a dead holder in time."""
    a, b = _member(folder, "a"), _member(folder, "b")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600 * hours)
    a.claim("task")
    a.renew()
    assert not b.is_expired("task", 1)
    os.utime(_file(folder, "task.1"), (b.now() - LONG - 5,) * 2)
    assert b.is_expired("task", 1)


def test_a_claim_that_is_given_back_is_free_at_once_and_its_number_is_not_given_again(folder):
    a, b = _member(folder, "a"), _member(folder, "b")
    a.claim("task")
    a.give_back()
    assert b.is_expired("task", 1)
    assert not b.claim("task")
    assert b.claim("task", 1)


def test_a_claim_whose_work_is_done_leaves_nothing(folder):
    a = _member(folder, "a")
    a.claim("task")
    a.settle("task")
    assert a.latest() == {}


def test_a_claim_cut_short_by_a_crash_expires_too(folder):
    a = _member(folder, "a")
    _file(folder, "task.1").touch()
    assert not a.is_expired("task", 1)
    os.utime(_file(folder, "task.1"), (0, 0))
    assert a.is_expired("task", 1)


def test_a_thread_shows_life_until_the_end(folder):
    a, b = _member(folder, "a", SHORT), _member(folder, "b")
    with Renewing(a):
        a.claim("task")
        deadline = time.monotonic() + 4 * SHORT
        while time.monotonic() < deadline:
            time.sleep(SHORT / 4)
        a.renew()
        assert a.take_lost() == set()
    assert b.is_expired("task", 1)
