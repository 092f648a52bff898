"""Resume: a task is done again if something that decides its bytes changed, or if what it left is needed and gone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.stores import open_store
from penstock.prepare.ledger import LedgerRow, read_rows, write_row
from penstock.prepare.passes import Task
from penstock.prepare.rows.order import Bucket
from penstock.prepare.rows.rows import HUNG, TOO_LARGE_PIECE
from penstock.prepare.run.resume import changed, keep_or_forget, kept_rows, remember_job
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import Step

STEP = Step("read", "rows", 10, 10)


def planned(*names: str, read_at_end: bool = False) -> Any:
    return SimpleNamespace(
        pass_=SimpleNamespace(read_at_end=read_at_end), tasks=[Task(name, Bucket(0), "f", "f") for name in names]
    )


def row(task: str, **more: Any) -> LedgerRow:
    plain = LedgerRow(task, "f", {}, FileFacts(f"spill of {task}", 1, ""), None, {"read": STEP}, {}, ())
    return replace(plain, **more)


def rows(*names: str, **more: Any) -> dict[str, LedgerRow]:
    return {name: row(name, **more) for name in names}


def there(row: LedgerRow, spill_needed: bool) -> bool:  # noqa: ARG001
    return True


def spills_are_gone(row: LedgerRow, spill_needed: bool) -> bool:  # noqa: ARG001
    return not spill_needed


SCATTER, GATHER = planned("scatter-0", "scatter-1"), planned("gather-0", "gather-1")
ALL = rows("scatter-0", "scatter-1", "gather-0", "gather-1")


def test_tasks_with_a_row_of_their_fingerprint_are_kept():
    assert kept_rows([SCATTER, GATHER], ALL, there) == ALL


def test_a_row_of_a_job_that_refuses_bad_input_serves_one_that_sets_it_aside():
    lenient = SimpleNamespace(pass_=SCATTER.pass_, tasks=[Task("scatter-0", Bucket(0), "lenient", "f")])
    assert list(kept_rows([lenient], rows("scatter-0"), there)) == ["scatter-0"]
    assert kept_rows([SCATTER], rows("scatter-0", fingerprint="lenient"), there) == {}


def test_a_task_without_a_row_or_with_that_of_another_job_is_done():
    found = {**rows("scatter-0"), **rows("scatter-1", fingerprint="of another job"), **rows("a task of another job")}
    assert list(kept_rows([SCATTER], found, there)) == ["scatter-0"]


@pytest.mark.parametrize(
    "gave_up",
    [{"lost_files": (("a.npz", HUNG),)}, {"steps": {"read": replace(STEP, given=9, set_aside={TOO_LARGE_PIECE: 1})}}],
)
def test_a_task_that_gave_something_up_for_time_or_memory_is_tried_again(gave_up):
    assert kept_rows([SCATTER], {**rows("scatter-0"), **rows("scatter-1", **gave_up)}, there) == rows("scatter-0")


def test_a_file_that_cannot_be_read_is_no_reason_to_try_again():
    lost = rows("scatter-0", lost_files=(("a.npz", "unreadable file"),))
    assert kept_rows([SCATTER], lost, there) == lost


def test_a_spill_may_be_gone_once_every_task_behind_it_is_done():
    assert kept_rows([SCATTER, GATHER], ALL, spills_are_gone) == ALL


def test_a_spill_that_is_gone_is_made_again_while_a_task_behind_it_is_to_be_done():
    found = rows("scatter-0", "scatter-1", "gather-0")
    assert kept_rows([SCATTER, GATHER], found, there) == found
    assert list(kept_rows([SCATTER, GATHER], found, spills_are_gone)) == ["gather-0"]


def test_a_pass_that_is_read_at_the_end_needs_its_spills_even_when_all_is_done():
    matched = planned("scatter-0", "scatter-1", read_at_end=True)
    assert list(kept_rows([matched, GATHER], ALL, spills_are_gone)) == ["gather-0", "gather-1"]


def plan(job: str, passes: list[Any], **semantic: Any) -> Any:
    survey = SimpleNamespace(described={"files": [], "set_aside": []})
    return SimpleNamespace(job=job, passes=passes, semantic=semantic, survey=survey)


@pytest.mark.parametrize("redo", [False, True])
def test_rows_that_are_not_kept_are_removed_and_with_redo_all(tmp_path, redo):
    store = open_store(tmp_path)
    for each in rows("0-map-0", "0-map-1").values():
        write_row(store, replace(each, spill=None))
    kept, changes = keep_or_forget(store, plan("j", [planned("0-map-0")]), redo)
    assert list(kept) == list(read_rows(store)) == ([] if redo else ["0-map-0"])
    assert changes == []


def test_changes_of_the_job_are_told_in_words(tmp_path):
    store = open_store(tmp_path)
    before = plan("one", [], seed=1, stages=[{"filter": "a > 1"}], format="npy")
    assert changed(store, before) == []  # nothing was here
    remember_job(store, before, redoing=False)
    assert changed(store, before) == []
    after = plan("two", [], seed=1, stages=[{"filter": "a > 2"}])
    assert changed(store, after) == ['stages[0].filter: "a > 1" -> "a > 2"', 'format: "npy" -> null']
