"""Npz contents: a .npz file -> its columns, their types, and its rows as Arrow, whoever wrote it. For npz.py.

Three writers are understood: penstock itself (foreign/batch_file.py), whose rows come back with the positions they had;
anyone's `np.savez` of arrays; and lists of dicts, which are pickles and go through pickled.py where they are trusted.
"""

import io
import json
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from penstock.base.errors import InputError
from penstock.base.files import ReadFile
from penstock.prepare.rows.rows import Array
from penstock.prepare.sources import Reading, SourceOptions, UnreadablePart
from penstock.prepare.sources.batches.members import AT_ONCE, DAMAGE, Member, Take, open_rows, read_members, unreadable
from penstock.prepare.sources.batches.pickled import FRAME, is_metadata, open_pickles
from penstock.prepare.sources.reading.input_file import first_line, unusable
from penstock.prepare.sources.slices import Segment
from penstock.shards.arrays import array_from_fixed, fixed_dtype
from penstock.shards.foreign.batch_file import METADATA, METADATA_STARTS, METADATA_VERSION
from penstock.shards.schema import (
    FIXED_LIST,
    NAME_ARRAYS,
    NUMBERS,
    FeatureNames,
    misaligned,
    names_of,
    order_of,
    parse_type,
    type_to_arrow,
    with_names,
)

AGAIN, NAMED_AGAIN = "write the file again", "write the file again with those names"
_TRUSTING = (
    "trust_pickle is on: opening a pickle can run any code that is in it, with your rights. Each file is opened in "
    "a process of its own"
)
_LEFT_OUT_TABLE = (
    f"{FRAME!r} is a pickled table: it is left out, unopened. For a column of it, name the column in a stage, such "
    "as `split: {by: game_id, ...}`"
)
_said: set[str] = set()
Column = Callable[[int], pa.Array]  # its next so many rows
Say = Callable[[str, str], None]  # a kind of oddity, and what is odd


@dataclass(frozen=True)
class Contents:
    """Columns of a file and their type words, its rows, and where they stood if it says so."""

    columns: dict[str, tuple[zipfile.ZipFile, Member]]
    words: dict[str, str]
    rows: int
    runs: list[tuple[str, int, int]] | None = None
    names: FeatureNames = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        fields = [pa.field(name, type_to_arrow(parse_type(word))) for name, word in self.words.items()]
        return pa.schema([with_names(each, self.names.get(each.name)) for each in fields])

    def stretches(self, own_path: str, rows_at_once: int) -> Iterator[tuple[str, Array]]:
        """(file, ordinals) of the next rows: of one file each, and no more than asked for."""
        held: list[Array] = []
        path, room = "", rows_at_once
        for name, first, count in [(own_path, 0, self.rows)] if self.runs is None else self.runs:
            if held and name != path:
                yield path, np.concatenate(held)
                held, room = [], rows_at_once
            path = name
            while count:
                taken = min(count, room)
                held.append(np.arange(first, first + taken))
                first, count, room = first + taken, count - taken, room - taken
                if not room:
                    yield path, np.concatenate(held)
                    held, room = [], rows_at_once
        if held:
            yield path, np.concatenate(held)


@contextmanager
def open_contents(location: str, options: SourceOptions, aloud: bool = False) -> Iterator[Contents]:
    """`aloud`: say what is odd about the file. The survey does; a hundred workers need not say it again."""
    say: Say = partial(_say_once, location) if aloud else lambda _kind, _text: None
    with ExitStack() as stack:
        handle: BinaryIO = stack.enter_context(io.BufferedReader(ReadFile(location)))
        archive, members = read_members(handle, location)
        pickles = [member for member in members if member.is_pickle and member.name != FRAME]
        has_frame = any(member.name == FRAME for member in members)
        names: FeatureNames = {}
        if any(not is_metadata(member.name) for member in pickles):
            _refuse_untrusted(pickles, location, options)
            say("trusted pickle", _TRUSTING)
            handle, names = stack.enter_context(open_pickles(location))
            archive, members = read_members(handle, location)
        elif pickles:
            danger = "is a pickle, and opening one can run any code that is in it"
            say("pickle left out", f"{pickles[0].name!r} {danger}: it is left out, unopened")
        contents = _contents(archive, members, names, location)
        if has_frame:
            contents = _with_frame(contents, location, options, say, stack)
        known = {FRAME, *contents.columns, *(NAME_ARRAYS[name] for name in contents.names if name in NAME_ARRAYS)}
        for name in [each.name for each in members if not is_metadata(each.name) and each.name not in known]:
            say("array left out", f"{name!r} does not have one row per sample and is left out")
        yield contents


def _contents(archive: zipfile.ZipFile, members: list[Member], names: FeatureNames, location: str) -> Contents:
    own = _own_metadata(archive, members, location)
    if own:
        return _own_contents(archive, members, own, location)
    names = {**_stored_names(archive, members, location), **names}
    told = {NAME_ARRAYS[column] for column in names if column in NAME_ARRAYS}
    arrays = [member for member in members if member.shape and not member.is_pickle and not is_metadata(member.name)]
    arrays = [member for member in arrays if member.name not in (*told, FRAME)]
    if not arrays:
        raise InputError("none of its arrays has one row per sample", where=location)
    rows = _row_count(arrays, location)
    columns = {member.name: (archive, member) for member in arrays if member.rows == rows}
    words = {name: _word(member, location) for name, (_, member) in columns.items()}
    return Contents(columns, words, rows, names=names)


def _with_frame(contents: Contents, location: str, options: SourceOptions, say: Say, stack: ExitStack) -> Contents:
    """Add the columns of the pickled table that stages name and the arrays lack."""
    wanted = [name for name in options.named if name not in contents.columns]
    if not (wanted and options.trust_pickle):
        trust = "" if options.trust_pickle else " and `trust_pickle: true` beside `npz:`"
        say("table left out", f"{_LEFT_OUT_TABLE}{trust}")
        return contents
    say("trusted pickle", _TRUSTING)
    handle, _ = stack.enter_context(open_pickles(location, wanted))
    archive, found = read_members(handle, location)
    columns = {member.name: (archive, member) for member in found if not is_metadata(member.name)}
    for name, (_, member) in columns.items():
        if member.rows != contents.rows:
            what = f"column {name!r} of {FRAME!r} has {member.rows:,} rows, the arrays have {contents.rows:,}"
            raise unusable(what, location, AGAIN)
    words = {name: _word(member, location) for name, (_, member) in columns.items()}
    return replace(contents, columns={**contents.columns, **columns}, words={**contents.words, **words})


def _stored_names(archive: zipfile.ZipFile, members: list[Member], location: str) -> FeatureNames:
    """The names of features that stand in an array of their own."""
    by_name = {member.name: member for member in members}
    found: FeatureNames = {}
    for column, array in NAME_ARRAYS.items():
        features, names = by_name.get(column), by_name.get(array)
        if features is None or names is None or len(features.shape) != 2 or len(names.shape) != 1 or names.is_pickle:
            continue
        with ExitStack() as stack:
            told = list(map(str, open_rows(archive, names, stack)(names.rows).tolist()))
        if len(told) != features.shape[1] or len(set(told)) != len(told):
            what = f"{array!r} has {len(told):,} names, {len(set(told)):,} of them different, and {column!r} has "
            raise unusable(f"{what}{features.shape[1]:,} features", location, NAMED_AGAIN)
        found[column] = told
    return found


def _row_count(arrays: list[Member], location: str) -> int:
    """The rows of features, labels and masks, which must agree; without such names, those of most arrays."""
    named = [member for member in arrays if member.is_of_samples]
    if not named:
        counts = Counter(member.rows for member in arrays)
        return max(counts, key=lambda rows: (counts[rows], rows))
    for member in named:
        if member.rows != named[0].rows:
            what = f"array {member.name!r} has {member.rows:,} rows, {named[0].name!r} has {named[0].rows:,}"
            raise unusable(what, location, AGAIN)
    return named[0].rows


def _word(member: Member, location: str) -> str:
    """The type word of what one sample has in an array."""
    word = "string" if member.dtype.kind in "US" and len(member.shape) == 1 else str(member.dtype.name)
    if word != "string" and (word not in NUMBERS or 0 in member.shape[1:]):
        raise InputError(
            f"array {member.name!r} holds {member.dtype} in the shape {member.shape}; a column holds "
            "numbers, arrays of numbers of one shape, or text",
            where=location,
            next_step="write the file again without it, or under a name that begins with `metadata`",
        )
    for size in reversed(member.shape[1:]):
        word = f"{FIXED_LIST}<{word}>[{size}]"
    return word


def _own_metadata(archive: zipfile.ZipFile, members: list[Member], location: str) -> dict[str, Any] | None:
    """Metadata that penstock wrote beside the arrays; None in a file of others."""
    found = next((member for member in members if member.name == METADATA and not member.is_pickle), None)
    if found is None:
        return None
    try:
        with archive.open(found.file) as file:
            start = file.read(found.head + len(METADATA_STARTS))[found.head :]
            if start != METADATA_STARTS:
                while file.read(AT_ONCE):  # to its end, where the checksum tells whether it was ours once
                    pass
                return None
            own: dict[str, Any] = json.loads(start + file.read())
    except DAMAGE as error:
        raise unreadable(f"its metadata cannot be read: {first_line(error)}", location) from error
    if own["penstock"] != METADATA_VERSION:
        raise InputError(
            f"this batch file has version {own['penstock']}, this penstock reads version {METADATA_VERSION}",
            where=location,
            next_step="write it again, or install the penstock that wrote it",
        )
    return own


def _own_contents(archive: zipfile.ZipFile, members: list[Member], own: dict[str, Any], location: str) -> Contents:
    try:
        words = {str(name): str(word) for name, word in own["columns"]}
        runs = [(str(path), int(first), int(count)) for path, first, count in own["rows"]]
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(f"its metadata lacks or misspells {error}", location) from error
    rows = sum(count for _, _, count in runs)
    columns = {member.name: (archive, member) for member in members if member.name in words}
    for name, word in words.items():
        if name not in columns or not _fits(columns[name][1], word, rows):
            raise unreadable(f"array {name!r} is not the {rows:,} rows of {word} that were written", location)
    return Contents(columns, words, rows, runs, own.get("names", {}))


def _fits(member: Member, word: str, rows: int) -> bool:
    kind = parse_type(word)
    if kind.is_fixed:
        return member.dtype == fixed_dtype(kind) and member.shape == (rows, *kind.shape)
    return member.dtype.kind == "U" and member.shape == (rows,)


def _say_once(location: str, kind: str, text: str) -> None:
    """Warn once per process: the same is true of file after file."""
    if kind not in _said:
        _said.add(kind)
        told = f"{text} ({location}; said once, and true of any other such file)"
        warnings.warn(told, UserWarning, stacklevel=2)


def _refuse_untrusted(pickles: list[Member], location: str, options: SourceOptions) -> None:
    name = next(member.name for member in pickles if not is_metadata(member.name))
    if not options.trust_pickle:
        raise InputError(
            f"array {name!r} is a pickle (Python objects), and opening a pickle can run any code that is in it",
            where=f"{location}, {name}.npy",
            next_step="if you wrote this file, or trust who did: `trust_pickle: true` beside `npz:` in the job",
        )


def open_columns(contents: Contents, segment: Segment, reading: Reading, stack: ExitStack) -> dict[str, Column]:
    _refuse_other_types(contents, segment, reading)
    return {name: _column(contents, name, segment, reading, stack) for name in reading.columns}


def _column(contents: Contents, name: str, segment: Segment, reading: Reading, stack: ExitStack) -> Column:
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
