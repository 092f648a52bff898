"""Listing: a folder or a pattern -> the files in it, and what is there and not read. Called by finding.py."""

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from penstock.base.errors import PenstockError, file_error
from penstock.base.files import special_kind
from penstock.base.stores import open_store
from penstock.base.stores.store import STATE
from penstock.shards.foreign.export import MARKS, is_mark
from penstock.shards.manifest import MANIFEST, read_manifest

HIDDEN, LINKED, FOLDER = "hidden", "linked folder", "folder"
OWN, PENSTOCK, EXPORT = "folder that this job writes", "folder written by penstock", "export of penstock"
NO_ENDING, MARK_OF_EXPORT = "no ending", "mark of an export of penstock"
_MARK_BYTES = 1 << 20  # a larger file of that name is not read to see whose it is
_MANIFEST_START = b'{\n "format": "penstock",'


@dataclass(frozen=True)
class Unread:
    """Files or folders of one kind in the input that are not read: an ending such as `.txt`, or what they are."""

    what: str
    count: int
    first: str

    @property
    def is_output(self) -> bool:
        """Whether penstock wrote it."""
        return self.what in (PENSTOCK, EXPORT)


class Tally:
    """Counts what is not read, by what it is."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, str] = {}

    def add(self, what: str, place: str) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1
        self._first[what] = min(place, self._first.get(what, place))

    def add_files(self, places: Iterable[str]) -> None:
        for place in places:
            self.add(ending_of(place), place)

    def unread(self) -> tuple[Unread, ...]:
        ordered = sorted(self._counts, key=lambda what: (-self._counts[what], what))
        return tuple(Unread(what, self._counts[what], self._first[what]) for what in ordered)


def ending_of(place: str) -> str:
    """`.txt`, or `.txt.gz` of a compressed file."""
    stem, ending = os.path.splitext(os.path.basename(place).lower())
    inner = os.path.splitext(stem)[1] if ending in (".gz", ".zst", ".zstd", ".bz2", ".xz") else ""
    return f"{inner}{ending}" or NO_ENDING


def files_below(root: str, own: frozenset[str], reads_batches: bool, tally: Tally) -> Iterator[str]:
    """Every file below a folder. `own` are the folders that the job writes. Folders that penstock wrote are left out,
    except finished batch files where those are read.

    A link that leads nowhere counts as a file: finding.py refuses it, where leaving it out would say nothing.
    """
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        entries = _entries(folder)
        what = _what_wrote(folder, {entry.name for entry in entries}, own) if folder != root else None
        if what and not (reads_batches and is_finished_batches(folder)):
            tally.add(what, folder)
            continue
        for entry in entries:
            if entry.name.startswith("."):
                tally.add(HIDDEN, entry.path)
            elif entry.name in MARKS and is_mark(_start_of(folder, entry.name)):
                tally.add(MARK_OF_EXPORT, entry.path)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif _is_lost_link(entry) or entry.is_file():
                yield entry.path
            elif entry.is_dir():
                tally.add(LINKED, entry.path)
            elif kind := special_kind(entry.path):
                tally.add(kind, entry.path)
            else:
                yield entry.path


def _is_lost_link(entry: os.DirEntry[str]) -> bool:
    """A link to nothing, or to itself, which is_file() of an entry raises for."""
    return entry.is_symlink() and not os.path.exists(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise file_error(error, "list", error.filename or folder) from error


def files_matching(pattern: str, root: str, own: frozenset[str], tally: Tally) -> Iterator[str]:
    """Every file that matches. Folders that penstock wrote are left out, unless `root` lies in one: it was named."""

    @cache
    def wrote(folder: str) -> tuple[str, str] | None:
        """(what, the outermost folder) that penstock wrote, of this folder and those above it."""
        if len(folder) <= len(root) or folder == root:
            return None
        above = wrote(os.path.dirname(folder))
        what = above or _what_wrote(folder, _marks_in(folder), own)
        return above or ((what, folder) if isinstance(what, str) else None)

    told = set()
    for place in glob.glob(pattern, recursive=True):
        if found := wrote(os.path.dirname(place)):
            if found not in told:
                tally.add(*found)
            told.add(found)
        elif os.path.isdir(place):
            if not place.endswith(os.sep) and "**" not in pattern:
                tally.add(FOLDER, place)
        elif kind := special_kind(place):
            tally.add(kind, place)
        else:
            yield place


def _marks_in(folder: str) -> set[str]:
    return {name for name in (STATE, MANIFEST, *MARKS) if os.path.exists(os.path.join(folder, name))}


def _what_wrote(folder: str, names: set[str], own: frozenset[str]) -> str | None:
    if own and os.path.abspath(folder) in own:
        return OWN
    if STATE in names or (MANIFEST in names and _start_of(folder, MANIFEST).startswith(_MANIFEST_START)):
        return PENSTOCK
    return EXPORT if any(is_mark(_start_of(folder, name)) for name in MARKS if name in names) else None


def written_by_penstock(folder: str) -> bool:
    """Whether it is a dataset, finished or not, batch files, or remembered keys."""
    return _what_wrote(folder, _marks_in(folder) - set(MARKS), frozenset()) is not None


def is_finished(folder: str) -> bool:
    """Whether penstock finished a dataset, or batch files, in this very folder."""
    return _start_of(folder, MANIFEST).startswith(_MANIFEST_START)


def is_finished_batches(folder: str) -> bool:
    """Whether it holds batch files of a job that came to its end."""
    if not is_finished(folder):
        return False
    try:
        return bool(read_manifest(open_store(folder)).config.get("format") == "npz")
    except PenstockError:  # damaged, or of another version
        return False


def holds_unfinished_batches(folder: str) -> bool:
    """Whether it holds batch files of a job that has not come to its end."""
    batches = os.path.join(glob.escape(folder), "**", "*.npz")
    return MANIFEST not in _marks_in(folder) and any(glob.iglob(batches, recursive=True))


def _start_of(folder: str, name: str) -> bytes:
    """Beginning of a file that may be anybody's; nothing if there is none."""
    place = os.path.join(folder, name)
    try:
        if not os.path.isfile(place):
            return b""
        with open(place, "rb") as file:
            return file.read(_MARK_BYTES)
    except OSError:
        return b""
