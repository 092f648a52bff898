"""Function: samples that a user's own function makes of files and of rows; what it raises sets these aside, whole."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import InputError
from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples.schema import arrow_schema, declared_schema
from penstock.prepare.sources import File, Reading, UnreadablePart, function, read_segment, refuse_changed
from penstock.prepare.sources.registry import format_of
from penstock.prepare.sources.slices import cut_slices

HERE = __name__
COUNTED = {"first": "int64", "rows": "int64"}


# What a user might write.


def numbers(path: Path) -> Iterator[dict[str, Any]]:
    """A sample a line; `stop` raises."""
    for line in path.read_text().splitlines():
        yield {"value": int(line)}


def counted(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """One sample a batch: its first number, and how many there are."""
    yield {"first": batch["a"][0].as_py(), "rows": batch.num_rows}


def doubled(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Two samples a row."""
    for value in batch["a"].to_pylist():
        yield {"value": value}
        yield {"value": -value}


def one_dict(path: Path) -> dict[str, Any]:
    return {"value": len(path.read_bytes())}


def a_list(path: Path) -> list[dict[str, Any]]:
    return [{"value": 1}, {"value": 2}] if path.read_bytes() else []


def batches(path: Path) -> Iterator[Any]:
    """Like `numbers`, three lines at a time."""
    lines = path.read_text().splitlines()
    for start in range(0, len(lines), 3):
        yield penstock.Batch({"value": np.array([int(line) for line in lines[start : start + 3]])})


def a_batch(path: Path) -> penstock.Batch:
    return penstock.Batch({"value": [int(line) for line in path.read_text().splitlines()]})


def a_number(path: Path) -> int:  # noqa: ARG001
    return 5


def nothing(path: Path) -> None:  # noqa: ARG001
    return None


def out_of_memory(path: Path) -> None:
    raise MemoryError(path)


def leaving(path: Path) -> None:
    sys.exit(len(path.name))


def read(
    path: Path,
    target: str,
    schema: dict[str, str],
    *,
    rows_at_once: int = 1000,
    bytes_at_once: int = 1 << 20,
    excluded: frozenset[int] = frozenset(),
    slice_bytes: int = 1 << 30,
    **options: Any,
) -> list[Rows | UnreadablePart]:
    """All that comes of the file, slice after slice."""
    key = "path" if options.pop("takes_rows", False) else "files"
    source = SourceConfig(**{key: str(path)}, function=f"{HERE}:{target}", **options)
    known = source.options(declared_schema(schema, {}))
    surveyed = function.SOURCE.survey(File(0, path.name, str(path), "function"), known, slice_bytes)
    assert surveyed.schema == arrow_schema(known.samples)
    names = tuple(surveyed.schema.names)
    reading = Reading(surveyed.schema, names, True, rows_at_once, bytes_at_once, ("function",), (known,))
    answer: list[Rows | UnreadablePart] = []
    for piece in cut_slices(surveyed.pieces, slice_bytes):
        for segment in piece.segments:
            answer += read_segment(segment, reading, excluded)
        refuse_changed(piece, reading)
    for rows in answer:
        if isinstance(rows, Rows):
            rows.batch.validate(full=True)
            assert len(rows) == len(rows.ordinals) <= rows_at_once
    return answer


def samples(answer: list[Rows | UnreadablePart]) -> list[dict[str, Any]]:
    return [sample for rows in answer if isinstance(rows, Rows) for sample in rows.batch.to_pylist()]


def positions(answer: list[Rows | UnreadablePart]) -> list[int]:
    return [int(each) for rows in answer if isinstance(rows, Rows) for each in rows.ordinals]


def given_rows(answer: list[Rows | UnreadablePart]) -> list[int]:
    return [rows.made_of[0] for rows in answer if isinstance(rows, Rows) and rows.made_of]


def write(folder: Path, values: Any, suffix: str, **options: Any) -> Path:
    """A table of one column `a`, in the format that the suffix says."""
    path = folder / f"rows{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"a": pa.array(values, pa.int64())}), path, use_dictionary=False, **options)
    elif suffix == ".csv":
        path.write_text("a\n" + "".join(f"{value}\n" for value in values))
    else:
        path.write_text("".join(json.dumps({"a": value}) + "\n" for value in values))
    return path


# Whole files.


@given(count=st.integers(0, 40), rows_at_once=st.integers(1, 50), bytes_at_once=st.integers(1, 400))
def test_the_samples_of_a_file_come_in_order_however_many_are_held(
    tmp_path_factory, count, rows_at_once, bytes_at_once
):
    path = tmp_path_factory.getbasetemp() / "numbers.txt"
    path.write_text("".join(f"{number}\n" for number in range(count)))
    answer = read(path, "numbers", {"value": "int64"}, rows_at_once=rows_at_once, bytes_at_once=bytes_at_once)
    assert samples(answer) == [{"value": number} for number in range(count)]
    assert positions(answer) == list(range(count))
    assert given_rows(answer) == []


@given(count=st.integers(0, 40), rows_at_once=st.integers(1, 50), bytes_at_once=st.integers(1, 400))
def test_a_function_may_yield_batches_or_return_one(tmp_path_factory, count, rows_at_once, bytes_at_once):
    path = tmp_path_factory.mktemp("file") / "numbers"
    path.write_text("".join(f"{number}\n" for number in range(count)))
    limits = {"rows_at_once": rows_at_once, "bytes_at_once": bytes_at_once}
    for target in ("batches", "a_batch"):
        answer = read(path, target, {"value": "int64"}, **limits)
        assert samples(answer) == [{"value": number} for number in range(count)]
        assert positions(answer) == list(range(count))


def test_a_function_may_return_one_sample_or_a_list(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(b"12345")
    assert samples(read(path, "one_dict", {"value": "int64"})) == [{"value": 5}]
    assert samples(read(path, "a_list", {"value": "int64"})) == [{"value": 1}, {"value": 2}]
    path.write_bytes(b"")
    assert samples(read(path, "a_list", {"value": "int64"})) == []


def test_what_a_function_raises_sets_its_file_aside_with_the_users_own_lines(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("1\n2\nstop\n")
    (lost,) = read(path, "numbers", {"value": "int64"})
    assert isinstance(lost, UnreadablePart)
    assert (lost.title, lost.rows, lost.segment.path) == ("function raised", -1, "numbers.txt")
    assert lost.reason == "ValueError: invalid literal for int() with base 10: 'stop'"
    assert lost.trace.endswith(', in numbers: yield {"value": int(line)}')
    assert lost.trace.startswith("test_function.py, line ")
    assert str(tmp_path) not in lost.trace


def test_samples_that_were_given_on_already_are_taken_back_by_raising(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("1\n" * 100 + "stop\n")
    with pytest.raises(UnreadablePart, match="invalid literal"):
        read(path, "numbers", {"value": "int64"}, rows_at_once=10, bytes_at_once=100)


def test_a_function_that_returns_nothing_is_told_what_to_yield(tmp_path):
    (tmp_path / "raw").touch()
    (lost,) = read(tmp_path / "raw", "nothing", {"value": "int64"})
    assert "nothing returned None; it should yield samples" in str(lost)


def test_a_function_that_returns_a_number_is_told_the_same(tmp_path):
    (tmp_path / "raw").touch()
    (lost,) = read(tmp_path / "raw", "a_number", {"value": "int64"})
    assert "a_number returned a value of type int; it should yield samples" in str(lost)


@pytest.mark.parametrize(("target", "reason"), [("out_of_memory", "MemoryError: "), ("leaving", "SystemExit: 3")])
def test_a_function_that_gives_up_in_another_way_sets_its_file_aside_too(tmp_path, target, reason):
    (tmp_path / "raw").touch()
    (lost,) = read(tmp_path / "raw", target, {"value": "int64"})
    assert isinstance(lost, UnreadablePart)
    assert lost.reason.startswith(reason)


def test_a_sample_that_does_not_fit_is_set_aside_with_its_number_and_key(tmp_path):
    path = tmp_path / "numbers.txt"
    path.write_text("1\n300\n2\n-129\n3\n")
    answer = read(path, "numbers", {"value": "int8"}, rows_at_once=2)
    assert samples(answer) == [{"value": 1}, {"value": 2}, {"value": 3}]
    assert positions(answer) == [0, 2, 4]
    lines = [line for rows in answer for aside in rows.set_aside for line in aside.kept]
    assert [(line["sample"], line["position"], line["key"]) for line in lines] == [(1, 1, "value"), (3, 3, "value")]
    assert "300" in lines[0]["detail"]


def test_a_raw_file_is_one_segment_known_by_its_ends(tmp_path):
    path = tmp_path / "raw"
    options = SourceConfig(files=str(path), function=f"{HERE}:one_dict").options(declared_schema({"a": "int8"}, {}))
    found = []
    for content in (b"", b"x", b"y"):
        path.write_bytes(content)
        (piece,) = function.SOURCE.survey(File(0, "raw", str(path), "function"), options, 10).pieces
        assert (piece.rows, piece.bytes, piece.first, piece.last) == (-1, max(1, len(content)), 0, 1)
        found.append(piece.identity)
    assert len(set(found)) == 3


# Rows of tables.


@pytest.mark.proof
@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
@given(
    count=st.integers(0, 60), batch_rows=st.integers(1, 25), rows_at_once=st.integers(1, 70), group=st.integers(1, 30)
)
def test_a_function_is_given_exactly_batch_rows_rows_whatever_is_read_at_once(
    tmp_path_factory, suffix, count, batch_rows, rows_at_once, group
):
    options = {"row_group_size": group} if suffix == ".parquet" else {}
    path = write(tmp_path_factory.getbasetemp(), range(count), suffix, **options)
    schema = {} if count or suffix == ".parquet" else {"types": {"a": "int64"}}
    answer = read(path, "counted", COUNTED, takes_rows=True, batch_rows=batch_rows, rows_at_once=rows_at_once, **schema)
    starts = range(0, count, batch_rows)
    assert samples(answer) == [{"first": start, "rows": min(batch_rows, count - start)} for start in starts]
    assert sum(given_rows(answer)) == count


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_positions_of_samples_are_in_order_and_do_not_depend_on_what_is_read_at_once(tmp_path, suffix):
    path = write(tmp_path, range(100), suffix)
    one, other = (
        read(path, "doubled", {"value": "int64"}, takes_rows=True, batch_rows=7, rows_at_once=many)
        for many in (14, 1000)
    )
    assert samples(one) == samples(other) == [{"value": sign * a} for a in range(100) for sign in (1, -1)]
    assert positions(one) == positions(other)
    assert np.all(np.diff(positions(one)) > 0)


def test_a_slice_begins_a_batch_of_its_own(tmp_path):
    path = write(tmp_path, range(30), ".parquet", row_group_size=10)
    answer = read(path, "counted", COUNTED, takes_rows=True, batch_rows=8, slice_bytes=1)
    assert [each["rows"] for each in samples(answer)] == [8, 2] * 3
    assert len(set(positions(answer))) == 6


def test_lines_that_cannot_be_read_are_set_aside_before_the_function(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,x\n2\n3,y\n4,z,too many\n5,w\n")
    answer = read(path, "doubled", {"value": "int64"}, takes_rows=True, batch_rows=2)
    assert [each["value"] for each in samples(answer)] == [1, -1, 3, -3, 5, -5]
    aside = [each for rows in answer if rows.made_of for each in rows.made_of[1]]
    assert (sum(given_rows(answer)), sum(each.count for each in aside)) == (3, 2)
    assert [line["raw"] for each in aside for line in each.kept] == ["2", "4,z,too many"]
    assert not any(rows.set_aside for rows in answer)


def test_a_raising_batch_is_set_aside_whole_and_the_others_stay(tmp_path):
    path = write(tmp_path, [1, 2, 3, None, 5, 6, 7], ".parquet")
    answer = read(path, "doubled", {"value": "int64"}, takes_rows=True, batch_rows=2)
    (lost,) = [each for each in answer if isinstance(each, UnreadablePart)]
    assert (lost.title, lost.ordinal, lost.rows) == ("function raised", 2, 2)
    assert lost.reason.startswith("TypeError: ")
    assert [each["value"] for each in samples(answer)] == [1, -1, 2, -2, 5, -5, 6, -6, 7, -7]
    assert sum(given_rows(answer)) == 5


def damage(path: Path, group: int) -> None:
    chunk = pq.read_metadata(path).row_group(group).column(0)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(data)


def test_an_unreadable_row_group_is_told_and_the_function_gets_the_rest(tmp_path):
    path = write(tmp_path, range(3000), ".parquet", row_group_size=1000, write_page_checksum=True, compression="zstd")
    damage(path, 1)
    with pytest.raises(UnreadablePart) as caught:
        read(path, "counted", COUNTED, takes_rows=True, batch_rows=800)
    assert (caught.value.part, caught.value.ordinal, caught.value.rows) == (1, 1000, 1000)
    answer = read(path, "counted", COUNTED, takes_rows=True, batch_rows=800, excluded=frozenset({1}))
    assert samples(answer) == [
        {"first": 0, "rows": 800},
        {"first": 800, "rows": 800},
        {"first": 2600, "rows": 400},
    ]


def test_a_table_whose_name_does_not_tell_its_format_is_refused(tmp_path):
    path = tmp_path / "rows.bin"
    path.touch()
    with pytest.raises(InputError, match="cannot tell the format"):
        read(path, "counted", COUNTED, takes_rows=True)
    assert format_of("rows.bin", "csv") == "csv"


# The account of a job.


def run(folder: Path, source: dict[str, Any], body: str, **keys: Any) -> dict[str, Any]:
    """The account by step, as (taken, given, set aside, made)."""
    (folder / "mine.py").write_text(body)
    job = {"input": {"function": "mine:samples", **source}, "output": "out", "workers": 0, "memory": "1GB", **keys}
    (folder / "job.yaml").write_text(json.dumps(job))
    manifest = penstock.run(folder / "job.yaml")
    return {step.step: (step.taken, step.given, step.set_aside, step.made) for step in manifest.account}


DOUBLED = """
def samples(batch):
    for a in batch["a"].to_pylist():
        yield {"value": a, "text": f"row {a}"}
        yield {"value": 1 // (a - 13), "text": "again"}
"""


def test_rows_that_a_function_is_given_have_a_step_of_their_own_in_the_account(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "".join(f"{n},x\n" for n in range(30)) + "30\n31,x,y\n")
    account = run(tmp_path, {"path": "rows.csv", "batch_rows": 4}, DOUBLED, on_bad_input="set_aside")
    assert account["files"] == (1, 1, {}, {})
    taken, given_on, aside, made = account["rows"]
    assert (taken, given_on, made) == (32, 26, {"samples": 52})
    assert aside.pop("function raised") == 4  # rows 12 to 15
    assert list(aside.values()) == [2]
    assert account["read"] == (52, 52, {}, {})
    assert account["write"][:2] == (52, 52)
    lines = [json.loads(line) for line in (tmp_path / "out/rejected/00000.jsonl").read_text().splitlines()]
    (raised,) = [line for line in lines if line["reason"] == "function raised"]
    assert raised["rows"] == 4
    assert raised["traceback"] == 'mine.py, line 5, in samples: yield {"value": 1 // (a - 13), "text": "again"}'
    assert len(lines) == 3


def test_an_unreadable_row_group_is_set_aside_or_stops_the_job(tmp_path):
    path = write(
        tmp_path, range(100, 400), ".parquet", row_group_size=100, write_page_checksum=True, compression="zstd"
    )
    damage(path, 1)
    source = {"path": "rows.parquet", "batch_rows": 64}
    with pytest.raises(InputError, match="unreadable row group of 100 rows"):
        run(tmp_path, source, DOUBLED)
    account = run(tmp_path, source, DOUBLED, on_bad_input="set_aside")
    assert account["rows"] == (300, 200, {"unreadable row group": 100}, {"samples": 400})
    assert account["write"][:2] == (400, 400)
    values = np.load(tmp_path / "out/value_train.npy")[::2]
    assert values.tolist() == [*range(100, 200), *range(300, 400)]


def test_a_raising_file_is_kept_by_name_with_its_traceback_and_the_others_are_prepared(tmp_path):
    for name, text in {"a": "1 2", "b": "3 x 4", "c": "5"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    body = "def samples(path):\n    for word in path.read_text().split():\n        yield {'value': int(word)}\n"
    account = run(tmp_path, {"files": "*.txt"}, body)
    assert account["files"] == (3, 2, {"function raised": 1}, {})
    assert account["read"] == (3, 3, {}, {})
    assert "rows" not in account
    (line,) = map(json.loads, (tmp_path / "out/rejected/00001.jsonl").read_text().splitlines())
    assert (line["file"], line["reason"]) == ("b.txt", "function raised")
    assert line["traceback"] == "mine.py, line 3, in samples: yield {'value': int(word)}"
    assert np.load(tmp_path / "out/value_train.npy").tolist() == [1, 2, 5]
