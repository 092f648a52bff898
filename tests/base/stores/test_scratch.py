"""Scratch: files without a name, used again and again."""

from __future__ import annotations

from penstock.base.stores import open_store
from penstock.base.stores.scratch import borrow_scratch, release_scratch, return_scratch


def test_a_scratch_file_has_no_name_and_is_used_again(tmp_path):
    folder = open_store(tmp_path / "out")
    first = borrow_scratch(folder.scratch_folder)
    first.write(b"something long")
    assert folder.list() == []
    other = borrow_scratch(folder.scratch_folder)
    assert other is not first
    return_scratch(first)
    again = borrow_scratch(folder.scratch_folder)
    assert again is first
    again.write(b"new")
    assert again.size == 3
    with folder.commit("a") as file:
        file.copy_range(again, 0, 3)
    assert folder.read("a") == b"new"
    return_scratch(again)
    release_scratch(folder.scratch_folder)
    assert borrow_scratch(folder.scratch_folder) is not first
