"""MDS: shards of MosaicML Streaming -> rows. A piece is a shard; it is read from front to back, some samples at a time.

A shard tells its columns itself. Where an index.json has it, the hashes that it has are compared before a row is given.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.base.errors import InputError
from penstock.prepare.rows.rows import Array, Rows, SetAside
from penstock.prepare.sources import File, FileSurvey, Reading, Source, SourceOptions, UnreadablePart
from penstock.prepare.sources.datasets.mds_columns import NoArray
from penstock.prepare.sources.datasets.mds_index import INDEX, shard_facts
from penstock.prepare.sources.datasets.mds_shard import Damage, Shard, open_shard
from penstock.prepare.sources.reading.bad_text import sound_text
from penstock.prepare.sources.reading.input_file import size_of, unusable
from penstock.prepare.sources.reading.large_rows import apart, too_large
from penstock.prepare.sources.slices import Segment

_OTHER_ARRAY = "array of another type or shape"
_ADVICE = "write such arrays into a dataset of their own"


class MDS(Source):
    unit = "samples"
    is_numbered = True

    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:  # noqa: ARG002
        known = self.identity(file.location)
        try:
            with open_shard(file.location) as shard:
                _refuse_other_index(file.location, shard)
                samples, size = len(shard), int(shard.offsets[-1])
                _settle(shard, shard.take(1, tuple(shard.columns)))
        except Damage as error:
            what = _wrong_hash(file.location) or str(error)
            raise unusable(f"not a readable shard of MDS: {what}", file.location) from error
        except ValueError as error:
            if wrong := _wrong_hash(file.location):
                raise unusable(f"not a readable shard of MDS: {wrong}", file.location) from error
            advice = "write the dataset again with this column in another encoding"
            raise InputError(str(error), where=file.location, next_step=advice) from error
        schema = pa.schema([(name, each.type) for name, each in shard.columns.items()])
        return FileSurvey(schema, (file.segment(known, samples, size, 0, samples),))

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows]:
        try:
            if wrong := _wrong_hash(segment.location):
                raise Damage(wrong)
            with open_shard(segment.location) as shard:
                yield from _rows(shard, segment, reading)
        except Damage as error:
            raise UnreadablePart(segment, 0, 0, segment.last, str(error), "damaged shard") from error


SOURCE = MDS()


def _wrong_hash(location: str) -> str:
    facts = shard_facts(location)
    return facts.wrong_hash(location) if facts else ""


def _refuse_other_index(location: str, shard: Shard) -> None:
    """Raise Damage for a shard that is not the one its index has."""
    facts = shard_facts(location)
    if not facts:
        return
    found = (len(shard), int(shard.offsets[-1]), size_of(location))
    if found != (facts.samples, facts.raw_bytes, facts.file_bytes):
        raise Damage(
            f"it has {found[0]:,} samples, {found[1]:,} bytes of them with their head, and {found[2]:,} bytes on disk; "
            f"{INDEX} has {facts.samples:,}, {facts.raw_bytes:,} and {facts.file_bytes:,}"
        )


def _settle(shard: Shard, values: dict[str, list[bytes]]) -> None:
    """Give columns the types that only the first sample tells."""
    settled = {}
    for name, (first, *_) in values.items():
        try:
            settled[name] = shard.columns[name].settled(first)
        except NoArray as error:
            raise Damage(f"column {name!r}: the first sample has no array: {error}") from error
        except ValueError as error:
            raise ValueError(f"column {name!r} is {error}") from error
    shard.columns = {**shard.columns, **settled}


def _rows(shard: Shard, segment: Segment, reading: Reading) -> Iterator[Rows]:
    most = min(reading.bytes_at_once, reading.most_row_bytes)
    while shard.next < len(shard):
        first, count = shard.next, shard.fitting(reading.rows_at_once, most)
        size, values = shard.bytes_of(count), shard.take(count, reading.columns)
        if not first:
            _settle(shard, values)
        if size > reading.most_row_bytes:  # a single one
            yield reading.none_of(segment, too_large(segment, first, size, reading.most_row_bytes))
            continue
        batch, bad = _decoded(shard, values, reading)
        if bad:
            yield reading.none_of(segment, *(_aside(segment, first + number, bad[number]) for number in sorted(bad)))
        good = np.setdiff1d(np.arange(count), list(bad))
        yield from _sound(batch.take(pa.array(good)) if bad else batch, first + good, segment, reading)


def _decoded(shard: Shard, values: dict[str, list[bytes]], reading: Reading) -> tuple[pa.RecordBatch, dict[int, str]]:
    bad: dict[int, str] = {}
    arrays = []
    for name in reading.columns:
        array, worse = shard.columns[name].decode(values[name])
        bad |= {number: f"column {name!r}: {why}" for number, why in worse.items()}
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=reading.wanted), bad


def _aside(segment: Segment, ordinal: int, why: str) -> SetAside:
    return replace(segment.set_aside(ordinal, _OTHER_ARRAY, detail=why), advice=_ADVICE)


def _sound(batch: pa.RecordBatch, ordinals: Array, segment: Segment, reading: Reading) -> Iterator[Rows]:
    rows = Rows(batch, segment.source, (segment.path,), ordinals)
    for part in apart(rows, segment, reading.most_row_bytes):
        yield sound_text(part, reading.repairs(segment))
