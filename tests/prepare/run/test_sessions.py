"""Sessions: what was not synced is kept only while the store's session lasts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from penstock.base.faults import Sweep, sweeping
from penstock.base.stores import open_store
from penstock.base.stores.local import LocalStore
from penstock.prepare.ledger import LedgerRow, files_are_there, read_rows, write_row
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import ShardFacts
from penstock.shards.placed import PLACING, Placer, lay_out_fixed

EARLIER = "a session before the machine was started again"


def row_of(**names: object) -> LedgerRow:
    row = LedgerRow("0-map-00000", "f", {}, None, None, {}, {}, ())
    return replace(row, **names)


@pytest.mark.parametrize("lasting", [True, False])
def test_a_spill_of_an_earlier_session_is_there_only_if_it_lasts_or_nobody_needs_it(tmp_path, lasting):
    store = open_store(tmp_path)
    with store.commit("spill", lasting) as file:
        file.write(b"rows")
    row = row_of(spill=FileFacts("spill", 4, ""), boot="" if lasting else store.session)
    assert files_are_there(store, row, spill_needed=True)
    later = replace(row, boot="" if lasting else EARLIER)
    assert files_are_there(store, later, spill_needed=True) == lasting
    assert files_are_there(store, later, spill_needed=False)


def test_rows_that_were_placed_in_an_earlier_session_are_placed_again(tmp_path):
    store = open_store(tmp_path)
    store.place(f"{PLACING}/X_train.npy", 100).close()
    shard = ShardFacts("train", 1, (FileFacts(f"{PLACING}/X_train.npy", 100, ""),))
    assert files_are_there(store, row_of(shards={"train": shard}, boot=store.session), spill_needed=False)
    assert not files_are_there(store, row_of(shards={"train": shard}, boot=EARLIER), spill_needed=False)


def test_a_row_is_synced_if_what_it_names_is(tmp_path):
    store = open_store(tmp_path)
    store.commit_bytes(".penstock/tasks/0-map-00001.json", b"")  # so that folders are there
    for row, is_synced in ((row_of(), True), (row_of(boot=store.session), False)):
        with sweeping(Sweep()) as seen:
            write_row(store, row)
        assert ("sync" in dict(seen.operations)) == is_synced
        assert read_rows(store)[row.task] == row


@dataclass(frozen=True)
class Lasting(LocalStore):
    """A folder on a system that has no name for the time since it was started."""

    session = ""


@pytest.mark.parametrize("kind", [LocalStore, Lasting])
def test_where_there_is_no_session_all_files_are_synced(tmp_path, kind):
    store = kind(str(tmp_path))
    store.commit_bytes("made", b"")  # so that folders are there
    with sweeping(Sweep()) as seen, store.commit("spill", lasting=False) as file:
        file.write(b"rows")
    assert ("sync" in dict(seen.operations)) == (store.session == "")
    (column,) = lay_out_fixed("train", [("features", "<i8", ())], [3])
    store.place(column.placing.file, column.placing.bytes).close()
    with sweeping(Sweep()) as seen:
        placer = Placer(store, column, 0)
        placer.write(memoryview(np.arange(3).tobytes()))
        placer.finish()
    assert ("sync" in dict(seen.operations)) == (store.session == "")
