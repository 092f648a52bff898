"""Groups: which of them a split has is told exactly, and one that is in two splits stops the job."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import PenstockError
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.rows.part import PartWriter
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples import groups
from penstock.prepare.samples.groups import Groups, prove_apart
from penstock.shards.manifest import ShardFacts
from penstock.shards.schema import schema_from_arrow

SPLITS = ("train", "test", "val")
SCHEMA = pa.schema([("game", pa.string()), ("seat", pa.int64())])


def part(folder: Store, number: int, batches: list[Rows], by: tuple[str, ...]) -> dict[str, ShardFacts]:
    """What a task puts down of its groups; its samples are not looked at here."""
    found = Groups(SPLITS, by)
    for rows in batches:
        found.add(rows)
    with ExitStack() as stack:
        file = PartWriter(folder, f"{number}", schema_from_arrow(SCHEMA, "a test"), SPLITS, stack).finish(
            found.encoded()
        )
    return {split: ShardFacts(split, 0, (file,)) for split in SPLITS}


def rows_of(games: list[str | None], seats: list[int | None], splits: list[int]) -> Rows:
    batch = pa.RecordBatch.from_arrays([pa.array(games, pa.string()), pa.array(seats, pa.int64())], schema=SCHEMA)
    return Rows(batch, 0, ("f",), np.arange(len(games)), np.array(splits, "u1"))


VALUES = st.tuples(st.sampled_from(["a", "b", "ab", "", "null", None, "\0"]), st.sampled_from([None, 0, 1, -1, 2**60]))
TASKS = st.lists(st.lists(st.lists(VALUES, max_size=20), max_size=3), min_size=1, max_size=4)


@pytest.mark.parametrize("by", [("game",), ("seat",), ("game", "seat")])
@given(tasks=TASKS, at_once=st.integers(1, 30))
def test_groups_are_counted_as_a_set_would_count_them(tmp_path_factory, by, tasks, at_once):
    folder = open_store(str(tmp_path_factory.mktemp("groups")))
    splits: dict[tuple[Any, ...], int] = {}

    def decide(value: tuple[Any, ...]) -> int:
        group = tuple(value[SCHEMA.names.index(name)] for name in by)
        return splits.setdefault(group, len(splits) % len(SPLITS))

    def rows(batch: list[tuple[Any, ...]]) -> Rows:
        return rows_of([game for game, _ in batch], [seat for _, seat in batch], [decide(value) for value in batch])

    parts = tuple(part(folder, number, list(map(rows, task)), by) for number, task in enumerate(tasks))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "_AT_ONCE", at_once)
        proof = prove_apart(folder, SPLITS, by, parts)
    expected = {split: list(splits.values()).count(number) for number, split in enumerate(SPLITS)}
    assert proof == {"by": list(by), "groups": expected, "groups_in_two_splits": 0}


@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_a_group_in_two_splits_is_a_defect_wherever_its_rows_are(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(groups, "_AT_ONCE", at_once)
    folder = open_store(str(tmp_path))
    apart = [rows_of(["a", "b", "c"], [0, 0, 0], [0, 1, 2])]
    leaking = [rows_of(["d", "c"], [1, 1], [0, 0])]
    parts = (part(folder, 0, apart, ("game",)), part(folder, 1, leaking, ("game",)))
    with pytest.raises(PenstockError, match="defect: 1 groups are in more than one split"):
        prove_apart(folder, SPLITS, ("game",), parts)
    assert prove_apart(folder, SPLITS, ("game",), parts[:1])["groups"] == {"train": 1, "test": 1, "val": 1}


def test_a_text_in_codes_is_the_same_group_as_in_letters():
    plain, coded = Groups(("train",), ("game",)), Groups(("train",), ("game",))
    values = pa.array(["a", None, "b", "a"])
    for found, column in ((plain, values), (coded, values.dictionary_encode())):
        batch = pa.RecordBatch.from_arrays([column], ["game"])
        found.add(Rows(batch, 0, ("f",), np.arange(4), np.zeros(4, "u1")))
    assert plain.encoded() == coded.encoded()


def test_rows_without_a_group_column_note_nothing():
    found = Groups(SPLITS, ())
    found.add(rows_of(["a"], [1], [0]))
    assert found.encoded() == dict.fromkeys(SPLITS, "")


def test_the_proof_of_a_job_says_what_is_in_its_files(tmp_path: Path):
    (tmp_path / "mine.py").write_text(
        "def samples(path):\n    for n in range(40):\n        yield {'game': f'{path.stem}-{n % 10}', 'n': n}\n"
    )
    for name in "abcd":
        (tmp_path / f"{name}.txt").touch()
    job = {"input": {"files": "*.txt", "function": "mine:samples"}, "output": "out", "workers": 0}
    stages = [{"split": {"by": "game", "val": 0.25, "test": 0.25}}]
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**job, "stages": stages}))
    penstock.run(tmp_path / "job.yaml")
    proof = json.loads((tmp_path / "out/artifacts/split.json").read_text())
    found = {split: {each["game"] for each in penstock.open(tmp_path / "out", split)} for split in proof["groups"]}
    assert proof["by"] == ["game"]
    assert proof["groups"] == {split: len(games) for split, games in found.items()}
    assert sum(proof["groups"].values()) == 40 == len(set().union(*found.values()))
