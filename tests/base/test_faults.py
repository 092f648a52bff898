"""Faults: what the tests of a failing disk and of a kill stand on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from penstock.base.errors import FileError
from penstock.base.faults import CRASH_EXIT_CODE, CRASH_VARIABLE, Sweep, crash_point, operation, sweeping
from penstock.base.stores import open_store


def test_nothing_is_armed_by_itself():
    assert operation("write", "/x", 7) == 7
    crash_point("commit.before_rename")


def test_a_sweep_sees_every_operation_of_a_commit_and_fails_the_one_it_is_told(tmp_path):
    folder = open_store(str(tmp_path))
    with sweeping(Sweep()) as seen:
        folder.commit_bytes("a", b"data")
    kinds = [kind for kind, _ in seen.operations]
    assert kinds == ["mkdir", "sync", "mkdir", "sync", "open", "write", "sync", "rename", "sync"]
    for number in range(len(kinds)):
        target = open_store(str(tmp_path / f"target-{number}"))
        os.mkdir(target.root)
        with pytest.raises(FileError, match="ENOSPC"), sweeping(Sweep(fail_at=number, error=errno.ENOSPC)):
            target.commit_bytes("a", b"data")
        assert target.list() in ([], ["a"])
        assert number >= kinds.index("rename") + 1 or target.list() == []


def test_a_short_sweep_makes_one_write_take_half(tmp_path):
    folder = open_store(str(tmp_path))
    os.makedirs(folder.scratch_folder)
    with sweeping(Sweep(fail_at=1, short=True)) as seen:
        folder.commit_bytes("a", b"0123456789")
    assert [kind for kind, _ in seen.operations].count("write") == 2
    assert folder.read("a") == b"0123456789"


def test_a_sweep_ends_with_its_block():
    with pytest.raises(OSError, match="Errno 5"), sweeping(Sweep(fail_at=0, error=errno.EIO)):
        operation("read", "/x")
    assert operation("read", "/x", 3) == 3


def test_the_process_that_takes_the_token_dies_at_its_point_and_no_other_does(tmp_path):
    token = tmp_path / "token"
    token.touch()
    program = "from penstock.base.faults import crash_point\ncrash_point('other')\ncrash_point('here')\nprint('lived')"
    environment = {**os.environ, CRASH_VARIABLE: f"here:{token}"}
    runs = [
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
        for _ in range(2)
    ]
    assert [(run.returncode, run.stdout) for run in runs] == [(CRASH_EXIT_CODE, ""), (0, "lived\n")]
