"""Bad text: rows whose text is not UTF-8 are set aside with the reason, or repaired where the job asks for it.

Arrow takes such bytes from a file without a word, and everything behind would stumble over them.
"""

import codecs
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.prepare.rows.jsonable import jsonable
from penstock.prepare.rows.rows import Array, Rows, SetAside
from penstock.prepare.sources.slices import Segment
from penstock.shards.arrays import is_list, is_string, text_parts

REASON = "text is not UTF-8"
KEPT = 64 * 1024  # characters of a bad record, or of one of its values, that rejected/ keeps
_REPAIRED_AT_ONCE = 1 << 20


def sound_text(rows: Rows, repair: bool = False, line_of: Callable[[int], int | None] | None = None) -> Rows:
    """Drop rows whose text is not UTF-8. With `repair`, bad bytes become U+FFFD, except inside lists and structs: those
    rows are dropped.

    `line_of` tells the line of a row in its file, where there are lines.
    """
    good = _is_sound(rows.batch)
    if repair and not good.all():
        rows = rows.with_batch(_repaired(rows.batch))
        good = _is_sound(rows.batch)
    if good.all():
        return rows
    bad = np.flatnonzero(~good)
    left = rows.batch.filter(pa.array(good))
    arrays = [_without_unused(array) for array in left.columns]
    lines = _Lines(rows, [as_binary(array) for array in rows.batch.columns], bad, line_of)
    return replace(
        rows,
        batch=pa.RecordBatch.from_arrays(arrays, schema=left.schema),
        ordinals=rows.ordinals[good],
        set_aside=(*rows.set_aside, SetAside(REASON, len(bad), lines)),
    )


def naming(rows: Rows, segment: Segment) -> Rows:
    """The rows, with those set aside named after the encoding of their file, where that is not UTF-8."""
    if not segment.encoding or not any(aside.reason == REASON for aside in rows.set_aside):
        return rows
    aside = tuple(_named(each, segment.encoding) if each.reason == REASON else each for each in rows.set_aside)
    return replace(rows, set_aside=aside)


def _named(aside: SetAside, encoding: str) -> SetAside:
    facts = {"reason": f"text is not {encoding}", "detail": f"it has bytes that mean nothing in {encoding}"}
    advice = "name the right `encoding:`, or have such bytes replaced: `bad_utf8: repair` beside it"
    return replace(aside, reason=facts["reason"], kept=_Named(aside.kept, facts), advice=advice)


def _is_sound(batch: pa.RecordBatch) -> Array:
    good = np.ones(batch.num_rows, bool)
    for array in batch.columns:
        good &= _is_utf8(array)
    return good


@dataclass(frozen=True)
class _Lines(Sequence[dict[str, Any]]):
    """Lines of bad rows in rejected/, each made when it is asked for: all at once they would outweigh the batch."""

    rows: Rows
    columns: list[pa.Array]
    numbers: Array
    line_of: Callable[[int], int | None] | None

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        row = int(self.numbers[index])
        line = self.line_of(row) if self.line_of else None
        names = self.rows.batch.schema.names
        values = {name: column[row] for name, column in zip(names, self.columns, strict=True)}
        return self.rows.rejected_line(
            row,
            REASON,
            **({} if line is None else {"line": line}),
            detail=next(filter(None, (_what_is_bad(name, value) for name, value in values.items())), ""),
            row={name: _shown(value) for name, value in values.items()},
        )


@dataclass(frozen=True)
class _Named(Sequence[dict[str, Any]]):
    """Lines with other facts, each made when it is asked for."""

    lines: Sequence[dict[str, Any]]
    facts: dict[str, Any]

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, index: Any) -> Any:
        return {**self.lines[index], **self.facts}


def _what_is_bad(name: str, value: pa.Scalar) -> str | None:
    error = _utf8_error(value) if _is_binary(value) else None
    if error is None:
        return None
    return f"column {name!r}, byte {error.start:,} is 0x{error.object[error.start]:02x}: {error.reason}"


def _shown(value: pa.Scalar) -> Any:
    if _is_binary(value):
        return bytes(value.as_buffer()[: 4 * KEPT]).decode("utf-8", "backslashreplace")[:KEPT]
    return jsonable(value)


def _is_binary(value: pa.Scalar) -> bool:
    return bool(value.is_valid and value.type in (pa.binary(), pa.large_binary()))


def _repaired(batch: pa.RecordBatch) -> pa.RecordBatch:
    arrays = [
        array if pa.types.is_nested(array.type) or _is_utf8(array).all() else _repaired_array(array)
        for array in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _repaired_array(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        return _repaired_array(array.dictionary_decode()).dictionary_encode().cast(array.type)
    values = [b"".join(repaired_pieces(value.as_buffer())) if value.is_valid else None for value in as_binary(array)]
    return pa.array(values, pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary()).cast(array.type)


def repaired_pieces(data: Any) -> Iterator[bytes]:
    """The bytes with U+FFFD for what is not UTF-8, in pieces: a long document is not held as characters at once."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    view = memoryview(data)
    for start in range(0, len(view), _REPAIRED_AT_ONCE):
        last = start + _REPAIRED_AT_ONCE >= len(view)
        yield decoder.decode(bytes(view[start : start + _REPAIRED_AT_ONCE]), last).encode()


def _is_utf8(array: pa.Array) -> Array:
    if pa.types.is_dictionary(array.type):
        known = np.append(_is_utf8(array.dictionary), True)  # the last stands for null
        answer: Array = known[array.indices.cast(pa.int64()).fill_null(-1).to_numpy()]
        return answer
    if pa.types.is_nested(array.type):
        return _is_utf8_inside(array)
    if is_string(array.type) and len(array) and not _is_ascii(array):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            return np.array([_utf8_error(value) is None for value in as_binary(array)])
    return np.ones(len(array), bool)


def _is_utf8_inside(array: pa.Array) -> Array:
    """Rows of lists and structs in which all text is UTF-8."""
    good = np.ones(len(array), bool)
    if pa.types.is_struct(array.type):
        for field in array.flatten():
            good &= _is_utf8(field)
    elif is_list(array.type) and _has_text(array.type):
        inside = _is_utf8(array.flatten())
        if not inside.all():
            good[np.asarray(pc.list_parent_indices(array))[~inside]] = False
    return good


def _has_text(kind: pa.DataType) -> bool:
    """Whether text lies somewhere inside of the type: others need no look."""
    if pa.types.is_dictionary(kind):
        return _has_text(kind.value_type)
    return is_string(kind) or any(_has_text(kind.field(number).type) for number in range(kind.num_fields))


def _is_ascii(array: pa.Array) -> bool:
    """Ten times faster than asking Arrow, and true of most text."""
    text, _ = text_parts(array)
    return not len(text) or int(text.max()) < 128


def _utf8_error(value: pa.Scalar) -> UnicodeDecodeError | None:
    try:
        if value.is_valid:
            codecs.utf_8_decode(value.as_buffer(), "strict", True)
    except UnicodeDecodeError as error:
        return error
    return None


def _without_unused(array: pa.Array) -> pa.Array:
    """A dictionary keeps the bad values of rows that are gone, unless it is made anew."""
    if not pa.types.is_dictionary(array.type):
        return array
    return array.dictionary_decode().dictionary_encode().cast(array.type)


def as_binary(array: pa.Array) -> pa.Array:
    """The array with text as bytes, in lists and structs too, so that nothing trusts it to be UTF-8."""
    if pa.types.is_dictionary(array.type):
        return as_binary(array.dictionary_decode())
    wanted = _binary_type(array.type)
    return array if array.type == wanted else array.cast(wanted)


def _binary_type(kind: pa.DataType) -> pa.DataType:
    is_a = pa.types
    if is_a.is_string(kind) or is_a.is_string_view(kind):
        return pa.binary() if is_a.is_string(kind) else pa.binary_view()
    if is_a.is_large_string(kind):
        return pa.large_binary()
    if is_a.is_list(kind) or is_a.is_large_list(kind):
        inner = kind.value_field.with_type(_binary_type(kind.value_type))
        return pa.list_(inner) if is_a.is_list(kind) else pa.large_list(inner)
    if is_a.is_struct(kind):
        return pa.struct([each.with_type(_binary_type(each.type)) for each in kind])
    return kind
