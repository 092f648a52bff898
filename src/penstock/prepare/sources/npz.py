"""Npz: a piece is a file; columns are its members, arrays with one row per sample, read a batch of rows at a time."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from penstock.base.stores import open_store
from penstock.base.stores.store import OtherFolder, Store
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import File, FileSurvey, Reading, Source, SourceOptions, UnreadablePart
from penstock.prepare.sources.batches.contents import open_columns, open_contents
from penstock.prepare.sources.batches.members import DAMAGE
from penstock.prepare.sources.reading.bad_text import sound_text
from penstock.prepare.sources.reading.input_file import first_line
from penstock.prepare.sources.slices import Segment, Slice
from penstock.shards.manifest import MANIFEST, dataset_id, read_manifest


class Npz(Source):
    unit = "samples"
    is_numbered = True
    keeps_positions = True

    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:  # noqa: ARG002
        known = self.identity(file.location)  # the zip's directory, at the end, holds every member's checksum
        with open_contents(file.location, options, aloud=True) as contents:
            size = os.stat(file.location).st_size
            return FileSurvey(contents.schema, (file.segment(known, contents.rows, size),))

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows]:
        with open_contents(segment.location, reading.options[segment.source]) as contents, ExitStack() as stack:
            takes = open_columns(contents, segment, reading, stack)
            for path, ordinals in contents.stretches(segment.path, reading.rows_at_once):
                try:
                    arrays = [take(len(ordinals)) for take in takes.values()]
                except DAMAGE as error:
                    raise UnreadablePart(segment, 0, 0, contents.rows, first_line(error)) from error
                batch = pa.RecordBatch.from_arrays(arrays, names=list(takes))
                yield sound_text(Rows(batch, segment.source, (path,), ordinals))

    def folders(self, slices: Sequence[Slice]) -> tuple[OtherFolder, ...]:
        """Batch files that penstock wrote: others may read them meanwhile, but not make them anew."""
        folder = _own_folder(slices)
        if not folder or not folder.can_be_held():  # nobody makes anew what cannot be written
            return ()
        return (OtherFolder(folder.root, "these batch files", "intermediate_dir", shared=True),)

    def origin(self, slices: Sequence[Slice]) -> dict[str, Any]:
        """The account of the samples that batch files were made from, as their own manifest tells."""
        folder = _own_folder(slices)
        if not folder:
            return {}
        account = [asdict(step) for step in read_manifest(folder).account]
        return {"batches": {"dataset": dataset_id(folder), "account": account}}


SOURCE = Npz()


def _own_folder(slices: Sequence[Slice]) -> Store | None:
    """The folder of the files, if it is one and penstock wrote it."""
    places = {os.path.dirname(segment.location) for piece in slices for segment in piece.segments}
    folder = open_store(places.pop()) if len(places) == 1 else None
    return folder if folder and folder.exists(MANIFEST) else None
