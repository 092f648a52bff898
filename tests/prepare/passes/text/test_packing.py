"""Packing: rows are one long concatenation cut up, or whole documents; however they came in, and whoever packs them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import ConfigError, IntegrityError
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes import Task
from penstock.prepare.passes.folds.shards import ShardsInto
from penstock.prepare.passes.text import packing
from penstock.prepare.passes.text.packing import PackWork, Span, best_fit
from penstock.prepare.passes.text.token_stream import TokenPart
from penstock.prepare.passes.text.tokens import CONTENT, COUNTED, TokensInto
from penstock.prepare.rows.rows import TOKENS, Rows
from penstock.prepare.stages import build_stage
from penstock.prepare.stages.text.kept import PerToken
from penstock.prepare.stages.text.pack import Pack, packed_schema
from penstock.shards.manifest import Manifest, Step, write_manifest
from penstock.shards.schema import schema_from_arrow
from tests.promises.text_making import wrapped

SETTINGS = Settings(0, 1 << 20, 0, 64.0, 64.0)
SPLITS = ("train", "test")
PART = pa.schema([(TOKENS, pa.list_(pa.uint16()))])
IDS = (PerToken(TOKENS, pa.uint16()),)

Documents = list[list[int]]
Batches = list[tuple[Documents, list[int]]]  # documents, and the split of each


def rows_of(documents: Documents, splits: Sequence[int] | None = None) -> Rows:
    batch = pa.RecordBatch.from_arrays([pa.array(documents, pa.list_(pa.uint16()))], schema=PART)
    chosen = None if splits is None else np.array(splits, "u1")
    return Rows(batch, 0, ("f",), np.arange(len(documents)), chosen)


def unseen(rows: int, place: str = "", whole: bool = True) -> None:
    """Progress that nobody watches."""


def put_down(folder: Store, tasks: list[Batches]) -> tuple[TokenPart, ...]:
    """A part for each task, as its sink writes it."""
    into, parts = TokensInto(schema_from_arrow(PART, "a test"), SPLITS, len(tasks)), []
    for number, batches in enumerate(tasks):
        with ExitStack() as stack:
            sink = into.open(folder, number, stack, SETTINGS)
            for documents, splits in batches:
                sink.write(rows_of(documents, splits))
            produced = sink.finish()
        assert produced.spill
        counted = produced.states[COUNTED]
        tokens = {split: sum(each["tokens"] for each in of.values()) for split, of in counted.items()}
        parts.append(TokenPart(produced.spill, tokens, str(produced.states[CONTENT])))
    return tuple(parts)


def packed(root: Path, tasks: list[Batches], stage: Pack, spans: int) -> tuple[dict[str, list[Any]], Step]:
    """The records of each split as `penstock.open` reads them, and the account of tokens."""
    folder = open_store(str(root))
    fixed = stage.length if stage.method == "wrapped" else 0
    schema = schema_from_arrow(packed_schema(pa.uint16(), fixed), "a test")
    into = ShardsInto(schema, SPLITS, "safetensors", spans, None)
    work = PackWork(str(root), put_down(folder, tasks), stage, into, IDS)
    rows = [work.execute(Task(f"{n}", Span(n, spans), ""), SETTINGS, unseen) for n in range(spans)]
    shards = {split: tuple(row.shards[split] for row in rows if split in row.shards) for split in SPLITS}
    write_manifest(folder, Manifest({"format": "safetensors"}, {}, schema, shards, (), (), (), ""))
    steps = [row.steps[TOKENS] for row in rows]
    tails = sum(step.set_aside.get("tail", 0) for step in steps)
    account = Step("pack", TOKENS, sum(s.taken for s in steps), sum(s.given for s in steps), {"tail": tails})
    assert account.balances
    return {split: penstock.open(root, split)[:].to_pylist() for split in SPLITS}, account


def documents_of(tasks: list[Batches], split: int) -> Documents:
    """Those of one split, in their order."""
    return [
        document
        for batches in tasks
        for documents, splits in batches
        for document, chosen in zip(documents, splits, strict=True)
        if chosen == split
    ]


@st.composite
def some_tasks(draw: st.DrawFn) -> list[Batches]:
    """Documents of any length whose tokens are all different, so that none can stand for another."""
    shape = draw(
        st.lists(
            st.lists(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 1)), max_size=8), max_size=3), max_size=4
        )
    )
    fresh, tasks = iter(range(65_536)), []
    for batches in shape:
        made = [([[next(fresh) for _ in range(size)] for size, _ in batch], [n for _, n in batch]) for batch in batches]
        tasks.append(made)
    return tasks


@given(tasks=some_tasks(), length=st.integers(2, 50), spans=st.integers(1, 5), at_once=st.sampled_from([1, 7, 1 << 20]))
def test_wrapped_rows_are_one_long_concatenation_cut_every_length(tmp_path_factory, tasks, length, spans, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "TOKENS_AT_ONCE", at_once)
        found, account = packed(tmp_path_factory.mktemp("wrapped"), tasks, Pack(length=length), spans)
    tails = 0
    for number, split in enumerate(SPLITS):
        documents = documents_of(tasks, number)
        rows, starts = wrapped(documents, length)
        assert [record["tokens"] for record in found[split]] == rows
        assert [record["documents"] for record in found[split]] == starts
        tails += sum(map(len, documents)) % length
    assert account.set_aside == {"tail": tails}


def pieces_of(documents: Documents, length: int) -> list[tuple[int, ...]]:
    """Documents, long ones in pieces of a row."""
    return [tuple(each[at : at + length]) for each in documents for at in range(0, len(each), length)]


def cut_rows(records: list[Any]) -> list[list[tuple[int, ...]]]:
    """The documents of each row."""
    rows = []
    for record in records:
        tokens, bounds = record["tokens"], [*record["documents"], len(record["tokens"])]
        assert bounds[0] == 0
        rows.append([tuple(tokens[first:last]) for first, last in itertools.pairwise(bounds)])
    return rows


@given(
    tasks=some_tasks(), length=st.integers(2, 50), spans=st.integers(1, 5), at_once=st.sampled_from([1, 60, 1 << 20])
)
def test_without_packing_every_document_is_a_row_in_its_order(tmp_path_factory, tasks, length, spans, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "TOKENS_AT_ONCE", at_once)
        found, account = packed(tmp_path_factory.mktemp("none"), tasks, Pack(length=length, method="none"), spans)
    for number, split in enumerate(SPLITS):
        rows = cut_rows(found[split])
        assert all(len(row) == 1 for row in rows)
        assert [row[0] for row in rows] == pieces_of(documents_of(tasks, number), length)
    assert account.set_aside == {"tail": 0}


@pytest.mark.proof
@given(tasks=some_tasks(), length=st.integers(2, 50), window=st.integers(1, 300), spans=st.integers(1, 5))
def test_best_fit_keeps_every_document_whole_and_loses_none(tmp_path_factory, tasks, length, window, spans):
    stage = Pack(length=length, method="best_fit", window=max(window, length))
    found, _ = packed(tmp_path_factory.mktemp("best-fit"), tasks, stage, spans)
    again, _ = packed(tmp_path_factory.mktemp("best-fit"), tasks, stage, 1)
    assert found == again, "how many tasks pack decides nothing"
    for number, split in enumerate(SPLITS):
        rows = cut_rows(found[split])
        pieces = pieces_of(documents_of(tasks, number), length)
        place = {piece: at for at, piece in enumerate(pieces)}
        assert sorted(piece for row in rows for piece in row) == sorted(pieces)
        assert all(sum(map(len, row)) <= length for row in rows)
        assert all([place[piece] for piece in row] == sorted(place[piece] for piece in row) for row in rows)
        starts = np.cumsum([0, *map(len, documents_of(tasks, number))]).tolist()
        windows = [_window(row[0], documents_of(tasks, number), starts, stage.window) for row in rows]
        assert windows == sorted(windows), "rows of one window stand behind those of the one before"
        firsts = [(each, place[row[0]]) for each, row in zip(windows, rows, strict=True)]
        assert firsts == sorted(firsts), "rows stand in the order of their first documents"


def _window(piece: tuple[int, ...], documents: Documents, starts: list[int], window: int) -> int:
    """In which window the document of a piece begins."""
    return next(starts[n] // window for n, each in enumerate(documents) if piece[0] in each)


@given(lengths=st.lists(st.integers(1, 60), max_size=80), room=st.integers(60, 90))
def test_best_fit_puts_each_where_it_leaves_the_least_room(lengths, room):
    """Against a plain search over all rows."""
    rows: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda number: (-lengths[number], number)):
        left = [room - sum(lengths[each] for each in row) for row in rows]
        fitting = [rest for rest in left if rest >= lengths[number]]
        if fitting:
            rows[left.index(min(fitting))].append(number)  # which of those with equal room changes no room
        else:
            rows.append([number])
    found = best_fit(np.array(lengths, "i8"), room)
    assert sorted(number for row in found for number in row.tolist()) == list(range(len(lengths)))
    assert sorted(room - sum(lengths[each] for each in row) for row in rows) == sorted(
        room - int(np.array(lengths)[row].sum()) for row in found
    )
    assert [row.tolist() for row in found] == sorted(sorted(row.tolist()) for row in found)


def test_best_fit_fills_rows_to_99_percent():
    lengths = np.minimum(np.random.default_rng(1).lognormal(6, 1.2, 10_000).astype("i8") + 1, 2048)
    rows = best_fit(lengths, 2048)
    assert lengths.sum() / (2048 * len(rows)) > 0.99


def test_a_long_document_is_split_truncated_or_set_aside_and_its_tokens_are_counted():
    documents = [[1] * 3, [2] * 10, [], [3] * 4, [4] * 5]
    split = build_stage("pack", {"length": 4, "method": "none"})(rows_of(documents))
    assert [len(each) for each in split.batch.column(0).to_pylist()] == [3, 10, 4, 5]
    assert [(each.reason, each.count, each.inner) for each in split.set_aside] == [("no tokens", 1, 0)]
    truncate = build_stage("pack", {"length": 4, "method": "none", "overflow": "truncate"})(rows_of(documents))
    assert truncate.batch.column(0).to_pylist() == [[1] * 3, [2] * 4, [3] * 4, [4] * 4]
    assert [(each.reason, each.count, each.inner) for each in truncate.set_aside][1:] == [("truncated", 0, 7)]
    aside = build_stage("pack", {"length": 4, "method": "none", "overflow": "set_aside"})(rows_of(documents))
    assert aside.batch.column(0).to_pylist() == [[1] * 3, [3] * 4]
    assert [(each.reason, each.count, each.inner) for each in aside.set_aside][1:] == [("longer than 4 tokens", 2, 15)]
    assert [line["position"] for line in aside.set_aside[1].kept] == [1, 4]


def test_lists_with_holes_are_set_aside():
    documents: Any = [[1, 2], [3, None], None, [None, None, 4], [5]]
    rows = build_stage("pack", 4)(rows_of(documents))
    assert rows.batch.column(0).to_pylist() == [[1, 2], [5]]
    assert [(each.reason, each.count, each.inner) for each in rows.set_aside] == [
        ("null among tokens", 2, 5),
        ("no tokens", 1, 0),
    ]
    assert [line["row"]["tokens"] for line in rows.set_aside[0].kept] == [[3, None], [None, None, 4]]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (1, "length: 1 is not between"),
        ({"length": 1 << 25}, "is not between"),
        ({"length": 64, "overflow": "truncate"}, "needs method best_fit"),
        ({"length": 64, "window": 100}, "window: needs"),
        ({"length": 64, "method": "best_fit", "window": 63}, "less than one row"),
    ],
)
def test_options_that_cannot_be_are_refused(written, said):
    with pytest.raises(ConfigError, match=said):
        build_stage("pack", written)


def test_a_flipped_byte_in_any_region_of_a_part_is_named(tmp_path):
    tasks: list[Batches] = [[([[number] * 30 for number in range(40)], [0, 1] * 20)]]
    folder = open_store(str(tmp_path))
    (part,) = put_down(folder, tasks)
    schema = schema_from_arrow(packed_schema(pa.uint16(), 16), "a test")
    into = ShardsInto(schema, SPLITS, "safetensors", 1, None)
    work = PackWork(str(tmp_path), (part,), Pack(length=16), into, IDS)
    path, whole = tmp_path / part.file.file, (tmp_path / part.file.file).read_bytes()
    for position in [*range(0, len(whole), 97), len(whole) - 1, len(whole) - 8]:
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        with pytest.raises(IntegrityError) as caught:
            work.execute(Task("0", Span(0, 1), ""), SETTINGS, unseen)
        assert path.name in str(caught.value.where), position


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint32(), pa.uint64()], ids=str)
def test_wide_ids_of_other_programs_become_int32(tmp_path, kind):
    """The loader's batches are int32. An id that needs more stands aside with its row."""
    batch = pa.table({"tokens": pa.array([[1, 2, 3], [2**31 - 1, 4], [5, 2**31]], pa.list_(kind))})
    pq.write_table(batch, tmp_path / "ids.parquet")
    job = {"input": str(tmp_path / "ids.parquet"), "output": str(tmp_path / "out"), "workers": 0}
    penstock.run({**job, "stages": [{"pack": {"length": 8, "method": "none"}}]})
    dataset = penstock.open(tmp_path / "out")
    assert [record["tokens"] for record in dataset[:].to_pylist()] == [[1, 2, 3], [2**31 - 1, 4]]
    assert dataset[:].schema.field("tokens").type.value_type == pa.int32()
    (line,) = (json.loads(line) for path in (tmp_path / "out" / "rejected").iterdir() for line in path.open())
    assert (line["position"], line["reason"]) == (2, "an id needs more than 32 bits")


@given(tasks=some_tasks(), window=st.integers(40, 200), most=st.sampled_from([1, 3, 1 << 17]))
def test_very_short_documents_are_fitted_so_many_at_a_time(tmp_path_factory, tasks, window, most):
    """However many: each document is there once, in a window's order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_MOST_DOCUMENTS", most)
        stage = Pack(length=40, method="best_fit", window=window)
        found, _ = packed(tmp_path_factory.mktemp("few"), tasks, stage, spans=2)
        if most == 1:
            for number, split in enumerate(SPLITS):
                assert [tuple(row["tokens"]) for row in found[split]] == pieces_of(documents_of(tasks, number), 40)
    for number, split in enumerate(SPLITS):
        pieces = [piece for row in cut_rows(found[split]) for piece in row]
        assert sorted(pieces) == sorted(pieces_of(documents_of(tasks, number), 40))
