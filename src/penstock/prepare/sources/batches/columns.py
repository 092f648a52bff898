"""Npz columns: the rows of a column as Arrow, in the types and order of names of the first file. For npz.py."""

from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
import pyarrow as pa

from penstock.prepare.rows.rows import Array
from penstock.prepare.sources import Reading, UnreadablePart, first_line, unusable
from penstock.prepare.sources.batches.contents import AGAIN, NAMED_AGAIN, Contents
from penstock.prepare.sources.batches.members import DAMAGE, Take, open_rows
from penstock.prepare.sources.slices import Segment
from penstock.shards.arrays import array_from_fixed
from penstock.shards.schema import misaligned, names_of, order_of, parse_type, type_to_arrow


def open_columns(
    contents: Contents, segment: Segment, reading: Reading, stack: ExitStack
) -> dict[str, Callable[[int], pa.Array]]:
    """A function per column that gives its next so many rows."""
    _refuse_other_types(contents, segment, reading)
    return {name: _column(contents, name, segment, reading, stack) for name in reading.columns}


def _column(
    contents: Contents, name: str, segment: Segment, reading: Reading, stack: ExitStack
) -> Callable[[int], pa.Array]:
    """A function that gives the next rows of a column as Arrow."""
    kind = parse_type(contents.words[name])
    take = _take(contents, name, segment, stack)
    if not kind.is_fixed:
        return lambda count: _text(take(count), type_to_arrow(kind))
    order = _order_of_names(contents, name, segment, reading)
    if order is None:
        return lambda count: array_from_fixed(take(count), kind, None)
    return lambda count: array_from_fixed(take(count)[:, order], kind, None)


def _take(contents: Contents, name: str, segment: Segment, stack: ExitStack) -> Take:
    try:
        return open_rows(*contents.columns[name], stack)
    except DAMAGE as error:
        raise UnreadablePart(segment, 0, 0, contents.rows, first_line(error)) from error


def _text(values: Array, kind: pa.DataType) -> pa.Array:
    """Text as its bytes, whatever they are: `sound_text` sets aside what is not UTF-8."""
    if values.dtype.kind == "U":
        encoded = [text.encode("utf-8", "surrogatepass") for text in values.tolist()]
    else:
        encoded = values.tolist()
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    binary = pa.array(encoded, pa.large_binary() if pa.types.is_large_string(plain) else pa.binary())
    text = pa.Array.from_buffers(plain, len(binary), binary.buffers())
    return text.dictionary_encode() if pa.types.is_dictionary(kind) else text


def _refuse_other_types(contents: Contents, segment: Segment, reading: Reading) -> None:
    schema = contents.schema
    for name in reading.columns:
        found = schema.field(name).type if name in schema.names else "not there"
        if found != reading.schema.field(name).type:
            what = f"column {name!r} is {found}, not {reading.schema.field(name).type} as in the first file"
            raise unusable(what, segment.location, AGAIN)


def _order_of_names(contents: Contents, name: str, segment: Segment, reading: Reading) -> Array | None:
    """Places of the first file's features in this file's rows; None where they stand alike, or nobody tells."""
    first, names = names_of(reading.schema.field(name)), contents.names.get(name)
    if wrong := misaligned(names, first):  # the survey says it, too, unless the file was replaced since
        raise unusable(f"column {name!r}: {wrong}", segment.location, NAMED_AGAIN)
    order = order_of(names, first)
    return None if order is None else np.array(order)
