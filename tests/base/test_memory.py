"""Memory: the budget is the least of what was asked and what is there; the tree counts every process once."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import pytest

from penstock.base import machine
from penstock.base.memory import (
    TreeMemory,
    make_budget,
    own_memory,
    process_tree,
    resident_memory,
    tree_memory,
)

MB = 10**6


@pytest.fixture
def grandchild():
    """A child whose own child holds 64 MB, and a pipe end that keeps both alive."""
    inner = "import sys; held = bytearray(b'x' * 64_000_000); print('ready', flush=True); sys.stdin.read()"
    outer = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {inner!r}]))"
    child = subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    yield child
    child.stdin.close()
    child.wait(timeout=30)
    child.stdout.close()


def test_the_tree_counts_what_a_grandchild_allocates(grandchild):
    assert len(process_tree(grandchild.pid)) == 2
    assert 64 * MB < tree_memory(grandchild.pid).counted < 64 * MB + 40 * MB
    assert tree_memory(os.getpid()).counted > own_memory().counted + 60 * MB


def test_mapped_file_pages_are_shown_apart(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 50_000_000)
    before = own_memory()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[i] for i in range(0, len(mapped), 4096)) > 0
        after = own_memory()
    assert after.file - before.file > 45 * MB
    assert after.counted - before.counted < 10 * MB


def test_shared_memory_is_counted():
    before = own_memory()
    with mmap.mmap(-1, 50_000_000) as shared:
        shared.write(b"x" * 50_000_000)
        after = own_memory()
    assert after.counted - before.counted > 45 * MB


def test_a_process_that_ended_holds_nothing():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert tree_memory(child.pid) == TreeMemory()


def test_where_shares_are_not_told_private_pages_are_counted():
    held = bytearray(b"x" * 30_000_000)
    assert 0.5 * own_memory().anon < resident_memory(os.getpid()).counted < 2 * own_memory().anon
    assert resident_memory(os.getpid()).counted > len(held)


def test_a_percentage_is_of_what_the_machine_allows():
    allowed = machine.memory_limit().amount
    assert make_budget("100%").allowed == allowed
    assert make_budget("25%").allowed == allowed // 4


def test_what_was_asked_for_is_the_budget_where_it_fits():
    budget = make_budget("100MB")
    assert (budget.allowed, str(budget)) == (100 * MB, "100 MB (memory: 100MB)")


def test_more_than_the_machine_allows_is_cut_and_says_so():
    limit = machine.memory_limit()
    budget = make_budget(limit.amount * 10)
    assert budget.allowed == limit.amount
    assert limit.source in budget.source
    assert f"less than memory: {limit.amount * 10}" in budget.source
