"""Read a file through its source, as a task does, and keep what came out in plain Python."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.sources import File, FileSurvey, Reading, read_segment, survey_file
from penstock.prepare.sources.registry import format_of


@dataclass
class Answer:
    rows: list[dict[str, Any]] = field(default_factory=list)
    ordinals: list[int] = field(default_factory=list)
    aside: list[dict[str, Any]] = field(default_factory=list)

    @property
    def raw(self) -> list[str]:
        return [line["raw"] for line in self.aside]

    @property
    def details(self) -> list[str]:
        return [line["detail"] for line in self.aside]


def survey(path: Path | str, slice_bytes: int = 1 << 30, **options: Any) -> FileSurvey:
    source = SourceConfig(path=(str(path),), **options)
    return survey_file(
        File(0, os.path.basename(path), str(path), format_of(str(path), source.format)), source, slice_bytes
    )


def read(
    path: Path | str,
    *,
    columns: list[str] | None = None,
    slice_bytes: int = 1 << 30,
    bytes_at_once: int = 1 << 20,
    rows_at_once: int = 1000,
    most_record_bytes: int = 1 << 62,
    most_row_bytes: int = 1 << 62,
    schema: pa.Schema | None = None,
    **options: Any,
) -> Answer:
    """Everything in the file, segment after segment. Without `columns` all of them, and no others are allowed.

    `schema` is that of the job's first file, where it is another one.
    """
    source = SourceConfig(path=(str(path),), **options)
    surveyed = survey(path, slice_bytes, **options)
    schema = schema or surveyed.schema
    reading = Reading(
        schema=schema,
        columns=tuple(columns or schema.names),
        strict=columns is None,
        rows_at_once=rows_at_once,
        bytes_at_once=bytes_at_once,
        formats=(format_of(str(path), source.format),),
        options=(source,),
        most_record_bytes=most_record_bytes,
        most_row_bytes=most_row_bytes,
    )
    answer = Answer()
    for segment in surveyed.pieces:
        for rows in read_segment(segment, reading, frozenset()):
            rows.batch.validate(full=True)
            assert len(rows) == len(rows.ordinals)
            answer.rows += rows.batch.to_pylist()
            answer.ordinals += rows.ordinals.tolist()
            for aside in rows.set_aside:
                assert aside.count == len(aside.kept)
                answer.aside += aside.kept
    return answer
