"""Megatron's .bin and .idx files as input: each document a row, and numbers that cannot be right said by place."""

from __future__ import annotations

import os
import struct
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.base.errors import InputError
from tests.prepare.sources.reader import read, survey
from tests.shards.foreign.megatron_files import write_pair

KINDS = ["uint8", "int8", "int16", "int32", "int64", "uint16"]


def make_documents(count: int, longest: int = 40, seed: int = 1) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 30_000, size).tolist() for size in rng.integers(1, longest, count)]


def write_documents(prefix: Path, documents: list[list[int]], dtype: str = "uint16") -> Path:
    return write_pair(prefix, [[document] for document in documents], dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_each_document_is_a_row_of_tokens_in_the_type_they_are_stored_in(tmp_path, kind):
    bounds = np.iinfo(kind)
    documents = [[bounds.min, bounds.max], [], [1], [2, 3, 4]]
    path = write_documents(tmp_path / "a", documents, kind)
    assert survey(path).schema == pa.schema([("tokens", pa.list_(getattr(pa, kind)()))])
    answer = read(path)
    assert [row["tokens"] for row in answer.rows] == documents
    assert answer.ordinals == [0, 1, 2, 3]


@settings(max_examples=60, deadline=None)
@given(
    documents=st.lists(st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=4), max_size=12),
    slice_bytes=st.integers(16, 2000),
    bytes_at_once=st.integers(1, 200),
    rows_at_once=st.integers(1, 9),
)
def test_documents_of_sequences_say_where_each_begins(
    tmp_path_factory, documents, slice_bytes, bytes_at_once, rows_at_once
):
    path = write_pair(tmp_path_factory.mktemp("pair") / "a", documents)
    sizes = {"slice_bytes": slice_bytes, "bytes_at_once": bytes_at_once, "rows_at_once": rows_at_once}
    found = read(path, **sizes).rows
    assert [row["tokens"] for row in found] == [list(chain(*document)) for document in documents]
    if len(documents) != sum(map(len, documents)):
        starts = [[sum(map(len, document[:number])) for number in range(len(document))] for document in documents]
        assert [row["sequences"] for row in found] == starts


def test_sequences_that_do_not_lie_one_behind_the_other_are_read_where_they_lie(tmp_path):
    path = write_documents(tmp_path / "a", [[1, 2], [3], [4, 5, 6]])
    data = bytearray(path.read_bytes())
    struct.pack_into("<3i", data, 34, 3, 1, 2)
    struct.pack_into("<3q", data, 46, 6, 4, 0)
    path.write_bytes(data)
    assert [row["tokens"] for row in read(path).rows] == [[4, 5, 6], [3], [1, 2]]


def test_slices_are_ranges_of_documents(tmp_path):
    path = write_documents(tmp_path / "a", make_documents(500))
    pieces = survey(path, slice_bytes=16_000).pieces
    assert len(pieces) > 10
    assert [piece.first for piece in pieces] == [0, *(piece.last for piece in pieces[:-1])]
    assert pieces[-1].last == 500
    assert sum(piece.bytes for piece in pieces) == (tmp_path / "a.bin").stat().st_size


def test_a_document_that_memory_has_no_room_for_is_set_aside_by_its_number(tmp_path):
    path = write_documents(tmp_path / "a", [[1], [2] * 500, [3]])
    answer = read(path, most_row_bytes=999)
    assert ([row["tokens"] for row in answer.rows], answer.ordinals) == ([[1], [3]], [0, 2])
    (line,) = answer.aside
    assert (line["position"], "1,000 bytes" in line["detail"]) == (1, True)


def damaged(tmp_path: Path, at: int, form: str, *values: int) -> Path:
    path = write_documents(tmp_path / "a", [[1, 2], [3], [4, 5, 6]])
    data = bytearray(path.read_bytes())
    struct.pack_into(form, data, at, *values)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("at", "form", "value", "told"),
    [
        (0, "<B", 0, r"at byte 0 it has b'\\x00MIDIDX\\x00\\x00', and such a file begins with b'MMIDIDX"),
        (9, "<Q", 2, "at byte 9 it has version 2, and 1 is known"),
        (17, "<B", 7, r"at byte 17 it has 7 for the type of tokens, and whole numbers are 1 \(uint8\), "),
        (17, "<B", 99, "at byte 17 it has 99"),
        (18, "<Q", 4, "it has 102 bytes, and 4 sequences and 4 edges of documents.* at byte 18, take 114"),
        (18, "<Q", 2**64 - 1, "it has 102 bytes, and 18,446,744,073,709,551,615 sequences"),
        (70, "<q", 1, "its documents begin with sequence 1 and end with 3, and it has 3"),
        (94, "<q", 2, "its documents begin with sequence 0 and end with 2, and it has 3"),
        (62, "<q", 7, r"sequence 2 has 3 tokens \(uint16\) from byte 7 on, and a.bin has 12 bytes"),
    ],
)
def test_an_index_that_cannot_be_right_is_refused_with_the_byte_and_the_numbers(tmp_path, at, form, value, told):
    with pytest.raises(InputError, match=told) as caught:
        survey(damaged(tmp_path, at, form, value))
    assert str(tmp_path / "a.") in caught.value.where
    assert "on_bad_input: set_aside" in caught.value.next_step


def job_of(path: Path, **keys: Any) -> dict[str, Any]:
    return {"input": str(path), "output": str(path.parent / "out"), "workers": 0, **keys}


@pytest.mark.parametrize(
    ("at", "form", "value", "told"),
    [
        (34, "<i", -5, "sequence 0 has -5 tokens"),
        (46, "<q", -2, "sequence 0 has 2 tokens .uint16. from byte -2 on"),
        (
            54,
            "<q",
            2**63 - 1,
            "sequence 1 has 1 tokens .uint16. from byte 9,223,372,036,854,775,807 on, and a.bin has 12",
        ),
        (54, "<q", 5, r"sequence 1 begins at byte 5, inside of a token \(uint16\)"),
        (78, "<q", 3, "the edges of documents 0 to 3, from byte 70 on, do not rise from 0 to 3"),
    ],
)
def test_a_damaged_document_stops_the_job_or_is_set_aside_with_its_slice(tmp_path, at, form, value, told):
    path = damaged(tmp_path, at, form, value)
    with pytest.raises(InputError, match=told) as caught:
        penstock.run(job_of(path))
    assert "a.idx" in caught.value.where
    write_documents(tmp_path / "b", [[7], [8]])
    manifest = penstock.run(job_of(tmp_path / "*.idx", on_bad_input="set_aside"))
    read_step = next(step for step in manifest.account if step.step == "read")
    assert (read_step.taken, read_step.given, read_step.set_aside) == (5, 2, {"damaged documents": 3})


def test_a_bin_file_that_is_cut_short_or_missing_is_named(tmp_path):
    path = write_documents(tmp_path / "a", make_documents(10))
    os.truncate(tmp_path / "a.bin", 101)
    with pytest.raises(InputError, match=r"sequence 9 has \d+ tokens .* and a.bin has 101 bytes") as caught:
        survey(path)
    assert caught.value.where == str(tmp_path / "a.bin")
    (tmp_path / "a.bin").unlink()
    with pytest.raises(InputError, match=r"the file of its tokens is not here: a\.bin"):
        survey(path)


@pytest.mark.parametrize("more", [1, 200])
def test_an_index_of_an_earlier_bin_file_is_refused(tmp_path, more):
    path = write_documents(tmp_path / "a", make_documents(10))
    size = (tmp_path / "a.bin").stat().st_size
    with open(tmp_path / "a.bin", "ab") as file:
        file.write(bytes(more))
    with pytest.raises(InputError, match=f"its index take {size:,} bytes, and it has {size + more:,}"):
        survey(path)


def test_modes_of_several_modalities_are_refused(tmp_path):
    path = write_documents(tmp_path / "a", [[1], [2], [3]])
    path.write_bytes(path.read_bytes() + b"\0\1\0")
    with pytest.raises(InputError, match="a mode for each of its 3 sequences"):
        survey(path)


# In a job.


def test_a_folder_of_pairs_is_read_and_the_bin_files_are_not_left_over(tmp_path):
    for name in ("b", "a"):
        write_documents(tmp_path / "data" / name, make_documents(20, seed=ord(name)))
    plan = penstock.plan({**job_of(tmp_path / "data"), "output": str(tmp_path / "out")})
    assert (plan.survey.formats, plan.survey.unit, plan.survey.unread) == (("megatron",), "documents", ())
    penstock.run(plan)
    expected = [*make_documents(20, seed=ord("a")), *make_documents(20, seed=ord("b"))]
    assert penstock.open(tmp_path / "out")[:]["tokens"].to_pylist() == expected


def test_in_a_folder_of_tables_pairs_are_read_only_if_the_job_names_the_format(tmp_path):
    write_documents(tmp_path / "data" / "a", [[1], [2]])
    (tmp_path / "data" / "b.jsonl").write_text('{"x": 1}\n')
    job = {**job_of(tmp_path / "data"), "output": str(tmp_path / "out")}
    plan = penstock.plan(job)
    assert (plan.survey.formats, [each.what for each in plan.survey.unread]) == (("jsonl",), [".bin", ".idx"])
    named = penstock.plan({**job, "input": {"path": str(tmp_path / "data"), "format": "megatron"}})
    assert (named.survey.formats, named.survey.files) == (("megatron",), 1)


def test_documents_are_filtered_split_packed_and_loaded_with_every_one_accounted_for(tmp_path):
    documents = make_documents(400)
    stages: list[Any] = [{"filter": "length(tokens) > 10"}, {"split": {"test": 0.2}}, {"pack": 65}]
    write_documents(tmp_path / "data" / "corpus", documents)
    job = job_of(tmp_path / "data", output=str(tmp_path / "out"), stages=stages, slice_size="2KB")
    manifest = penstock.run({**job, "input": {"path": str(tmp_path / "data" / "*.idx"), "format": "megatron"}})
    long = [document for document in documents if len(document) > 10]
    kept = next(step for step in manifest.account if step.step == "filter")
    assert (kept.taken, kept.given) == (400, len(long))
    assert all(step.balances for step in (*manifest.account, *manifest.tokens))
    tail = manifest.tokens[-1].set_aside.get("tail", 0)
    assert sum(manifest.records(split) for split in manifest.splits) * 65 + tail == sum(map(len, long))
    batch = next(iter(penstock.load(tmp_path / "out", batch_size=4, length=64, shuffle=False)))
    assert batch["inputs"].shape == (4, 64)
    penstock.export(tmp_path / "out", "megatron")
    back = {**job, "output": str(tmp_path / "back"), "stages": [], "input": str(tmp_path / "out-megatron")}
    penstock.run(back)
    again = [tuple(document) for document in penstock.open(tmp_path / "back")[:]["tokens"].to_pylist()]
    missing = Counter(map(tuple, long)) - Counter(again)
    assert len(again) + sum(missing.values()) <= len(long) + len(manifest.splits)
    assert sum(missing.values()) <= len(manifest.splits)  # the last of each split has no tail
