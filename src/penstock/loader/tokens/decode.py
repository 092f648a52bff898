"""Decode: tokens back into measurements. docs/reference/tokens.md has every token; reference.py encodes.

A measurement is a dict by the names of the vocabulary's fields:

| field | value |
|---|---|
| ip | its text; `0.0.0.0` or `::` where it was missing |
| time | a datetime64 in seconds: the last absolute time and the deltas since. None if it has none |
| float11 | the smallest number its tokens stand for; None if it failed |
| float16, float32, int, boolean, bytes | the value; None if it was missing |
| category | the value; None if it was missing, or none of the category's values |
| bins | (lower edge, upper edge) of its bin; None if it was missing or no number |

A delta with no absolute time before it is given as `time_delta`, in seconds. A measurement that the row's end cuts has
the fields that could be read, and `cut: True`.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.base.errors import InputError
from penstock.loader.tokens.kinds.time import Time
from penstock.loader.tokens.vocabulary import PINGS, START, TokenField, Vocabulary
from penstock.shards.arrays import Array

Measurement = dict[str, Any]
_LATEST = 2**63 - 1


def decode(
    tokens: Sequence[Any] | Array,
    vocabulary: Vocabulary = PINGS,
    segmentation: Sequence[Any] | Array | None = None,
) -> list[Any]:
    """Decode tokens: the measurements of one row, or one list of measurements per row of a batch.

    Args:
        tokens: Token ids of one row, or of a batch: [rows, length].
        vocabulary: Meaning of the tokens: `loader.vocabulary`. Default: that of pings.
        segmentation: Segment ids that came with these tokens, of the same shape. Tokens in no segment are left out, and
            each measurement says its `segment`. Default: None, starts with nothing after them at the end of the row
            are padding.
    """
    rows = np.asarray(tokens)
    numbers = None if segmentation is None else np.asarray(segmentation)
    if rows.ndim not in (1, 2) or (numbers is not None and numbers.shape != rows.shape):
        raise InputError(
            f"tokens of shape {rows.shape}{'' if numbers is None else f' and segmentation of shape {numbers.shape}'} "
            "are neither a row nor a batch",
            next_step="give one row or [rows, length], and the segmentation of the same tokens",
        )
    if rows.ndim == 1:
        return list(_decode_row(rows.tolist(), vocabulary, None if numbers is None else numbers.tolist()))
    decoded = []
    for row, own in enumerate(rows):
        try:
            decoded.append(decode(own, vocabulary, None if numbers is None else numbers[row]))
        except InputError as error:
            error.add_note(f"in row {row}")
            raise
    return decoded


def _decode_row(tokens: list[int], vocabulary: Vocabulary, numbers: list[int] | None) -> Iterator[Measurement]:
    reader = _Reader(tokens, vocabulary)
    if numbers is None:
        padding = sum(1 for _ in itertools.takewhile(lambda token: token == START, reversed(tokens)))
        yield from reader.measurements(0, len(tokens) - padding)
        return
    stop = 0
    for number, members in itertools.groupby(numbers):
        start, stop = stop, stop + len(list(members))
        if number:
            for measurement in reader.measurements(start, stop):
                cut = {"cut": True} if measurement.pop("cut", False) else {}
                yield {**measurement, "segment": number, **cut}


@dataclass(frozen=True)
class _Block:
    field: TokenField
    marker: int  # its place among the field's markers
    payload: bytes


class _Reader:
    """Reads the tokens of one row, and refuses those that make no sense."""

    def __init__(self, tokens: list[int], vocabulary: Vocabulary) -> None:
        self._tokens = tokens
        self._vocabulary = vocabulary
        self._markers = {
            token: (field, marker) for field in vocabulary.fields for marker, token in enumerate(field.tokens)
        }

    def measurements(self, start: int, stop: int) -> Iterator[Measurement]:
        """Measurements of one segment. Each time continues from the one before."""
        position, now = start, None
        while position < stop:
            if self._tokens[position] != START:
                raise self._no_sense(position, f"{START}, the start of a measurement")
            blocks, position, is_cut = self._read_measurement(position + 1, stop)
            measurement, now = _decode_measurement(blocks, self._vocabulary, now, is_cut)
            yield measurement

    def _read_measurement(self, position: int, stop: int) -> tuple[dict[str, _Block], int, bool]:
        """(its blocks by field, where it ends, whether the end of the row cuts it)."""
        blocks: dict[str, _Block] = {}
        while position < stop and self._tokens[position] != START:
            block, position = self._read_block(position, blocks)
            if block is None:
                return blocks, position, True
            blocks[block.field.name] = block
        absent = [each.name for each in self._vocabulary.fields if not each.kind.is_time and each.name not in blocks]
        if absent and position < len(self._tokens):
            raise self._no_sense(position, f"the marker of {' or '.join(absent)}")
        return blocks, position, bool(absent)

    def _read_block(self, position: int, before: dict[str, _Block]) -> tuple[_Block | None, int]:
        """(the block, or None if the row ends within it, and where it ends)."""
        if self._tokens[position] not in self._markers:
            raise self._no_sense(position, "a marker of a field, or the start of a measurement")
        field, marker = self._markers[self._tokens[position]]
        if field.name in before:
            raise self._no_sense(position, f"a field other than {field.name}, which the measurement has already")
        payload, end = b"", position + 1
        while len(payload) < (size := self._size(field, marker, payload, end)):
            if end == len(self._tokens):
                return None, end
            byte = self._tokens[end] - self._vocabulary.byte_base
            if not 0 <= byte < 256:
                raise self._no_sense(end, f"byte {len(payload) + 1} of {size} of {field.name}")
            payload, end = payload + bytes([byte]), end + 1
        return _Block(field, marker, payload), end

    def _size(self, field: TokenField, marker: int, payload: bytes, end: int) -> int:
        try:
            return field.kind.size(marker, payload)
        except ValueError as error:
            raise self._no_sense(end - 1, f"the length of {field.name}, {error}") from error

    def _no_sense(self, position: int, expected: str) -> InputError:
        return InputError(
            f"token {self._tokens[position]} at position {position} is not valid here: expected {expected}",
            where=f"tokens[{position}]",
            next_step="decode `inputs` of a batch, not `targets`, with the vocabulary the batch was made with",
        )


def _decode_measurement(
    blocks: dict[str, _Block], vocabulary: Vocabulary, now: int | None, is_cut: bool
) -> tuple[Measurement, int | None]:
    """(the measurement, the time in seconds that the next one's delta is added to)."""
    measurement: Measurement = {}
    for field in vocabulary.fields:
        block = blocks.get(field.name)
        if block is None:
            if not is_cut:
                measurement[field.name] = None
        elif not isinstance(field.kind, Time):
            measurement[field.name] = field.kind.decode(block.marker, block.payload)
        else:
            seconds, is_absolute = field.kind.decode(block.marker, block.payload)
            now = seconds if is_absolute else None if now is None else min(now + seconds, _LATEST)
            if now is None:
                measurement[f"{field.name}_delta"] = seconds
            else:
                measurement[field.name] = np.datetime64(now, "s")
    if is_cut:
        measurement["cut"] = True
    return measurement, now
