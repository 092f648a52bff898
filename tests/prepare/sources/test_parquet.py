"""Parquet: every row arrives once, in order, whatever the row groups and the batches; damage is told."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import FileError, InputError
from penstock.base.faults import Sweep, sweeping
from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.sources import Reading, UnreadablePart, read_segment
from penstock.prepare.sources.slices import cut_slices
from tests.prepare.sources.reader import read, survey


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("parquet")


def write(folder: Path, table: pa.Table, name: str = "rows.parquet", **options) -> Path:
    path = folder / name
    pq.write_table(table, path, **options)
    return path


def table_of(count: int) -> pa.Table:
    return pa.table(
        {
            "number": pa.array(range(count), pa.int32()),
            "text": [None if i % 7 == 3 else f"row {i}" for i in range(count)],
            "kind": pa.array([f"k{i % 3}" for i in range(count)]).dictionary_encode(),
        }
    )


def invalid_utf8(values: list[bytes | None]) -> pa.Array:
    binary = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers(), binary.null_count)


@given(count=st.integers(0, 60), group=st.integers(1, 20), batch=st.integers(1, 70), slice_bytes=st.integers(1, 3000))
def test_row_groups_batches_and_slices_of_any_size_give_the_same_rows(folder, count, group, batch, slice_bytes):
    table = table_of(count)
    path = write(folder, table, row_group_size=group)
    answer = read(path, rows_at_once=batch, slice_bytes=slice_bytes)
    assert answer.rows == table.to_pylist()
    assert answer.ordinals == list(range(count))


def test_a_slice_of_several_row_groups_reads_them_as_one_segment(tmp_path):
    path = write(tmp_path, table_of(50), row_group_size=10)
    pieces = survey(path).pieces
    (whole,) = cut_slices(pieces, slice_bytes=1 << 30)
    assert [(piece.first, piece.last, piece.ordinal, piece.rows) for piece in pieces[:2]] == [
        (0, 1, 0, 10),
        (1, 2, 10, 10),
    ]
    assert [(each.first, each.last, each.rows) for each in whole.segments] == [(0, 5, 50)]


def test_a_giant_row_group_is_read_a_batch_at_a_time(tmp_path):
    path = write(tmp_path, pa.table({"a": range(100_000)}))
    (segment,) = survey(path).pieces
    reading = reading_of(path, rows_at_once=333)
    sizes = [len(rows) for rows in read_segment(segment, reading, frozenset())]
    assert max(sizes) <= 333
    assert sum(sizes) == 100_000


LONG = "x" * 10_000
REPEATED = {
    "text": pa.array(["a", LONG]),
    "list": pa.array([[], ["a", LONG]]),
    "struct": pa.array([{"a": None}, {"a": LONG}]),
    "map": pa.array([[], [("k", LONG)]], pa.map_(pa.string(), pa.string())),
}


@pytest.mark.parametrize("kind", REPEATED)
def test_long_values_that_the_file_holds_once_make_small_batches(tmp_path, kind):
    """The footer says two bytes per row, and so do the first rows."""
    values = REPEATED[kind].take(pa.array([0] * 4_000 + [1] * 4_000))
    path = write(tmp_path, pa.table({"id": range(8_000), "value": values}))
    (segment,) = survey(path).pieces
    rows, large = 0, 0
    for each in read_segment(segment, reading_of(path, rows_at_once=8_000), frozenset()):
        assert each.batch.column("value").equals(values.slice(rows, len(each)))
        rows, large = rows + len(each), max(large, each.batch.nbytes)
    assert rows == 8_000
    assert large <= 17 << 20  # of 40 MB


@pytest.mark.parametrize("value", [0, "x" * 20], ids=["number", "text"])
def test_lists_of_equal_values_make_small_batches(tmp_path, value):
    """Runs of equal codes take a few bytes, however many values they are."""
    lists = pa.array([[value] * 10_000] * 400)
    path = write(tmp_path, pa.table({"value": lists}))
    assert path.stat().st_size < 100_000
    surveyed = survey(path)
    assert surveyed.decoded_bytes >= 16_000_000
    rows, large = 0, 0
    for each in read_segment(surveyed.pieces[0], reading_of(path, rows_at_once=400), frozenset()):
        assert each.batch.column("value").equals(lists.slice(rows, len(each)))
        rows, large = rows + len(each), max(large, each.batch.nbytes)
    assert rows == 400
    assert large <= 20 << 20  # of 32 and 96 MB


def test_columns_come_in_the_order_asked_for_whatever_the_files_own(tmp_path):
    table = table_of(5)
    path = write(tmp_path, table.select(["kind", "text", "number"]))
    assert read(path, columns=["number", "kind"]).rows == table.select(["number", "kind"]).to_pylist()


def test_a_column_with_a_dot_in_its_name_is_not_taken_for_a_part_of_another(tmp_path):
    path = write(tmp_path, pa.table({"a.b": [1, 2], "a": [{"b": 5}, {"b": 6}], "c": ["x", "y"]}))
    assert read(path, columns=["c", "a.b"]).rows == [{"c": "x", "a.b": 1}, {"c": "y", "a.b": 2}]


def test_a_dictionary_column_stays_one(tmp_path):
    path = write(tmp_path, table_of(10), row_group_size=3)
    assert survey(path).schema.field("kind").type == pa.dictionary(pa.int32(), pa.string())


def test_text_that_is_not_utf8_is_set_aside_in_plain_and_dictionary_columns(tmp_path):
    plain = invalid_utf8([b"caf\xe9", b"ok", None, b"ok"])
    kinds = pa.DictionaryArray.from_arrays(pa.array([1, 1, None, 0], pa.int32()), invalid_utf8([b"\xff", b"good"]))
    path = write(tmp_path, pa.table({"a": range(4), "plain": plain, "kind": kinds}))
    answer = read(path)
    assert [row["a"] for row in answer.rows] == [1, 2]
    assert answer.ordinals == [1, 2]
    assert [line["position"] for line in answer.aside] == [0, 3]
    assert {line["reason"] for line in answer.aside} == {"text is not UTF-8"}
    assert answer.aside[1]["row"] == {"a": 3, "plain": "ok", "kind": "\\xff"}


def test_text_that_is_not_utf8_is_set_aside_inside_lists_and_structs(tmp_path):
    bad = invalid_utf8([b"ok", b"caf\xe9", b"ok"])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3, 3], pa.int32()), bad)
    structs = pa.StructArray.from_arrays([invalid_utf8([b"ok", b"\xff", None, b"ok"])], ["s"])
    path = write(tmp_path, pa.table({"a": range(4), "list": lists, "struct": structs}))
    answer = read(path)
    assert [row["a"] for row in answer.rows] == [0, 3]
    assert [line["position"] for line in answer.aside] == [1, 2]
    assert answer.aside[1]["row"] == {"a": 2, "list": ["caf\\xe9", "ok"], "struct": {"s": None}}


def test_views_and_runs_come_as_plain_types(tmp_path):
    texts = ["", "a" * 20, None]
    lists = pa.array([[text] for text in texts], pa.list_(pa.string_view()))
    table = pa.table({"a": pa.array(texts, pa.string_view()), "b": lists})
    path = write(tmp_path, table)
    assert survey(path).schema.types == [pa.string(), pa.list_(pa.field("element", pa.string()))]
    assert [row["a"] for row in read(path).rows] == texts
    assert [row["b"] for row in read(path).rows] == [[text] for text in texts]


@pytest.mark.parametrize("kept", [0, 3, 8, 100, -1, -9])
def test_a_file_that_breaks_off_is_refused_by_name_at_the_survey(tmp_path, kept):
    path = write(tmp_path, table_of(100))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError) as caught:
        survey(path)
    assert str(path) in str(caught.value)


def test_a_column_that_is_there_twice_is_refused_by_name(tmp_path):
    path = write(tmp_path, pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(InputError, match="column 'a' occurs twice"):
        survey(path)


def test_a_damaged_page_makes_its_row_group_unreadable_and_no_other(tmp_path):
    table = pa.table({"a": range(3000)})
    path = write(tmp_path, table, row_group_size=1000, write_page_checksum=True, compression="zstd")
    metadata = pq.read_metadata(path)
    chunk = metadata.row_group(1).column(0)
    data = bytearray(path.read_bytes())
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(data)
    (whole,) = cut_slices(survey(path).pieces, slice_bytes=1 << 30)
    reading = reading_of(path, rows_at_once=300)
    with pytest.raises(UnreadablePart) as caught:
        list(read_segment(whole.segments[0], reading, frozenset()))
    assert (caught.value.part, caught.value.ordinal, caught.value.rows) == (1, 1000, 1000)
    rest = [value for rows in read_segment(whole.segments[0], reading, frozenset({1})) for value in rows.ordinals]
    assert rest == [*range(1000), *range(2000, 3000)]


def test_a_failing_disk_is_not_taken_for_a_damaged_file(tmp_path):
    path = write(tmp_path, table_of(1000))
    (segment,) = survey(path).pieces
    with pytest.raises(FileError) as caught, sweeping(Sweep(fail_at=5, error=errno.EIO)):
        list(read_segment(segment, reading_of(path), frozenset()))
    assert caught.value.where == str(path)


def test_another_footer_is_another_identity(tmp_path):
    first = survey(write(tmp_path, table_of(10))).pieces[0].identity
    assert survey(write(tmp_path, table_of(10))).pieces[0].identity == first
    assert survey(write(tmp_path, table_of(11))).pieces[0].identity != first


def reading_of(path: Path, rows_at_once: int = 100) -> Reading:
    schema = survey(path).schema
    options = (SourceConfig(path=(str(path),)),)
    return Reading(schema, tuple(schema.names), True, rows_at_once, 1 << 20, ("parquet",), options)
