"""Shared store: what members of a run write counts, and what a member writes after the run was ended does not."""

import os
import pickle

import pytest

from penstock.base.errors import FileError
from penstock.base.stores import open_store
from penstock.base.stores.local import LocalStore
from penstock.base.stores.shared import SharedStore, begin_run, shared_root
from penstock.base.stores.store import PLACING

TOKEN, OTHER = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture
def store(tmp_path):
    return _member(tmp_path / "out", TOKEN)


def _member(folder, token, name="a"):
    begin_run(str(folder), token)
    return SharedStore(shared_root(str(folder), token, name))


def _commit_around(store, happens):
    with store.commit("late.bin") as file:
        file.write(b"2")
        happens()


def _everything(folder):
    return sorted(
        os.path.relpath(os.path.join(top, name), folder) for top, _, names in os.walk(folder) for name in names
    )


def test_every_process_opens_it_by_its_root(store):
    assert open_store(store.root) == store == pickle.loads(pickle.dumps(store))
    assert (store.token, store.member) == (TOKEN, "a")


def test_what_a_member_commits_is_there_for_all(store):
    store.commit_bytes("train/a.bin", b"1")
    assert LocalStore(store.folder).read("train/a.bin") == b"1"
    assert store.session == ""
    store.remove("train/")
    assert _everything(store.folder) == []


def test_after_the_fence_nothing_of_a_member_has_an_effect(store):
    store.commit_bytes("there.bin", b"1")
    growing = store.place(f"{PLACING}/grows.npy", 10)
    with pytest.raises(FileError):
        _commit_around(store, LocalStore(store.folder).fence)
    growing.write_at(0, b"late")
    growing.close()
    for attempt in (
        lambda: store.commit_bytes("late.bin", b"2"),
        lambda: store.commit_bytes("new/late.bin", b"2"),
        lambda: store.remove("there.bin"),
        lambda: store.place(f"{PLACING}/grows.npy", 10),
        lambda: store.publish({f"{PLACING}/grows.npy": "grows.npy"}),
        lambda: store.append(f".penstock/tmp/run-{TOKEN}/members/a.jsonl"),
    ):
        with pytest.raises(FileError):
            attempt()
    assert store.is_fenced
    assert _everything(store.folder) == ["there.bin"]
    assert not os.path.exists(os.path.join(store.folder, "new"))


def test_a_late_member_leaves_another_run_alone(store):
    LocalStore(store.folder).fence()
    other = _member(store.folder, OTHER)
    other.commit_bytes("theirs.bin", b"1")
    store.fence()
    with pytest.raises(FileError):
        store.remove("theirs.bin")
    assert other.read("theirs.bin") == b"1"
    assert not other.is_fenced


def test_a_published_file_can_be_published_again(store):
    file = store.place(f"{PLACING}/x.npy", 3)
    file.write_at(0, b"abc")
    file.close()
    for _ in range(2):  # by who takes over from one that died in between
        store.publish({f"{PLACING}/x.npy": "x.npy"})
        assert store.read("x.npy") == b"abc"
    LocalStore(store.folder).fence()
    assert _everything(store.folder) == ["x.npy"]


def test_a_member_sweeps_only_what_it_has_left_itself(store):
    other = SharedStore(shared_root(store.folder, TOKEN, "b"))
    with other.commit("theirs.bin") as file:
        file.write(b"1")
        with open(os.path.join(store.run_path, "a-left"), "wb"):
            pass
        store.sweep()
    assert other.read("theirs.bin") == b"1"
    assert not os.path.exists(os.path.join(store.run_path, "a-left"))


def test_the_sweep_of_a_run_on_one_machine_leaves_members_alone(store):
    LocalStore(store.folder).sweep()
    assert not store.is_fenced


def test_a_fence_that_died_in_the_middle_is_finished_by_the_next(store):
    os.rename(store.run_path, f"{store.run_path}.gone")
    LocalStore(store.folder).fence()
    assert os.listdir(os.path.join(store.folder, ".penstock", "tmp")) == []
