"""Origins: the rows that a batch has drawn -> file, position and text of each of its segments. Used by maker.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.base.errors import ConfigError
from penstock.loader.batches import Array, Inputs, SegmentOrigin
from penstock.loader.order.inputs import inputs_by_dataset
from penstock.loader.order.kept import UNKNOWN, Kept, Marks
from penstock.loader.order.order import Held, Stream
from penstock.loader.tables import Shard
from penstock.shards.origins import NO_ORIGINS, Origin
from penstock.shards.packed import count_documents
from penstock.shards.rereading.documents import Reread

_UNKNOWN = Reread(None, None, "this dataset keeps no origins")


def origins_of(
    held: Held,
    batch: Mapping[str, Array],
    shards: Sequence[Shard],
    streams: Sequence[Stream],
    paths: Sequence[str],
    inputs: Inputs | None,
) -> Iterator[SegmentOrigin]:
    """`batch` was filled with the records; `shards` are those of all datasets, one after the other."""
    given = inputs_by_dataset(inputs, paths)
    datasets = [Kept(path, given[path]) for path in paths]
    if not any(kept.origins for kept in datasets):
        raise ConfigError(
            "this dataset does not say where its rows came from: its job kept no origins",
            where=", ".join(paths),
            next_step=NO_ORIGINS,
        )
    of = [kept for kept, stream in zip(datasets, streams, strict=True) for _ in stream.shard_records]
    found = list(_segments_of(held, batch, shards, of))
    for kept in datasets:
        own = [each for each in found if each.kept is kept and each.value != UNKNOWN]
        documents = kept.documents({each.place: each.hash for each in own})
        for each in own:
            each.document = documents[each.place]
    for each in found:
        yield each.origin()


@dataclass
class _Segment:
    """A segment and one of its origins; it has several where they are those of its whole row."""

    kept: Kept
    row: int
    number: int
    tokens: list[int]
    value: int
    hash: int | None
    document: Reread = _UNKNOWN

    @property
    def place(self) -> Origin:
        return self.kept.table.of(self.value)

    def origin(self) -> SegmentOrigin:
        source, file, position = (None, None, None) if self.value == UNKNOWN else self.place
        text, line, problem = self.document
        place = (self.row, self.number, self.kept.path, source, file, position, len(self.tokens))
        written = None if self.hash is None else f"{self.hash:016x}"
        return SegmentOrigin(*place, self.kept.text(self.tokens), line, written, text, problem)


def _segments_of(
    held: Held, batch: Mapping[str, Array], shards: Sequence[Shard], of: Sequence[Kept]
) -> Iterator[_Segment]:
    records = held.records
    is_one = records.shards.shape[1] == 1  # record per row
    for row in np.flatnonzero(records.shards[:, 0] >= 0).tolist():
        known: dict[int, tuple[Kept, Marks, bool]] = {}
        for number, tokens in _tokens_of(batch, row) if held.has_segments else [(0, [])]:
            place = 0 if is_one else number - 1
            if place not in known:
                shard, record = int(records.shards[row, place]), int(records.records[row, place])
                marks = of[shard].marks(shards[shard], record)
                known[place] = of[shard], marks, held.by_documents and _are_in_order(marks, shards[shard], record)
            kept, marks, in_order = known[place]
            for document, (value, hashed) in enumerate(marks[number - 1 : number] if in_order else marks, start=1):
                shown = document if not number and len(marks) > 1 else number
                yield _Segment(kept, row, shown, tokens, value, hashed)


def _are_in_order(marks: Marks, columns: Shard, record: int) -> bool:
    """Whether each segment of the row has an origin of its own. If not, each is of the whole row."""
    return len(marks) > 1 and len(marks) == int(count_documents(columns, record, record + 1)[0])


def _tokens_of(batch: Mapping[str, Array], row: int) -> list[tuple[int, list[int]]]:
    """Number and tokens of each segment of a row."""
    numbers, tokens = batch["inputs_segmentation"][row], batch["inputs"][row]
    return [(number, tokens[numbers == number].tolist()) for number in np.unique(numbers[numbers > 0]).tolist()]
