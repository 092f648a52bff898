"""Reference: rows of tokens from columns, in plain Python and numpy. The kernel gives the same bytes.

Functions come in the order of the sentences of docs/reference/tokens.md, from row down to event; kinds/ has the blocks.
A row is a list of segments, a segment a list of tokens. Columns are taken to be there, of types that their fields can
encode.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from penstock.base.errors import InputError
from penstock.loader.order.counter import below, draw, log_uniform, permute, segment_key
from penstock.loader.order.order import EVENTS_A_CONTEXT, Draws
from penstock.loader.tokens import counts as tally
from penstock.loader.tokens.address import parse_address
from penstock.loader.tokens.binding import TICKS, TokenOptions
from penstock.loader.tokens.kinds.time import Time
from penstock.loader.tokens.vocabulary import START, TokenField, Vocabulary
from penstock.shards.arrays import Array
from penstock.shards.columns import Column
from penstock.shards.schema import Field, Schema

Filled = tuple[list[list[int]], int]  # the segments of a row, and how many draws they took
_NO_DRAW = -1  # as the number of a shard
_UNIT = 2**32
_NO_TIME = -(2**63)  # numpy's NaT: no event happened then


def encode_rows(
    shards: Sequence[Mapping[str, Column]],
    schema: Schema,
    options: TokenOptions,
    draws: Draws,
    out: Mapping[str, Array],
    counts: Array,
    used: Array,
) -> None:
    """Fill each row of the six arrays of `out` from its draws, and say in `used` how many of them it took.

    Shard -1 ends a row. `counts` is added to, in the order of COUNTED.
    """
    fields = {field.name: field for field in schema}
    fill_row = _fill_packed if options.fill == "packed" else _fill_one_key
    for row, row_key in enumerate(draws.keys.tolist()):
        places = zip(draws.shards[row].tolist(), draws.records[row].tolist(), strict=True)
        drawn = itertools.takewhile(lambda each: each[0] != _NO_DRAW, places)
        records = (Record(shards[shard], fields, record) for shard, record in drawn)
        segments, used[row] = fill_row(records, row_key, options, counts)
        _write_row(segments, options.length, out, row)


@dataclass(frozen=True)
class Record:
    """One record of a shard, and where the values of its events lie. A column without lists has one value for all."""

    columns: Mapping[str, Column]
    fields: Mapping[str, Field]
    row: int

    def is_of_events(self, column: str) -> bool:
        return self.fields[column].parsed.is_list

    def value(self, column: str, event: int = 0) -> Any:
        field = self.fields[column]
        if not field.parsed.is_list:
            return _read_value(field, self.columns, self.row)
        return _read_value(field.inner, self.columns, self.span(column)[0] + event)

    def version(self, field: TokenField, event: int) -> int | None:
        """Version that a column states for the address of an event, if there is such a column."""
        stated = field.kind.version
        return self.value(stated, event) if stated and stated in self.fields else None

    def span(self, column: str) -> tuple[int, int]:
        """Start and end of the record's list among the values of the column."""
        start, stop = self.columns[f"{column}/offsets"].read(self.row, self.row + 2).tolist()
        return start, stop

    def ticks_a_second(self, column: str) -> int:
        field = self.fields[column]
        return TICKS[(field.inner if field.parsed.is_list else field).parsed.arguments[0]]

    def event_count(self, vocabulary: Vocabulary) -> int:
        names = [name for field in vocabulary.fields for name in (field.column, field.kind.version) if name]
        spans = {name: self.span(name) for name in names if name in self.fields and self.is_of_events(name)}
        lengths = {name: stop - start for name, (start, stop) in spans.items()}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
            raise InputError(
                f"the lists of one record have different lengths: {said}; each event needs a value in every one",
                where=f"record {self.row:,} of {next(iter(self.columns.values())).file}",
                next_step="leave the column with another length out of the vocabulary",
            )
        return next(iter(lengths.values()))

    def address_bytes(self, vocabulary: Vocabulary) -> int:
        """16 if the record's own address is IPv6; a missing one is not."""
        for field in vocabulary.fields:
            if field.kind.is_address and not self.is_of_events(field.column):
                text = self.value(field.column)
                return 16 if text is not None and parse_address(text)[0] == 6 else 4
        return 4


def _read_value(field: Field, columns: Mapping[str, Column], row: int) -> Any:
    """One value as it lies in the columns: a number, the bytes of a text, or None for a null."""
    name, kind = field.name, field.parsed
    if f"{name}/valid" in columns and not columns[f"{name}/valid"].read(row, row + 1)[0]:
        return None
    if kind.is_dictionary:
        return _read_value(field.inner, columns, int(columns[f"{name}/codes"].read(row, row + 1)[0]))
    if kind.is_text:
        start, stop = columns[f"{name}/offsets"].read(row, row + 2).tolist()
        return columns[f"{name}/bytes"].read(start, stop).tobytes()
    return columns[name].read(row, row + 1)[0].item()


# What a row becomes.


def _fill_one_key(records: Iterator[Record], row_key: int, options: TokenOptions, counts: Array) -> Filled:
    """(the one segment, 1), or nothing where there is no draw or no event. The last event is cut at the row's end."""
    segment: list[int] = []
    room = options.length + 1
    for record in itertools.islice(records, 1):
        target = max(1, options.length // EVENTS_A_CONTEXT)
        for event in _encode_events(record, segment_key(row_key, 0), target, options):
            if len(segment) >= room:
                break
            segment += event.tokens
            _count_event(event, counts)
    counts[tally.SEGMENTS] += bool(segment)
    return ([segment[:room]], 1) if segment else ([], 0)


def _fill_packed(records: Iterator[Record], row_key: int, options: TokenOptions, counts: Array) -> Filled:
    """(segments of whole events until one does not fit, draws up to the last of them)."""
    segments: list[list[int]] = []
    vocabulary, used, left = options.vocabulary, 0, options.length + 1
    for number, record in enumerate(records):
        if left < vocabulary.smallest_event:
            break
        target = left // vocabulary.typical_event(record.address_bytes(vocabulary)) + 1
        segment: list[int] = []
        does_fit = True
        for event in _encode_events(record, segment_key(row_key, number), target, options):
            does_fit = len(event.tokens) <= left
            if not does_fit:
                break
            segment += event.tokens
            left -= len(event.tokens)
            _count_event(event, counts)
        if segment:
            segments.append(segment)
            used = number + 1
        if not does_fit:
            break
    counts[tally.SEGMENTS] += len(segments)
    return segments, used


def _write_row(segments: list[list[int]], length: int, out: Mapping[str, Array], row: int) -> None:
    """The six arrays. A target counts where it is in the segment of its input."""
    tokens, segmentation, position = np.zeros((3, length + 1), np.int32)
    start = 0
    for number, segment in enumerate(segments, start=1):
        own = slice(start, start := start + len(segment))
        tokens[own], segmentation[own], position[own] = segment, number, np.arange(len(segment))
    inside = segmentation[1:] == segmentation[:-1]
    out["inputs"][row], out["targets"][row] = tokens[:-1], tokens[1:]
    out["inputs_position"][row], out["targets_position"][row] = position[:-1], position[1:] * inside
    out["inputs_segmentation"][row], out["targets_segmentation"][row] = segmentation[:-1], segmentation[1:] * inside


# Which events a segment takes, and in which order.


class Event(NamedTuple):
    tokens: list[int]
    noted: list[int]  # what it adds one to, as places in COUNTED


def _count_event(event: Event, counts: Array) -> None:
    for each in (tally.EVENTS, *event.noted):
        counts[each] += 1


def _encode_events(record: Record, own: int, target: int, options: TokenOptions) -> Iterator[Event]:
    """The events of a segment whose key is `own`, as tokens, in the order in which they are written."""
    vocabulary, augment = options.vocabulary, options.augment
    count = record.event_count(vocabulary)
    if not count:
        return
    draws = (draw(own, i) for i in itertools.count())
    last_ticks: int | None = None
    chosen = _choose_events(count, target, draws)
    for event, is_timed in _arrange_events(chosen, draws) if augment else [(event, True) for event in chosen]:
        blocks, noted = [], []
        for field in vocabulary.fields:
            value = record.value(field.column, event)
            if not isinstance(field.kind, Time):
                block = field.kind.encode(value, record.version(field, event))
            elif not is_timed:
                continue
            elif value in (None, _NO_TIME):
                noted.append(tally.NULLS)
                continue
            else:
                block = field.kind.encode_after(value, last_ticks, record.ticks_a_second(field.column))
                last_ticks = value
            blocks.append([field.tokens[block.marker], *(vocabulary.byte_base + byte for byte in block.payload)])
            noted += [] if block.noted is None else [block.noted]
        if augment:
            _shuffle(blocks, next(draws))
        yield Event([START, *itertools.chain.from_iterable(blocks)], noted)


def _choose_events(count: int, target: int, draws: Iterator[int]) -> list[int]:
    """Events that are taken out of `count`, in time order."""
    if count < target:
        return list(range(count))
    window = log_uniform(next(draws), count)
    offset = below(next(draws), count - window + 1)
    if window <= target:
        return list(range(offset, offset + window))
    own = next(draws)
    return sorted(offset + permute(i, window, own) for i in range(target))


def _arrange_events(events: list[int], draws: Iterator[int]) -> list[tuple[int, bool]]:
    """The events in the order in which they are written, each with whether it keeps its time."""
    mode = below(next(draws), 10)
    if mode < 4:
        return [(event, True) for event in events]
    if mode < 7:
        return _arrange_partial(events, draws)
    own = next(draws)
    return [(events[permute(i, len(events), own)], False) for i in range(len(events))]


def _arrange_partial(events: list[int], draws: Iterator[int]) -> list[tuple[int, bool]]:
    """Some lose their time and are shuffled, the others keep it and their order; coins put the two together."""
    lost = max(1, len(events) * (_UNIT + 8 * (next(draws) >> 32)) // (10 * _UNIT))
    own = next(draws)
    places = [permute(i, len(events), own) for i in range(lost)]
    without = [(events[place], False) for place in places]
    timed = [(events[place], True) for place in sorted(set(range(len(events))) - set(places))]
    arranged = []
    while without and timed:
        arranged.append((without if next(draws) >> 63 else timed).pop(0))
    return arranged + without + timed


def _shuffle(blocks: list[list[int]], x: int) -> None:
    rest = x >> 32
    for i in range(len(blocks) - 1, 0, -1):
        rest, j = divmod(rest, i + 1)
        blocks[i], blocks[j] = blocks[j], blocks[i]
