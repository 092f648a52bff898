"""The cache is a folder of this user alone: what lies there is trusted."""

from __future__ import annotations

import os
import stat

import pytest

from penstock import FileError
from penstock.base.cache import cache_folder


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
