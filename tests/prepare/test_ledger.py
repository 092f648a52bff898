"""Ledger: a row comes back as it was written, or not at all; it is kept while what it names is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.base.stores import open_store
from penstock.prepare.ledger import LedgerRow, decode_row, encode_row, files_are_there, forget, read_rows, write_row
from penstock.prepare.rows.rows import HUNG, TOO_LARGE_PIECE
from penstock.shards.columns import FileFacts, commit_file
from penstock.shards.manifest import ShardFacts, Step

FACTS = some.builds(FileFacts, some.text(max_size=9), some.integers(0, 2**50), some.text(max_size=9))
SHARDS = some.builds(
    ShardFacts, some.text(max_size=9), some.integers(0, 2**40), some.lists(FACTS, max_size=2).map(tuple)
)
COUNTS = some.dictionaries(some.text(max_size=9), some.integers(0, 9), max_size=2)
STEPS = some.builds(
    Step, some.text(max_size=9), some.text(max_size=9), some.integers(0, 99), some.integers(0, 99), COUNTS, COUNTS
)
ROWS = some.builds(
    LedgerRow,
    task=some.text(max_size=9),
    fingerprint=some.text(max_size=9),
    shards=some.dictionaries(some.text(max_size=5), SHARDS, max_size=2),
    spill=some.none() | FACTS,
    rejected=some.none() | FACTS,
    steps=some.dictionaries(some.text(max_size=5), STEPS, max_size=2),
    states=some.dictionaries(some.text(max_size=5), some.integers() | some.text(max_size=5), max_size=2),
    lost_files=some.lists(some.tuples(some.text(max_size=5), some.text(max_size=5)), max_size=2).map(tuple),
    boot=some.text(max_size=5),
)


@given(ROWS)
def test_a_row_comes_back_as_it_was_written(row):
    assert decode_row(encode_row(row)) == row


@given(ROWS, some.data())
def test_a_row_with_another_byte_is_no_row(row, data):
    written = bytearray(encode_row(row))
    place = data.draw(some.integers(0, len(written) - 2))  # the last is a newline, which JSON does without
    written[place] ^= 1 << data.draw(some.integers(0, 7))
    assert decode_row(bytes(written)) in (None, row)


def plain(task: str = "0-map-00000", **more: object) -> LedgerRow:
    step = Step("read", "rows", 10, 10)
    row = LedgerRow(task, "f", {}, None, None, {"read": step}, {}, ())
    return replace(row, **more)  # type: ignore[arg-type]


def test_rows_are_listed_by_task_and_forgotten_by_name(tmp_path: Path):
    folder = open_store(str(tmp_path))
    for number in range(3):
        write_row(folder, plain(f"0-map-{number:05d}"))
    (tmp_path / ".penstock" / "tasks" / "0-map-00009.json").write_text("{half a row")
    forget(folder, ["0-map-00001"])
    assert sorted(read_rows(folder)) == ["0-map-00000", "0-map-00002"]


@pytest.mark.parametrize("is_needed", [True, False])
def test_a_spill_is_asked_for_only_while_a_later_pass_reads_it(tmp_path, is_needed):
    folder = open_store(str(tmp_path))
    spill = commit_file(folder, "spill", b"rows")
    row = plain(spill=spill, boot="an earlier boot of the machine")
    assert files_are_there(folder, row, spill_needed=is_needed) is not is_needed


def test_a_row_whose_file_has_another_size_is_not_kept(tmp_path):
    folder = open_store(str(tmp_path))
    rejected = commit_file(folder, "rejected/00000.jsonl", b"a line\n")
    assert files_are_there(folder, plain(rejected=rejected), spill_needed=True)
    (tmp_path / "rejected" / "00000.jsonl").write_bytes(b"half")
    assert not files_are_there(folder, plain(rejected=rejected), spill_needed=False)


def test_what_was_given_up_for_time_or_memory_is_tried_again():
    assert not plain().gave_up
    assert plain(lost_files=(("a.game", HUNG),)).gave_up
    assert plain(steps={"0": Step("tokenize", "", 2, 1, {TOO_LARGE_PIECE: 1})}).gave_up
    assert not plain(lost_files=(("a.game", "unreadable file"),)).gave_up
