"""Npz contents: a .npz file -> its columns, their types and its rows, whoever wrote it. For npz.py.

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
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from penstock.base.errors import InputError
from penstock.base.files import ReadFile
from penstock.prepare.rows.rows import Array
from penstock.prepare.sources import SourceOptions, first_line, unusable
from penstock.prepare.sources.batches.members import AT_ONCE, DAMAGE, Member, open_rows, read_members, unreadable
from penstock.prepare.sources.batches.pickled import FRAME, is_metadata, open_pickles
from penstock.shards.arrays import fixed_dtype
from penstock.shards.foreign.batch_file import METADATA, METADATA_STARTS, METADATA_VERSION
from penstock.shards.schema import FIXED_LIST, NAME_ARRAYS, NUMBERS, FeatureNames, parse_type, type_to_arrow, with_names

AGAIN, NAMED_AGAIN = "write the file again", "write the file again with those names"
_AND_OTHERS = "said once, and true of any other such file"
_said: set[str] = set()


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
        if self.runs is None:
            for start in range(0, self.rows, rows_at_once):
                yield own_path, np.arange(start, min(start + rows_at_once, self.rows))
            return
        held: list[Array] = []
        path, room = "", rows_at_once
        for name, first, count in self.runs:
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
    say = _say_once if aloud else lambda _kind, _text: None
    with ExitStack() as stack:
        handle: BinaryIO = stack.enter_context(io.BufferedReader(ReadFile(location)))
        archive, members = read_members(handle, location)
        pickles = [member for member in members if member.is_pickle and member.name != FRAME]
        has_frame = any(member.name == FRAME for member in members)
        names: FeatureNames = {}
        if any(not is_metadata(member.name) for member in pickles):
            _refuse_untrusted(pickles, location, options)
            say("trusted pickle", _trusting(location))
            handle, names = stack.enter_context(open_pickles(location))
            archive, members = read_members(handle, location)
        elif pickles:
            say("pickle left out", _leaving_out(pickles[0].name, location))
        contents = _contents(archive, members, names, location)
        if has_frame:
            contents = _with_frame(contents, location, options, say, stack)
        known = {FRAME, *contents.columns, *(NAME_ARRAYS[name] for name in contents.names if name in NAME_ARRAYS)}
        for name in [each.name for each in members if not is_metadata(each.name) and each.name not in known]:
            say(
                "array left out",
                f"{name!r} does not have one row per sample and is left out ({location}; {_AND_OTHERS})",
            )
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
        raise InputError("no array in it has one row per sample", where=location)
    rows = _row_count(arrays, location)
    columns = {member.name: (archive, member) for member in arrays if member.rows == rows}
    words = {name: _word(member, location) for name, (_, member) in columns.items()}
    return Contents(columns, words, rows, names=names)


def _with_frame(
    contents: Contents, location: str, options: SourceOptions, say: Callable[[str, str], None], stack: ExitStack
) -> Contents:
    """Add the columns of the pickled table that stages name and the arrays lack."""
    wanted = [name for name in options.named if name not in contents.columns]
    if not (wanted and options.trust_pickle):
        say("table left out", _leaving_out_table(location, options))
        return contents
    say("trusted pickle", _trusting(location))
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
            f"array {member.name!r} holds {member.dtype} in the shape {member.shape}, which no column can: those are "
            "numbers, arrays of one shape with numbers, and text",
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


def _say_once(kind: str, text: str) -> None:
    """Warn once per process: the same is true of file after file."""
    if kind not in _said:
        _said.add(kind)
        warnings.warn(text, UserWarning, stacklevel=2)


def _refuse_untrusted(pickles: list[Member], location: str, options: SourceOptions) -> None:
    name = next(member.name for member in pickles if not is_metadata(member.name))
    if not options.trust_pickle:
        raise InputError(
            f"array {name!r} is a pickle (Python objects), and opening a pickle can run any code that is in it",
            where=f"{location}, {name}.npy",
            next_step="if you wrote this file, or trust who did: `trust_pickle: true` beside `npz:` in the job",
        )


def _trusting(location: str) -> str:
    return (
        "trust_pickle is on: opening a pickle can run any code that is in it, with your rights. Each file is opened in "
        f"a process of its own ({location}; {_AND_OTHERS})"
    )


def _leaving_out_table(location: str, options: SourceOptions) -> str:
    trust = "" if options.trust_pickle else " and `trust_pickle: true` beside `npz:`"
    return (
        f"{FRAME!r} is a pickled table: it is left out, unopened. For a column of it, name the column in a stage, such "
        f"as `split: {{by: game_id, ...}}`{trust} ({location}; {_AND_OTHERS})"
    )


def _leaving_out(name: str, location: str) -> str:
    return (
        f"{name!r} is a pickle, and opening one can run any code that is in it: it is left out, unopened "
        f"({location}; {_AND_OTHERS})"
    )
