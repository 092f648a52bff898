"""Items: the samples that a user's own function makes of each item of a list, as Rows. No file is read.

An item whose function raises is set aside whole, by its number. So the samples of an item are held until its function
has come to the end; those of an item too large for that are given on, and taken back by starting the task anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.prepare.rows.rows import RAISED, Rows, SetAside
from penstock.prepare.samples.held import Held
from penstock.prepare.samples.items import Items as ItemList
from penstock.prepare.samples.samples import Converter, Problem, Typed
from penstock.prepare.samples.schema import arrow_schema
from penstock.prepare.sources import File, FileSurvey, Reading, Source, SourceOptions, UnreadablePart
from penstock.prepare.sources.function import Raised, yielded_by
from penstock.prepare.sources.slices import Segment

PATH = "items"
_MOST_SAMPLES = 1 << 20  # of an item: a position is the item's number times this, plus the sample's
_ITEM_BYTES = 1024  # that an item counts for where sizes are compared; its samples are measured
_SLICES, _MOST_ITEMS = 64, 1 << 16  # of a job, where there are enough items; and items of a slice
_TELL_SECONDS = 0.2


class Items(Source):
    unit = "samples"
    is_one_part = False
    reads_files = False

    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:  # noqa: ARG002
        assert options.items is not None
        count = len(options.items)
        size = min(_MOST_ITEMS, -(-count // _SLICES))
        cuts = [(first, min(first + size, count)) for first in range(0, count, size)]
        pieces = (file.segment(options.items.digest, -1, _ITEM_BYTES * (b - a), a, b, a) for a, b in cuts)
        return FileSurvey(arrow_schema(options.samples), tuple(pieces))

    def most_files(self, files: int) -> int:  # noqa: ARG002
        """A slice is one run of items: where it is cut depends on their number alone."""
        return 1

    def is_changed(self, segment: Segment) -> bool:  # noqa: ARG002
        return False

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows | UnreadablePart]:
        taking = _Taking(segment, reading)
        for number in range(segment.first, segment.last):
            if number in reading.excluded:  # whoever runs the task knows why, and counts it
                yield from taking.given()
                yield _lost(segment, number, "", "")
                continue
            try:
                yield from taking.take(number)
            except Raised as raised:
                yield from taking.put_back()
                lost = _lost(segment, number, raised.what, raised.trace)
                if taking.is_given:
                    raise lost from raised
                yield lost
        yield from taking.given()


SOURCE = Items()


def item_files(source: int, items: ItemList, most: int) -> list[File]:
    """Some items as files of their own, to try the function on: the first, and others at equal distances."""
    spread = {round(number * (len(items) - 1) / max(1, most - 1)) for number in range(most)}
    return [File(source, _name(number), str(number), PATH) for number in sorted(spread | {*range(len(items))[:most]})]


def one_item(file: File) -> Segment:
    return file.segment("", -1, _ITEM_BYTES, int(file.location), int(file.location) + 1)


def _name(number: int) -> str:
    return f"item {number}"


def _lost(segment: Segment, number: int, what: str, trace: str) -> UnreadablePart:
    return UnreadablePart(segment, number, number * _MOST_SAMPLES, 1, what, RAISED, trace, _name(number))


@dataclass
class _Taking:
    """Samples on their way into batches: of items that came to their end, and of the one at work."""

    segment: Segment
    reading: Reading
    is_given: bool = False  # whether samples of the item at work are gone already
    items: int = 0  # that came to their end since the last batch
    places: list[int] = field(default_factory=list)  # positions of the held samples

    def __post_init__(self) -> None:
        self._options = self.reading.options[self.segment.source]
        self._converter = Converter(self._options.samples)
        self._held = self._none_held()
        self._told = time.monotonic()
        self._ended = 0  # held samples of items that came to their end

    def _none_held(self) -> Held:
        return Held(self._converter, self.reading.rows_at_once, self.reading.bytes_at_once)

    def take(self, number: int) -> Iterator[Rows]:
        """Call the function on an item; batches that are full are given."""
        assert self._options.items is not None
        self.is_given = False
        place = number * _MOST_SAMPLES
        for each in yielded_by(self._options.function, self._options.items[number]):
            rest = each
            while True:
                before = len(self._held)
                rest = self._held.take(rest)
                first, place = place, place + len(self._held) - before
                if place > (number + 1) * _MOST_SAMPLES:
                    raise Raised(ValueError(f"an item makes at most {_MOST_SAMPLES:,} samples"), self._options.function)
                self.places += range(first, place)
                self._tell()
                if self._held.is_full:
                    self.is_given = True
                    yield from self.given()
                if rest is None:
                    break
        self.items += 1
        self._ended = len(self._held)

    def put_back(self) -> Iterator[Rows]:
        """Forget the samples of the item at work, and give those before it: lines of rejected/ stand in order."""
        if self._ended or self.items:
            yield self._rows(self._held.typed().before(self._ended))
        self._begin()

    def given(self) -> Iterator[Rows]:
        if len(self._held) or self.items:
            yield self._rows(self._held.typed())
        self._begin()

    def _rows(self, typed: Typed) -> Rows:
        segment, columns = self.segment, list(self.reading.columns)
        places = np.array(self.places, np.int64)[typed.numbers]
        rows = Rows(typed.batch.select(columns), segment.source, (segment.path,), places)
        aside = tuple(_set_aside(each, segment, self.places) for each in typed.problems)
        return replace(rows, set_aside=aside, made_of=(self.items, ()))

    def _begin(self) -> None:
        self._held, self.places, self.items, self._ended = self._none_held(), [], 0, 0

    def _tell(self) -> None:
        if self.reading.tell and time.monotonic() > self._told + _TELL_SECONDS:  # a slow function is not a hanging one
            self._told = time.monotonic()
            self.reading.tell(len(self._held))


def _set_aside(problem: Problem, segment: Segment, places: Sequence[int]) -> SetAside:
    item, sample = divmod(places[problem.sample], _MOST_SAMPLES)
    facts = {"sample": sample, "key": problem.key, "detail": problem.detail}
    return replace(segment, path=_name(item)).set_aside(places[problem.sample], problem.reason, **facts)
