"""Shared folders: what is unfinished there is safe from others, and scratch files stay on this machine."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import penstock
from penstock.base import machine
from penstock.base.errors import ConfigError
from penstock.base.stores import local, open_store
from penstock.base.stores.local import TEMPORARY
from penstock.base.stores.scratch import VARIABLE, Scratch, refuse_scratch
from tests.base.stores.mounting import mounted

MEMORY = Path("/dev/shm")  # a tmpfs of every Linux machine: another file system than that of the tests


# Scratch.


@pytest.mark.thorough
def test_scratch_of_a_local_output_is_beside_it_and_that_of_a_shared_one_on_this_machine(tmp_path):
    (tmp_path / "folder").mkdir()
    here = open_store(str(tmp_path / "folder/out"))
    assert here.scratch_folder == here.where(TEMPORARY)
    with mounted(tmp_path / "folder", tmp_path / "mount") as mount:
        there = open_store(str(mount / "out"))
        assert not there.scratch_folder.startswith(str(mount))
        there.commit_bytes("a", b"x")
        scratch = Scratch(there.scratch_folder)
        scratch.write(os.urandom(3 << 20))
        with there.commit("copied") as file:
            file.copy_range(scratch, 5, 2 << 20)
        assert there.read("copied") == scratch.read_range(5, 2 << 20)
        scratch.close()
        assert there.list() == ["a", "copied"]


def test_a_folder_that_is_named_serves_every_output(tmp_path, monkeypatch):
    (tmp_path / "fast").mkdir()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "fast"))
    refuse_scratch()
    assert open_store(str(tmp_path / "out")).scratch_folder == str(tmp_path / "fast")


@pytest.mark.parametrize(("name", "words"), [("missing", "is not a folder"), ("/dev/shm", "is tmpfs")])
def test_a_named_folder_that_cannot_serve_is_refused(tmp_path, monkeypatch, name, words):
    monkeypatch.setenv(VARIABLE, str(tmp_path / name))
    with pytest.raises(ConfigError, match=words) as caught:
        refuse_scratch()
    assert caught.value.where == str(tmp_path / name)


def test_a_plan_refuses_a_missing_folder_instead_of_making_it(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_text('{"user": 1, "at": 2}\n')
    monkeypatch.setenv(VARIABLE, str(tmp_path / "missing"))
    job = {"input": str(tmp_path / "a.jsonl"), "output": str(tmp_path / "out")}
    with pytest.raises(ConfigError, match="is not a folder"):
        penstock.plan({**job, "stages": [{"group": {"by": "user", "order": "at"}}]})
    assert not (tmp_path / "missing").exists()


def test_a_scratch_file_has_no_name_and_no_other_user_may_read_it(tmp_path):
    scratch = Scratch(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert os.fstat(scratch.fileno()).st_mode & 0o777 == 0o600
    scratch.close()


def test_bytes_are_copied_from_another_file_system(tmp_path):
    store, scratch = open_store(str(tmp_path)), Scratch(str(MEMORY))
    assert os.fstat(scratch.fileno()).st_dev != os.stat(tmp_path).st_dev
    data = os.urandom(3 << 20)
    scratch.write(data)
    with store.commit("a") as file:
        file.copy_range(scratch, 7, len(data) - 7)
    assert store.read("a") == data[7:]
    scratch.close()


# Sweeps.

WRITER = """
import sys
from penstock.base import machine
from penstock.base.stores import open_store
if {boot_id!r} is not None:
    machine.boot_id = lambda: {boot_id!r}
with open_store({root!r}).commit("whole") as file:
    file.write(b"every byte")
    print("open", flush=True)
    sys.stdin.read()
"""


def _writer(root: Path, boot_id: str | None = None) -> subprocess.Popen[bytes]:
    script = WRITER.format(root=str(root), boot_id=boot_id)
    writer = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert writer.stdout
    assert writer.stdout.readline() == b"open\n"
    return writer


def _unfinished(root: Path) -> int:
    return len(list((root / TEMPORARY).glob("*")))


@pytest.mark.thorough
def test_a_container_with_a_mount_of_its_own_keeps_what_another_is_writing(tmp_path):
    """Both have the boot id of their machine, and neither sees the other's lock."""
    (tmp_path / "folder").mkdir()
    with mounted(tmp_path / "folder", tmp_path / "one") as one, mounted(tmp_path / "folder", tmp_path / "two") as two:
        with open_store(str(one)).hold(b"one"):
            writer = _writer(one)
            with open_store(str(two)).hold(b"two, which sees no lock"):
                open_store(str(two)).sweep()
            writer.communicate(b"", timeout=30)
        assert writer.returncode == 0
        assert open_store(str(two)).read("whole") == b"every byte"


@pytest.mark.thorough
def test_what_a_killed_writer_behind_the_same_mount_left_is_swept(tmp_path):
    (tmp_path / "folder").mkdir()
    with mounted(tmp_path / "folder", tmp_path / "one") as one:
        writer = _writer(one)
        writer.kill()
        writer.communicate(timeout=30)
        assert _unfinished(one) == 1
        with open_store(str(one)).hold(b"me"):
            open_store(str(one)).sweep()
        assert _unfinished(one) == 0


@pytest.fixture
def no_boot_id(monkeypatch):
    monkeypatch.setattr(machine, "boot_id", lambda: "")
    local._this_machine.cache_clear()
    yield
    local._this_machine.cache_clear()


@pytest.mark.usefixtures("no_boot_id")
def test_a_machine_without_a_boot_id_keeps_what_others_are_writing(tmp_path):
    """Host names are no proof: many machines are called localhost."""
    writer = _writer(tmp_path, boot_id="")
    store = open_store(str(tmp_path))
    with store.hold(b"me"):
        store.sweep()
        assert _unfinished(tmp_path) == 1
        writer.communicate(b"", timeout=30)
        assert store.read("whole") == b"every byte"
        left = store.where(f"{TEMPORARY}/left-by-a-dead-one")
        os.makedirs(os.path.dirname(left), exist_ok=True)
        for is_old in (False, True):
            Path(left).write_bytes(b"half")
            if is_old:
                os.utime(left, (0, 0))
            store.sweep()
            assert os.path.exists(left) != is_old


@pytest.mark.thorough
def test_files_of_a_shared_folder_are_synced_so_that_another_machine_can_resume(tmp_path):
    (tmp_path / "folder").mkdir()
    with mounted(tmp_path / "folder", tmp_path / "mount") as mount:
        assert open_store(str(mount / "out")).session == ""
    assert open_store(str(tmp_path / "folder/out")).session == machine.boot_id()


# Locks.

HOLDER = """
from penstock.base.errors import OutputError
from penstock.base.stores import open_store
try:
    with open_store({root!r}).hold(b"me"):
        print("held")
except OutputError as error:
    print(error.what, "|", error.where, "|", error.next_step)
"""


@pytest.mark.parametrize("name", ["ENOLCK", "ENOSYS", "EOPNOTSUPP"])
def test_a_file_system_without_locks_is_named_with_what_to_do(tmp_path, name):
    if not shutil.which("strace"):
        pytest.skip("needs strace, which makes the system call fail")
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=flock", "-e", f"inject=flock:error={name}"]
    script = HOLDER.format(root=str(tmp_path))
    done = subprocess.run([*command, sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    what, where, step = done.stdout.strip().split(" | ")
    assert "cannot be locked" in what
    assert errno.errorcode[getattr(errno, name)] in what
    assert where == str(tmp_path)
    assert "-o flock" in step
