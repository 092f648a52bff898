"""The cache is a folder of this user alone: what lies there is trusted."""

from __future__ import annotations

import os
import stat
import time

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock import FileError
from penstock.base import cache
from penstock.base.cache import KERNELS, PROOFS, cache_folder, keep, read_kept
from penstock.base.files import unique_name


def test_the_folder_is_made_for_this_user_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "a" / "cache"))
    folder = cache_folder("kernels")
    assert folder == tmp_path / "a" / "cache" / "kernels"
    assert {stat.S_IMODE(each.stat().st_mode) for each in (folder, folder.parent)} == {0o700}


def test_without_a_variable_it_lies_in_the_cache_of_the_home(tmp_path, monkeypatch):
    monkeypatch.delenv("PENSTOCK_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder("kernels") == tmp_path / ".cache" / "penstock" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder("kernels") == tmp_path / "xdg" / "penstock" / "kernels"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_to_is_refused_with_its_mode(tmp_path, monkeypatch, mode):
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "cache"))
    cache_folder("kernels").parent.chmod(mode)
    with pytest.raises(FileError, match=f"its mode is {mode:04o}"):
        cache_folder("kernels")


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(FileError, match="belongs to user"):
        cache_folder("kernels")


def test_a_file_in_its_place_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(FileError, match="file"):
        cache_folder("kernels")


@given(some.binary(), some.data())
def test_what_is_kept_comes_back_as_it_was_or_not_at_all(tmp_path_factory, data, draw):
    file = tmp_path_factory.mktemp("kept") / "a"
    keep(file, data)
    assert read_kept(file) == data
    damaged = bytearray(file.read_bytes())
    damaged[draw.draw(some.integers(0, len(damaged) - 1))] ^= 1 << draw.draw(some.integers(0, 7))
    file.write_bytes(damaged)
    assert read_kept(file) is None
    file.write_bytes(damaged[:-1])
    assert read_kept(file) in (None, data)


def test_what_cannot_be_written_is_told_and_leaves_nothing(tmp_path):
    with pytest.raises(FileError, match="cannot write to the cache"):
        keep(tmp_path / "missing" / "a", b"data")
    (tmp_path / "a").mkdir()
    with pytest.raises(FileError, match="cannot write to the cache"):
        keep(tmp_path / "a", b"data")
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_what_nobody_used_for_a_month_goes_and_nothing_that_a_person_keeps_there(tmp_path):
    folder, proof, own = "ab" * 16, "cd" * 16, "src"
    half_written = unique_name("ef" * 16)
    for days in (29, 31):
        for name in (folder, own):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "a.code").write_bytes(b"machine code")
        for name in (proof, half_written, "thesis.tex"):
            (tmp_path / name).write_bytes(b"proof")
        then = time.time() - days * 24 * 3600
        for entry in tmp_path.iterdir():
            os.utime(entry, (then, then))
        before = {each.name for each in tmp_path.iterdir()}
        cache.forget_unused(tmp_path)
        left = {each.name for each in tmp_path.iterdir()}
        assert left == (before if days == 29 else {own, "thesis.tex"})


def test_clearing_removes_what_was_kept_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    kernels, proofs = cache_folder(KERNELS), cache_folder(PROOFS)
    (kernels / ("ab" * 16)).mkdir()
    keep(kernels / ("ab" * 16) / "a.code", b"machine code")
    keep(proofs / ("cd" * 16), b"proof")
    keep(proofs / "rest", b"")
    (proofs / "rest").rename(proofs / unique_name("cd" * 16))  # of a process that was killed
    (kernels / "mine.txt").write_text("a person's")
    (tmp_path / "mine").mkdir()
    held = [("compiled kernels", 1, 44), ("comparisons of tokenizers", 2, 69)]
    assert [(each.what, each.files, each.bytes) for each in cache.held()] == held
    assert [(each.what, each.files, each.bytes) for each in cache.clear()] == held
    assert [each.files for each in cache.held()] == [0, 0]
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["kernels", "mine", "mine.txt", "proofs"]


def test_looking_at_the_cache_makes_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path / "none"))
    assert [each.files for each in (*cache.held(), *cache.clear())] == [0, 0, 0, 0]
    assert not (tmp_path / "none").exists()
