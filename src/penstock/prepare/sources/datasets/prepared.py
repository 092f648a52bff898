"""Prepared: a finished dataset of penstock as input of another job. A file is a split; a row's position is its number.

Every block is checked against the dataset's own checksums when it is read. A damaged one stops the job.
"""

import os
from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa

from penstock.base.errors import InputError, IntegrityError, did_you_mean
from penstock.base.stores import open_store
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import Brought, File, FileSurvey, Reading, Source, SourceOptions
from penstock.prepare.sources.datasets.brought import brought_by, columns_of, with_brought
from penstock.prepare.sources.reading.input_file import was_changed
from penstock.prepare.sources.reading.large_rows import sound_rows
from penstock.prepare.sources.slices import Segment
from penstock.shards.columns import Column, is_columns
from penstock.shards.dataset import Dataset
from penstock.shards.manifest import Manifest, dataset_id, read_manifest
from penstock.shards.record import decode_batches

FORMAT = "dataset"
_PIECES_PER_SLICE = 16


class Prepared(Source):
    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:  # noqa: ARG002
        known = self.identity(file.location)
        manifest, split = _manifest(os.path.dirname(file.location), known), os.path.basename(file.location)
        return FileSurvey(
            columns_of(manifest), tuple(_pieces(file, known, manifest, split, slice_bytes // _PIECES_PER_SLICE))
        )

    def identity(self, location: str) -> str:
        """Id of the dataset: its manifest holds the digest of every file."""
        return dataset_id(open_store(os.path.dirname(location)))

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows]:
        root, split = os.path.split(segment.location)
        manifest = _manifest(root, segment.identity)
        brings = (segment.source, segment.path) in reading.brings_origins
        own = _brought(root, segment.identity) if brings else None
        columns = (*reading.columns, *(own.columns if own else ()))
        dataset = Dataset(open_store(root), manifest, split, columns)
        try:
            for shard, start, low, high in dataset.ranges(segment.first, segment.last):
                for batch, first in _batches(dataset, shard, low, high, reading):
                    for rows in sound_rows(batch, start + first, segment, reading):
                        yield with_brought(rows, own.origins, reading.columns) if own else rows
        except IntegrityError as error:
            error.where = f"{root}: {error.where}"
            error.next_step = "delete that file, and run the job that made this dataset again. Then check the disk"
            raise

    def brought(self, segment: Segment) -> Brought | None:
        return _brought(os.path.dirname(segment.location), segment.identity)


SOURCE = Prepared()


def split_location(place: str, split: str | None) -> str:
    """Location of a split, by its name: `prepared/train`. A dataset with one split needs no name."""
    store = open_store(place)
    manifest = read_manifest(store)
    names = list(manifest.splits)
    if split is None and len(names) > 1:
        raise InputError(
            f"this dataset has {len(names)} splits: {', '.join(names)}",
            where=place,
            next_step=f"choose one: {{path: ..., split: {names[0]}}}; for several, make each a separate source",
        )
    if split is not None and split not in names:
        raise InputError(
            f"there is no split {split!r}.{did_you_mean(split, names)}",
            where=place,
            next_step=f"choose one of: {', '.join(names)}",
        )
    _refuse_records(place, manifest)
    return os.path.join(place, split or names[0])


def _refuse_records(place: str, manifest: Manifest) -> None:
    shards = [shard for every in manifest.splits.values() for shard in every]
    if shards and not is_columns(shards[0].files):
        raise InputError(
            f"this dataset has `format: {manifest.config.get('format')}`, whose records have no columns to read",
            where=place,
            next_step="prepare it again without that `format:`, or name the data that it was made from",
        )


@lru_cache(maxsize=8)  # a task reads a few segments of few datasets
def _manifest(root: str, identity: str) -> Manifest:
    store = open_store(root)
    manifest = read_manifest(store)
    if dataset_id(store) != identity:
        raise was_changed("this dataset was prepared anew while the job was reading it", root)
    return manifest


@lru_cache(maxsize=8)
def _brought(root: str, identity: str) -> Brought | None:
    return brought_by(root, _manifest(root, identity))


def _pieces(file: File, known: str, manifest: Manifest, split: str, piece_bytes: int) -> Iterator[Segment]:
    """Ranges of records of about `piece_bytes`. None crosses the end of a shard."""
    start = 0
    for shard in manifest.splits[split]:
        size = sum(each.bytes for each in shard.files)
        count = max(1, shard.records * piece_bytes // max(size, 1))
        for first in range(0, shard.records, count):
            rows = min(count, shard.records - first)
            share = max(1, size * rows // shard.records)
            yield file.segment(known, rows, share, start + first, start + first + rows, start + first)
        start += shard.records


def _batches(
    dataset: Dataset, shard: int, low: int, high: int, reading: Reading
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """(records, the number of the first) of a part of a shard, as many at a time as `reading` allows."""
    columns = dataset.columns(shard)
    count = reading.rows_of(_row_bytes(columns, reading.columns, dataset.counts[shard]))
    for first in range(low, high, count):
        for batch in decode_batches(dataset.schema, columns, first, min(first + count, high), reading.bytes_at_once):
            yield batch, first
            first += batch.num_rows


def _row_bytes(columns: dict[str, Column], wanted: tuple[str, ...], records: int) -> float:
    """Bytes per record in the columns that are read. Parts of a column are called `name/offsets` and the like."""
    read = [each for name, each in columns.items() if name.partition("/")[0] in wanted]
    return sum(each.array.nbytes for each in read) / max(records, 1)
