"""A new source is one module and one line in the registry: this one, beside those that there are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import InputError, PenstockError
from penstock.base.faults import Sweep, sweeping
from penstock.base.files import ReadFile
from penstock.prepare.rows.rows import Rows, SetAside, rejected_line
from penstock.prepare.sources import File, FileSurvey, Reading, Source, SourceOptions
from penstock.prepare.sources.registry import SOURCES, Entry
from penstock.prepare.sources.slices import Segment
from tests.promises import workshop

# The module.

RECORD = 16  # bytes: a station of 7, a blank, its number of 7, a newline
SCHEMA = pa.schema([("station", pa.string()), ("rain", pa.int64())])


class FixedWidth(Source):
    """Records of one width: a segment is a range of them, and a number that is none is a bad record."""

    unit = "readings"

    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:  # noqa: ARG002
        size, at_once = os.path.getsize(file.location), max(1, slice_bytes // RECORD)
        if size % RECORD:
            raise InputError(f"its {size:,} bytes are no whole number of records of {RECORD}", where=file.location)
        known, records = self.identity(file.location), size // RECORD
        starts = range(0, records, at_once)
        stops = (min(start + at_once, records) for start in starts)
        pieces = (
            file.segment(known, stop - start, (stop - start) * RECORD, start, stop, start)
            for start, stop in zip(starts, stops, strict=True)
        )
        return FileSurvey(SCHEMA, tuple(pieces))

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows]:
        with ReadFile(segment.location) as handle:
            for first in range(segment.first, segment.last, reading.rows_at_once):
                last = min(first + reading.rows_at_once, segment.last)
                handle.seek(first * RECORD)
                yield records_of(handle.read((last - first) * RECORD).decode(), first, segment, reading)


def records_of(text: str, first: int, segment: Segment, reading: Reading) -> Rows:
    found = [(line[:7].strip(), line[8:].strip()) for line in text.splitlines()]
    good = [number for number, (_, rain) in enumerate(found) if rain.isdecimal()]
    bad = [number for number in range(len(found)) if number not in good]
    lines = [
        rejected_line(segment.source, segment.path, first + number, "no number", raw=found[number][1]) for number in bad
    ]
    columns = {"station": [found[number][0] for number in good], "rain": [int(found[number][1]) for number in good]}
    batch = pa.RecordBatch.from_pydict(columns, schema=SCHEMA).select(list(reading.columns))
    aside = (SetAside("no number", len(bad), lines),) if bad else ()
    return Rows(batch, segment.source, (segment.path,), first + np.array(good, "i8"), None, aside)


SOURCE = FixedWidth()

# The line in the registry.


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(SOURCES, "fixed", Entry(__name__, (".rain",)))


# What comes with it.


@pytest.fixture
def job(tmp_path: Path) -> dict[str, object]:
    (tmp_path / "data").mkdir()
    for name in ("a.rain", "b.rain"):
        records = ((f"{name[0]}{number}", "none" if number == 5 else str(number)) for number in range(40))
        (tmp_path / "data" / name).write_text("".join(f"{station:7} {rain:>7}\n" for station, rain in records))
    return {
        "input": str(tmp_path / "data"),
        "output": str(tmp_path / "out"),
        "stages": [{"filter": "rain >= 10"}],
        "slice_size": "160",
        "on_bad_input": "set_aside",
        "workers": 0,
    }


def rejected(output: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for path in sorted(output.glob("rejected/*.jsonl")) for line in path.open()]
    return [line for line in lines if line["reason"] == "no number"]


def test_files_of_a_new_format_are_found_by_their_ending_read_and_accounted_for(job, tmp_path):
    plan = penstock.plan(job)
    assert (plan.survey.unit, plan.survey.files, len(plan.survey.slices)) == ("readings", 2, 8)
    manifest = penstock.run(plan)
    read = manifest.account[1]
    assert (read.unit, read.taken, read.given, read.set_aside) == ("readings", 80, 78, {"no number": 2})
    assert sum(manifest.records(split) for split in manifest.splits) == 2 * 30
    assert [(line["file"], line["position"], line["raw"]) for line in rejected(tmp_path / "out")] == [
        ("a.rain", 5, "none"),
        ("b.rain", 5, "none"),
    ]
    assert penstock.verify(tmp_path / "out").problems == ()


def test_a_run_that_failed_is_resumed_with_the_same_result(job, tmp_path):
    whole = penstock.run(job)
    with sweeping(Sweep()) as counted:
        penstock.run(job, redo=True)  # like the next one: costs are known
    ledger = [number for number, (_, path) in enumerate(counted.operations) if "0-map-00003" in path]
    with sweeping(Sweep(ledger[-1], 5)), pytest.raises(PenstockError):
        penstock.run(job, redo=True)
    assert 0 < workshop.ledger_rows(tmp_path / "out") < 8
    assert penstock.run(job) == whole


def test_a_job_names_the_format_where_names_do_not_tell(job, tmp_path):
    (tmp_path / "data" / "a.rain").rename(tmp_path / "a.dat")
    with pytest.raises(
        InputError, match=r"format: parquet \| csv \| jsonl \| arrow \| text \| megatron \| mds \| fixed"
    ):
        penstock.plan({**job, "input": str(tmp_path / "a.dat")})
    named = penstock.plan({**job, "input": {"path": str(tmp_path / "a.dat"), "format": "fixed"}})
    assert named.survey.formats == ("fixed",)


def test_a_file_that_it_cannot_survey_is_set_aside(job, tmp_path):
    (tmp_path / "data" / "c.rain").write_text("too short")
    (bad,) = penstock.plan(job).survey.bad_files
    assert (bad.path, bad.detail) == ("c.rain", "its 9 bytes are no whole number of records of 16")
    with pytest.raises(InputError, match="no whole number of records"):
        penstock.plan({**job, "on_bad_input": "fail"})
