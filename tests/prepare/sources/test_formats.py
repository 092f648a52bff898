"""A file's format is what its name or the job says."""

from __future__ import annotations

import pytest

from penstock.base.errors import InputError
from penstock.prepare.sources import compression_of, format_of, identity_of_ends


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.parquet", "parquet"),
        ("a.PQ", "parquet"),
        ("a.csv", "csv"),
        ("a.tsv.gz", "csv"),
        ("a.jsonl.zst", "jsonl"),
        ("a.ndjson", "jsonl"),
        ("a.JSON.bz2", "jsonl"),
        ("a.arrow", "arrow"),
        ("a.feather", "arrow"),
        ("a.txt.zst", "text"),
    ],
)
def test_the_name_tells_the_format(name, expected):
    assert format_of(name, "auto") == expected


def test_a_declared_format_wins_over_the_name():
    assert format_of("data.txt", "csv") == "csv"
    assert format_of("data.csv", "jsonl") == "jsonl"


def test_a_name_that_tells_nothing_is_refused_with_what_to_write():
    with pytest.raises(InputError) as caught:
        format_of("data.dat", "auto")
    assert "format: parquet | csv | jsonl" in str(caught.value)


def test_the_suffix_tells_the_compression():
    names = ["a.csv", "a.csv.gz", "a.csv.ZST", "a.csv.bz2"]
    assert [compression_of(name) for name in names] == [None, "gzip", "zstd", "bz2"]


def test_a_changed_end_is_another_identity(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"x" * 200_000)
    first = identity_of_ends(str(path))
    path.write_bytes(b"x" * 199_999 + b"y")
    assert identity_of_ends(str(path)) != first
    path.write_bytes(b"y" + b"x" * 199_999)
    assert identity_of_ends(str(path)) != first
