"""Scouting: some files are enough to tell what a function yields; where they are not, the error says which and why."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ConfigError, InputError
from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.samples.schema import REQUIRED, declared_schema
from penstock.prepare.sources import File
from penstock.prepare.survey.scouting import Scouted, scout, spread
from tests.prepare.samples.words import short_words

HERE = __name__
CALLED: list[str] = []


# What a user might write.


def words(path: Path) -> Iterator[dict[str, Any]]:
    """A sample a word: `x` raises, a number with a point is a float."""
    CALLED.append(path.name)
    for word in path.read_text().split():
        if word == "x":
            raise ValueError("no x")
        yield {"value": float(word) if "." in word else int(word), "name": path.name}


def slowly(path: Path) -> Iterator[dict[str, Any]]:
    CALLED.append(path.name)
    time.sleep(0.2)
    yield {"value": 1}


def keys(path: Path) -> Iterator[dict[str, Any]]:
    yield dict.fromkeys(path.read_text().split(), 1)


def rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    CALLED.append(f"{batch.num_rows} rows")
    for value in batch["a"].to_pylist():
        yield {"value": value}


@pytest.fixture(autouse=True)
def nothing_called_yet():
    CALLED.clear()


def write(folder: Path, *texts: str) -> list[File]:
    for number, text in enumerate(texts):
        (folder / f"{number:03d}.txt").write_text(text)
    return [File(0, each.name, str(each), "function") for each in sorted(folder.glob("*.txt"))]


def look(
    files: list[File],
    target: str = "words",
    *,
    schema: dict[str, Any] | None = None,
    floats: str = "float32",
    missing: dict[str, Any] | None = None,
    takes_rows: bool = False,
    **options: Any,
) -> Scouted:
    key = "path" if takes_rows else "files"
    source = SourceConfig(**{key: "any"}, function=f"{HERE}:{target}", **options)
    declared = declared_schema(schema, missing or {}) if schema else ()
    return scout(files, source.options(declared), floats, missing or {})


# Which files.


@given(st.integers(0, 500), st.integers(2, 100))
def test_files_are_spread_from_the_first_to_the_last(count, most):
    files = [File(0, f"{number}", f"/{number}", "function") for number in range(count)]
    chosen = spread(files, most)
    assert len(chosen) == len(set(chosen)) == min(count, most)
    assert chosen == sorted(chosen, key=files.index)
    assert [chosen[0], chosen[-1]] == [files[0], files[-1]] if files else not chosen


def test_a_hundred_files_are_asked_for_their_first_sample(tmp_path):
    files = write(tmp_path, *["1 x"] * 250)  # what comes behind the first sample is not asked for
    look(files, schema=None)
    assert CALLED[:3] == ["000.txt", "003.txt", "005.txt"]
    assert CALLED[99] == "249.txt"


def test_a_declared_schema_asks_nobody_but_for_the_projection(tmp_path):
    found = look(write(tmp_path, "1", "2"), schema={"value": "int8", "name": "string"})
    assert short_words(found.samples) == {"value": "int8", "name": "string"}
    assert {field.origin for field in found.samples} == {"declared"}
    assert CALLED[0] == "000.txt"


# What they tell.


def test_the_schema_is_that_of_the_first_samples_and_remembers_where_it_was_seen(tmp_path):
    found = look(write(tmp_path, "", "1.5 2"), floats="float16")
    assert short_words(found.samples) == {"value": "float16", "name": "string"}
    assert {field.origin for field in found.samples} == {"001.txt, sample 0"}
    # A whole number is no float, but stands for one without loss.
    assert found.sample.to_pylist() == [{"value": 1.5, "name": "001.txt"}, {"value": 2.0, "name": "001.txt"}]


def test_two_files_that_disagree_are_named_both(tmp_path):
    with pytest.raises(InputError) as caught:
        look(write(tmp_path, "1", "2.5"))
    assert caught.value.what == "key 'value' is int64 in 000.txt, sample 0, but float32 in 001.txt, sample 0"
    assert "schema: {value: float32" in caught.value.next_step


def test_a_key_that_some_files_lack_needs_what_stands_for_it(tmp_path):
    files = write(tmp_path, "a b", "a")
    with pytest.raises(InputError, match=r"key 'b' is in 000\.txt, sample 0, but not in 001\.txt, sample 0"):
        look(files, "keys")
    found = look(files, "keys", missing={"b": -1})
    assert [field.missing for field in found.samples] == [REQUIRED, -1]
    assert found.sample.to_pylist()[0] == {"a": 1, "b": 1}
    with pytest.raises(ConfigError, match="there is no column 'c'"):
        look(files, "keys", missing={"b": 0, "c": 0})


def test_files_that_raise_are_passed_over_where_others_tell(tmp_path):
    found = look(write(tmp_path, "x", "3", "4 x"))
    assert short_words(found.samples) == {"value": "int64", "name": "string"}
    assert found.sample["value"].to_pylist() == [3]  # of a file that raises nothing is kept


def test_the_first_samples_are_a_hundred_at_most_and_how_many_a_byte_gives_is_counted(tmp_path):
    found = look(write(tmp_path, "1 " * 240, "1 " * 240))
    assert found.sample.num_rows == 100
    assert found.stored_row_bytes == 2.0


def test_counting_samples_ends_when_it_takes_long(tmp_path):
    look(write(tmp_path, *["1"] * 20), "slowly", schema={"value": "int8"})
    assert 1 <= len(CALLED) <= 4


def test_a_file_counts_as_tried_only_if_the_function_was_called_on_it(tmp_path):
    """Planning measures the files that were tried. One that was not may end the process that measures."""
    files = write(tmp_path, *["1"] * 6)
    source = SourceConfig(files="any", function=f"{HERE}:words")
    declared = declared_schema({"value": "int8", "name": "string"}, {})
    found = scout(files, source.options(declared), "float32", {}, tell=lambda _: time.sleep(0.015))
    assert list(found.tried) == CALLED


# When they tell nothing.


def test_a_function_that_raises_for_every_file_is_told_with_its_own_line(tmp_path):
    files = write(tmp_path, "x", "", "x")
    with pytest.raises(InputError) as caught:
        look(files)
    assert "failed for 2 of 3 files, and yielded no sample for the others; the first: ValueError: no x" in (
        caught.value.what
    )
    assert caught.value.where == files[0].location
    assert "in words: raise ValueError" in caught.value.notes[0]


def test_a_function_that_yields_nothing_says_so_unless_a_schema_does(tmp_path):
    files = write(tmp_path, "", "")
    with pytest.raises(InputError, match="words yielded no sample for any of 2 files"):
        look(files)
    found = look(files, schema={"value": "int8", "name": "string"})
    assert (found.sample.num_rows, found.stored_row_bytes) == (0, 1.0)
    assert found.sample.schema.names == ["value", "name"]


def test_a_sample_that_is_no_dict_is_told_by_its_place(tmp_path):
    with pytest.raises(InputError, match="a sample is an empty dict") as caught:
        look(write(tmp_path, "", ""), "keys")
    assert caught.value.where == "000.txt, sample 0"


def test_a_first_sample_that_is_bad_is_passed_over_where_others_tell(tmp_path):
    files = write(tmp_path, "", "a")
    assert look(files, "keys").samples == look(files[1:], "keys").samples


# Rows of tables.


def table(folder: Path, name: str, count: int) -> File:
    pq.write_table(pa.table({"a": pa.array(range(count), pa.int16())}), folder / name, use_dictionary=False)
    return File(0, name, str(folder / name), "function")


def test_rows_are_given_as_they_will_be(tmp_path):
    found = look([table(tmp_path, "a.parquet", 25)], "rows", takes_rows=True, batch_rows=10)
    assert short_words(found.samples) == {"value": "int64"}
    assert CALLED == ["10 rows", "10 rows", "10 rows", "5 rows"]  # the first to see what it yields
    assert found.sample["value"].to_pylist() == list(range(25))


def test_a_long_table_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "long.parquet"
    pq.write_table(pa.table({"a": range(1_500_000)}), path, row_group_size=150_000, use_dictionary=False)
    look([File(0, path.name, str(path), "function")], "rows", takes_rows=True, batch_rows=150_000)
    assert len(CALLED) <= 5


def test_a_table_that_cannot_be_read_is_left_to_the_survey_where_others_tell(tmp_path):
    broken = table(tmp_path, "b.parquet", 25)
    Path(broken.location).write_bytes(b"PAR1 and no more")
    found = look([broken, table(tmp_path, "a.parquet", 3)], "rows", takes_rows=True)
    assert found.sample["value"].to_pylist() == [0, 1, 2]
    with pytest.raises(InputError, match="not a readable Parquet file") as caught:
        look([broken], "rows", takes_rows=True)
    assert broken.location in caught.value.where


def test_a_damaged_first_row_group_is_left_to_the_task_where_others_tell(tmp_path):
    pq.write_table(pa.table({"a": range(1000)}), tmp_path / "b.parquet", write_page_checksum=True, use_dictionary=False)
    data = bytearray((tmp_path / "b.parquet").read_bytes())
    data[pq.read_metadata(tmp_path / "b.parquet").row_group(0).column(0).data_page_offset + 500] ^= 1
    (tmp_path / "b.parquet").write_bytes(data)
    damaged = File(0, "b.parquet", str(tmp_path / "b.parquet"), "function")
    found = look([damaged, table(tmp_path, "a.parquet", 3)], "rows", takes_rows=True)
    assert found.sample["value"].to_pylist() == [0, 1, 2]
    with pytest.raises(InputError, match="could not verify page integrity") as caught:
        look([damaged], "rows", takes_rows=True)
    assert "declare the types" in caught.value.next_step
