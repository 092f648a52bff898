"""Reference: rows of tokens from columns, in plain Python and numpy. The kernel gives the same bytes.

Functions come in the order of the sentences of docs/reference/tokens.md, from row down to block. A row is a list of
segments, a segment a list of tokens. Columns are taken to be there, of types that their fields can encode.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from penstock.base.errors import InputError
from penstock.loader.order.counter import below, draw, log_uniform, permute, segment_key
from penstock.loader.order.order import EVENTS_A_CONTEXT, Draws
from penstock.loader.tokens import counts as tally
from penstock.loader.tokens.address import NO_ADDRESS, UNREADABLE, parse_address
from penstock.loader.tokens.binding import TICKS, TokenOptions
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
        return self.value(field.version, event) if field.version and field.version in self.fields else None

    def span(self, column: str) -> tuple[int, int]:
        """Start and end of the record's list among the values of the column."""
        start, stop = self.columns[f"{column}/offsets"].read(self.row, self.row + 2).tolist()
        return start, stop

    def ticks_a_second(self, column: str) -> int:
        field = self.fields[column]
        return TICKS[(field.inner if field.parsed.is_list else field).parsed.arguments[0]]

    def event_count(self, vocabulary: Vocabulary) -> int:
        names = [name for field in vocabulary.fields for name in (field.column, field.version) if name]
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
            if field.kind == "ip" and not self.is_of_events(field.column):
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
        blocks, nulls = [], []
        for field in vocabulary.fields:
            if field.kind != "time":
                blocks.append(_encode_field(field, record, event))
            elif is_timed and (ticks := record.value(field.column, event)) in (None, _NO_TIME):
                nulls.append(tally.NULLS)
            elif is_timed:
                blocks.append(_encode_time(field, ticks, last_ticks, record.ticks_a_second(field.column)))
                last_ticks = ticks
        if augment:
            _shuffle(blocks, next(draws))
        tokens = [START]
        for block in blocks:
            tokens += [block.marker, *(vocabulary.byte_base + byte for byte in block.payload)]
        yield Event(tokens, nulls + [block.noted for block in blocks if block.noted is not None])


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


# What an event becomes.


class Block(NamedTuple):
    marker: int
    payload: bytes = b""
    noted: int | None = None  # a place in COUNTED


def _shuffle(blocks: list[Block], x: int) -> None:
    rest = x >> 32
    for i in range(len(blocks) - 1, 0, -1):
        rest, j = divmod(rest, i + 1)
        blocks[i], blocks[j] = blocks[j], blocks[i]


def _encode_field(field: TokenField, record: Record, event: int) -> Block:
    value = record.value(field.column, event)
    if field.kind == "ip":
        return _encode_address(field, value, record.version(field, event))
    plain: dict[str, Callable[[TokenField, Any], Block]] = {
        "float11": _encode_float11,
        "int": _encode_int,
        "category": _encode_category,
        "bytes": _encode_bytes,
    }
    return plain[field.kind](field, value)


def _encode_address(field: TokenField, text: bytes | None, version: int | None) -> Block:
    """Encode an address by its own version. A missing or unreadable one is zeros, of the stated version or IPv4."""
    family, packed = (UNREADABLE, NO_ADDRESS) if text is None else parse_address(text)
    noted = None
    if family == UNREADABLE:
        noted = tally.NULLS if text is None else tally.UNREADABLE
        family = 6 if version == 6 else 4
    elif version is not None and version != family:
        noted = tally.OTHER_VERSION
    ipv4, ipv6 = field.tokens
    return Block(ipv6, packed, noted) if family == 6 else Block(ipv4, packed[:4], noted)


def _encode_time(field: TokenField, ticks: int, last_ticks: int | None, ticks_a_second: int) -> Block:
    """The difference is taken before it is rounded down; no difference is negative."""
    absolute, short, long = field.tokens
    if last_ticks is not None and ticks < last_ticks:
        return Block(short, bytes(1), tally.GOING_BACK)
    difference = None if last_ticks is None else (ticks - last_ticks) // ticks_a_second
    if difference is None or difference >= 2**32:
        return Block(absolute, (ticks // ticks_a_second).to_bytes(8, "big", signed=True))
    return Block(short, bytes([difference])) if difference < 256 else Block(long, difference.to_bytes(4, "big"))


def _encode_float11(field: TokenField, number: float | None) -> Block:
    """Five bits of exponent, eleven of mantissa: a tenth of a percent, or one unit below 2048."""
    value, failed = field.tokens
    if number is None or number != number or number < 0:
        return Block(
            failed, noted=tally.NULLS if number is None else tally.NEGATIVE if number < 0 else tally.NOT_A_NUMBER
        )
    us, exponent = 1000.0 * float(number), 0
    noted = tally.TOO_SMALL if us < 1 else None
    us = max(1.0, us)
    while us >= 2048 and exponent < 31:
        us, exponent = us / 2, exponent + 1
    noted = tally.TOO_LARGE if us >= 2048 else noted
    return Block(value, (exponent << 11 | int(min(us, 2047.0))).to_bytes(2, "big"), noted)


def _encode_int(field: TokenField, number: int | None) -> Block:
    value, missing = field.tokens
    if number is None:
        return Block(missing, noted=tally.NULLS)
    most = 2 ** (8 * field.width - 1) - 1
    nearest = min(max(number, -most - 1), most)
    return Block(
        value, nearest.to_bytes(field.width, "big", signed=True), None if nearest == number else tally.OUT_OF_RANGE
    )


def _encode_category(field: TokenField, found: bytes | int | None) -> Block:
    """Encode a category. Text is compared by its UTF-8 bytes."""
    known = [value.encode() if isinstance(value, str) else value for value in field.values]
    if found in known:
        return Block(field.tokens[known.index(found)])
    return Block(field.tokens[-1], noted=tally.NULLS if found is None else tally.OTHER_CATEGORY)


def _encode_bytes(field: TokenField, found: bytes | None) -> Block:
    value, missing = field.tokens
    if found is None:
        return Block(missing, noted=tally.NULLS)
    cut = found[: field.width]
    return Block(value, bytes([len(cut)]) + cut, None if cut == found else tally.CUT)
