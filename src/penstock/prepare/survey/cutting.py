"""Cutting: the files that can be read -> the slices of the job, with the rows that its sources ask for."""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby

from penstock.base.errors import InputError
from penstock.prepare.sources import Reading, source_of
from penstock.prepare.sources.row_range import RowRange, pieces_in_range
from penstock.prepare.sources.slices import Segment, Slice, cut_slices
from penstock.prepare.stages.interfaces import Compares
from penstock.prepare.stages.stage import Stage
from penstock.prepare.survey.agreement import BadFile


def slices_of(
    pieces: Iterable[Segment], slice_bytes: int, files: int, stages: tuple[Stage, ...], formats: tuple[str, ...]
) -> tuple[Slice, ...]:
    """At most so many files per slice as the sources say, and so many rows as the stages say."""
    by_sources = (source_of(name).most_files(files) for name in formats)
    most = min((most for most in by_sources if most is not None), default=None)
    by_stages = (stage.most_rows_per_slice for stage in stages if isinstance(stage, Compares))
    return cut_slices(pieces, slice_bytes, most, min(by_stages, default=None))


def in_ranges(
    pieces: Iterable[Segment], ranges: dict[int, RowRange], bad: Sequence[BadFile], reading: Reading
) -> list[Segment]:
    """The pieces with the rows that the sources ask for: all, or those of `split: train[a:b]`."""
    for each in bad:
        if each.source in ranges:
            raise InputError(
                f"its rows cannot be counted, which `split: {ranges[each.source]}` needs: {each.detail}",
                where=each.path,
                next_step="replace the file, or leave it out of the input",
            )
    by_source = {number: list(own) for number, own in groupby(pieces, lambda piece: piece.source)}
    for number, rows in ranges.items():
        by_source[number] = pieces_in_range(number, by_source.get(number, []), rows, reading)
    return list(chain.from_iterable(by_source.values()))
