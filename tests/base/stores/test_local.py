"""Local store: a file appears whole or not at all, and everything unfinished lies where it can be swept."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import FileError, OutputError
from penstock.base.faults import CRASH_EXIT_CODE, CRASH_VARIABLE, Sweep, sweeping
from penstock.base.files import WriteFile
from penstock.base.stores import open_store
from penstock.base.stores.local import LOCK, TEMPORARY
from penstock.base.stores.scratch import borrow_scratch


@pytest.fixture
def folder(tmp_path):
    return open_store(str(tmp_path / "out"))


def test_a_committed_file_has_every_byte_and_leaves_nothing_beside_it(folder):
    with folder.commit("train/00000.bin") as file:
        file.write(b"one ")
        file.write(memoryview(b"two"))
        assert folder.list() == [file.path.removeprefix(folder.root + "/")]
        assert folder.list(TEMPORARY) == folder.list()
    assert folder.list() == ["train/00000.bin"]
    assert folder.read("train/00000.bin") == b"one two"
    assert folder.size("train/00000.bin") == 7


def test_a_commit_that_raises_leaves_nothing_and_keeps_what_was_there(folder):
    folder.commit_bytes("a", b"old")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), folder.commit("a") as file:
            write_and_raise(file, error)
        assert folder.list() == ["a"]
        assert folder.read("a") == b"old"


def write_and_raise(file: WriteFile, error: type[BaseException]) -> None:
    file.write(b"half of the n")
    raise error


def test_a_commit_replaces_the_file_of_an_earlier_attempt(folder):
    folder.commit_bytes("a", b"first, and longer")
    folder.commit_bytes("a", b"second")
    assert folder.read("a") == b"second"


@pytest.mark.parametrize("point", ["commit.before_sync", "commit.before_rename", "commit.after_rename"])
def test_a_kill_inside_a_commit_leaves_its_leftover_in_the_temporary_folder_alone(tmp_path, point):
    token = tmp_path / "token"
    token.touch()
    store = f"open_store({str(tmp_path / 'out')!r})"
    program = f"from penstock.base.stores import open_store; {store}.commit_bytes('a', b'data')"
    environment = {**os.environ, CRASH_VARIABLE: f"{point}:{token}"}
    died = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert died.returncode == CRASH_EXIT_CODE
    folder = open_store(str(tmp_path / "out"))
    folder.sweep()
    assert folder.list() == (["a"] if point == "commit.after_rename" else [])


AS_PROCESS_1 = """
import os, sys
from penstock.base.stores import open_store
os.getpid = lambda: 1
with open_store({!r}).commit("a") as file:
    file.write(b"whole")
    print("open", flush=True)
    sys.stdin.read()
"""


def test_two_containers_whose_processes_have_one_number_write_the_same_file_at_once(folder):
    command = [sys.executable, "-c", AS_PROCESS_1.format(folder.root)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
    assert [each.stdout.readline() for each in both] == [b"open\n", b"open\n"]
    for each in both:
        each.communicate(timeout=30)
    assert [each.returncode for each in both] == [0, 0]
    assert (folder.list(), folder.read("a")) == (["a"], b"whole")


def test_a_sweep_spares_what_another_machine_may_still_be_writing(folder):
    with folder.commit("a") as file:
        own = os.path.basename(file.path)
    living, dead = "0" * 12 + own[12:], "1" * 12 + own[12:]
    for name in (own, living, dead):
        with open(os.path.join(folder.scratch_folder, name), "w") as left:
            left.write("half a file")
    with folder.hold(b"me"):
        os.utime(left.name, (0, 0))  # nobody has written to it for an hour
        folder.sweep()
        assert folder.list(TEMPORARY) == [f"{TEMPORARY}/{living}"]
        os.utime(os.path.join(folder.scratch_folder, living), (0, 0))
        folder.sweep()
    assert folder.list() == [LOCK, "a"]


def test_a_file_with_a_very_long_name_is_committed(folder):
    folder.commit_bytes(f"deep/{'n' * 250}.npy", b"x")
    assert folder.list() == [f"deep/{'n' * 250}.npy"]


def test_entries_are_what_lies_directly_in_a_folder_and_nothing_unfinished(folder):
    assert folder.entries() == []
    for name in ("b/c/d", "a", ".penstock/tasks/1"):
        folder.commit_bytes(name, b"x")
    assert folder.entries() == [".penstock/", "a", "b/"]
    assert folder.entries("b") == ["b/c/"]
    assert folder.entries(".penstock") == [".penstock/tasks/"]
    assert folder.entries("a") == []


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.integers(0, 12))
def test_a_write_that_takes_a_part_is_gone_on_with(tmp_path_factory, pieces, short_at):
    folder = open_store(str(tmp_path_factory.mktemp("short")))
    with sweeping(Sweep(fail_at=short_at, short=True)), folder.commit("a") as file:
        for piece in pieces:
            file.write(piece)
    assert folder.read("a") == b"".join(pieces)
    assert file.size == len(b"".join(pieces))


def test_names_are_listed_in_bytewise_order_whatever_the_disks_own(folder):
    names = ["b", "B", "a/z", "a-z", "a/é", "ab", "a/z2", "é", "a/\U0001f600", "a/\uffff"]
    for name in names:
        folder.commit_bytes(name, b"x")
    assert folder.list() == sorted(names, key=lambda name: name.encode())
    assert folder.list("a") == sorted([name for name in names if name.startswith("a/")], key=lambda name: name.encode())
    assert folder.list("nowhere") == []


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_an_empty_one(folder):
    folder.commit_bytes("a/b", b"x")
    with pytest.raises(FileError, match="cannot list"), sweeping(Sweep(fail_at=0, error=errno.EIO)):
        folder.list()


def test_remove_takes_files_and_folders_and_minds_nothing_missing(folder):
    folder.commit_bytes("a/b", b"x")
    folder.commit_bytes("c", b"x")
    folder.remove("a")
    folder.remove("c")
    folder.remove("never there")
    assert folder.list() == []


def test_a_range_is_read_and_what_is_not_there_is_named(folder):
    folder.commit_bytes("a", b"0123456789")
    assert folder.read_range("a", 3, 4) == b"3456"
    assert folder.read_range("a", 8, 40) == b"89"
    assert (folder.size("a"), folder.size("b"), folder.exists("b")) == (10, -1, False)
    with pytest.raises(FileError) as caught:
        folder.read("b")
    assert caught.value.where == folder.local_path("b")
    assert "ENOENT" in caught.value.what


def test_a_mapped_file_is_its_bytes(folder):
    folder.commit_bytes("a", b"0123456789")
    with folder.map("a") as mapped:
        assert mapped[:] == b"0123456789"


@pytest.mark.parametrize("kernel_copies", [True, False], ids=["inside the kernel", "by hand"])
def test_ranges_of_another_file_are_copied_whole(folder, monkeypatch, kernel_copies):
    if not kernel_copies:
        monkeypatch.setattr(os, "copy_file_range", refuse(errno.EXDEV), raising=False)
    data = os.urandom(3 << 20)
    source = borrow_scratch(folder.scratch_folder)
    source.write(data)
    with folder.commit("b") as file:
        file.write(b"head")
        file.copy_range(source, 1000, 2 << 20)
        file.copy_range(source, 7, 0)
        file.copy_range(source, 0, 10)
    assert folder.read("b") == b"head" + data[1000 : 1000 + (2 << 20)] + data[:10]
    assert file.size == folder.size("b")


@pytest.mark.parametrize("kernel_copies", [True, False], ids=["inside the kernel", "by hand"])
def test_a_source_that_ends_too_early_is_named(folder, monkeypatch, kernel_copies):
    if not kernel_copies:
        monkeypatch.setattr(os, "copy_file_range", refuse(errno.EINVAL), raising=False)
    source = borrow_scratch(folder.scratch_folder)
    source.write(b"0123456789")
    with pytest.raises(FileError) as caught, folder.commit("b") as file:
        file.copy_range(source, 5, 6)
    assert f"{source.path} ends before byte 11" in caught.value.what
    assert folder.list() == []


PIECES = st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=100)), max_size=6)


@given(PIECES, st.integers(0, 12), st.booleans())
def test_a_placed_file_has_its_size_from_the_start_and_each_piece_where_it_was_put(
    tmp_path_factory, pieces, short_at, anew
):
    folder = open_store(str(tmp_path_factory.mktemp("placed")))
    expected = bytearray(500)
    with sweeping(Sweep(fail_at=short_at, short=True)):
        file = folder.place("deep/placed", 500)
        assert folder.size("deep/placed") == 500
        for start, data in pieces:
            if anew:  # another process opens it too, and loses nothing
                file.close()
                file = folder.place("deep/placed", 500)
            file.write_at(start, data)
            expected[start : start + len(data)] = data
        assert b"".join(file.read_at(start, 50) for start in range(0, 500, 50)) == expected
    file.sync()
    file.close()
    file.close()
    assert folder.read("deep/placed") == expected


@pytest.mark.parametrize("refusal", [0, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_ranges_are_copied_to_their_place_inside_the_kernel_or_by_hand(folder, monkeypatch, refusal):
    if refusal:
        monkeypatch.setattr(os, "copy_file_range", refuse(refusal), raising=False)
    data = os.urandom(3 << 20)
    folder.commit_bytes("a", data)
    file = folder.place("b", 10 + (2 << 20))
    with folder.open("a") as source, sweeping(Sweep(fail_at=0, short=True)):
        file.copy_at(10, source, 1000, 2 << 20)
        file.copy_at(0, source, 0, 10)
        file.copy_at(5, source, 0, 0)
    file.close()
    assert folder.read("b") == data[:10] + data[1000 : 1000 + (2 << 20)]


def test_a_file_system_without_the_call_copies_by_hand(folder, monkeypatch):
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    folder.commit_bytes("a", b"0123456789")
    file = folder.place("b", 6)
    with folder.open("a") as source:
        file.copy_at(2, source, 3, 4)
    file.close()
    assert folder.read("b") == b"\0\x003456"


@pytest.mark.parametrize("kernel_copies", [True, False], ids=["inside the kernel", "by hand"])
def test_a_copy_that_fails_names_the_target_and_one_that_ends_early_the_source(folder, monkeypatch, kernel_copies):
    if not kernel_copies:
        monkeypatch.setattr(os, "copy_file_range", refuse(errno.EINVAL), raising=False)
    folder.commit_bytes("a", b"0123456789")
    file = folder.place("b", 100)
    with folder.open("a") as source:
        with pytest.raises(FileError, match="a ends before byte 11"):
            file.copy_at(0, source, 5, 6)
        with pytest.raises(FileError, match="ENOSPC") as caught, sweeping(Sweep(fail_at=0, error=errno.ENOSPC)):
            file.copy_at(0, source, 0, 5)
    assert caught.value.where == folder.local_path("b")
    monkeypatch.setattr(os, "copy_file_range", refuse(errno.EIO), raising=False)
    with folder.open("a") as source, pytest.raises(FileError, match="EIO"):  # a disk that fails is no reason to go on
        file.copy_at(0, source, 0, 5)
    file.close()


def test_no_room_for_a_placed_file_is_told_by_its_path(folder):
    os.makedirs(folder.root)
    for fail_at, action in ((0, "cannot create"), (1, "cannot make room for")):
        sweep = Sweep(fail_at=fail_at, error=errno.ENOSPC)
        with pytest.raises(FileError, match=action) as caught, sweeping(sweep):
            folder.place("b", 100)
        assert caught.value.where == folder.local_path("b")


def test_a_file_that_is_whole_is_moved_to_its_real_name(folder):
    folder.commit_bytes("train/a", b"old")
    folder.commit_bytes(".penstock/placing/a", b"new")
    folder.publish({".penstock/placing/a": "train/a"})
    folder.commit_bytes(".penstock/placing/b", b"other")
    folder.publish({".penstock/placing/b": "new/folder/b"})
    assert folder.list() == ["new/folder/b", "train/a"]
    assert folder.read("train/a") == b"new"
    with pytest.raises(FileError, match="ENOENT"):
        folder.publish({".penstock/placing/b": "new/folder/c"})


@pytest.mark.parametrize("point", ["move.before_rename", "move.after_rename"])
def test_a_kill_inside_a_move_leaves_the_file_in_one_place(tmp_path, point):
    token = tmp_path / "token"
    token.touch()
    folder = open_store(str(tmp_path / "out"))
    folder.commit_bytes("beside", b"data")
    program = f"from penstock.base.stores import open_store; open_store({folder.root!r}).publish({{'beside': 'real'}})"
    environment = {**os.environ, CRASH_VARIABLE: f"{point}:{token}"}
    died = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert died.returncode == CRASH_EXIT_CODE
    assert folder.list() == (["beside"] if point == "move.before_rename" else ["real"])


def refuse(number: int):
    def copy(*_arguments, **_options):
        raise OSError(number, os.strerror(number))

    return copy


def test_the_lock_says_who_holds_it_and_is_free_afterwards(folder):
    with folder.hold(b"pid 7 on host x"), pytest.raises(OutputError) as caught, folder.hold(b"pid 8"):
        pass
    assert "pid 7 on host x" in caught.value.what
    assert caught.value.where == folder.root
    with folder.hold(b"me"):
        assert folder.read(LOCK) == b"me"


HOLDER = """
import sys
from penstock.base.stores import open_store
with open_store({!r}).hold(b"the holder"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_of_a_killed_holder_is_free(folder):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(folder.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(OutputError, match="the holder"), folder.hold(b"me"):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait(timeout=30)
        with folder.hold(b"me"):
            pass


def test_the_lock_stays_while_a_worker_of_a_dead_driver_has_it(folder):
    with folder.hold(b"the driver") as descriptors:
        worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=descriptors)
    with worker:
        with pytest.raises(OutputError, match="the driver"), folder.hold(b"me"):
            pass
        worker.communicate(b"\n", timeout=30)
        with folder.hold(b"me"):
            pass


def test_a_disk_that_is_full_when_the_lock_is_taken_is_named(folder):
    os.makedirs(folder.where(".penstock"))
    with pytest.raises(FileError) as caught, sweeping(Sweep(fail_at=1, error=errno.ENOSPC)), folder.hold(b"me"):
        pass
    assert caught.value.where == folder.local_path(LOCK)


def test_a_log_is_appended_to(folder):
    for word in (b"one\n", b"two\n"):
        file = folder.append(".penstock/log")
        file.write(word)
        file.close()
    assert folder.read(".penstock/log") == b"one\ntwo\n"
