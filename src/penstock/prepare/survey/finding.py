"""Finding: the files that a job's input names, in the order in which their rows stand. Next: taking.py."""

import glob
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from penstock.base.errors import InputError
from penstock.base.files import special_kind
from penstock.base.paths import hidden_matches, local_path
from penstock.prepare.job.config import Config
from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.sources import File, items, source_of
from penstock.prepare.sources.registry import COMPRESSIONS, folder_endings, format_of, read_with
from penstock.prepare.sources.row_range import RowRange
from penstock.prepare.survey import listing
from penstock.prepare.survey.dataset_inputs import (
    is_below,
    library_split,
    listed_files,
    overlap,
    prepared_split,
    refuse_dataset,
    refuse_inner_shards,
    refuse_split_of_files,
    row_range,
    written_by,
)


@dataclass(frozen=True)
class Found:
    """The files to read, which of their rows where not all, and what lies among them and is not read."""

    files: list[File]
    ranges: dict[int, RowRange]  # by source
    unread: tuple[listing.Unread, ...]

    @property
    def count(self) -> int:
        """Files; items are none."""
        return sum(source_of(file.format).reads_files for file in self.files)

    @property
    def formats(self) -> tuple[str, ...]:
        """One per source."""
        by_source = {file.source: file.format for file in self.files}
        return tuple(by_source[number] for number in sorted(by_source))


def find_files(config: Config) -> Found:
    tally = listing.Tally()
    files = [file for number, source in enumerate(config.input) for file in _files_of(config, number, source, tally)]
    _refuse_twice(files)
    ranges = {number: rows for number, source in enumerate(config.input) if (rows := row_range(config, source))}
    return Found(files, ranges, tally.unread())


def _files_of(config: Config, number: int, source: SourceConfig, tally: listing.Tally) -> list[File]:
    """Files of one source in bytewise order of their paths relative to the pattern's fixed part; batch files by the
    numbers in those paths."""
    if source.items:
        return [File(number, items.PATH, f"input[{number}].items", source.kind)]
    found: dict[str, File] = {}
    for pattern in source.patterns:
        place = local_path(pattern, config.folder)
        kind = source.kind
        if source.path and listing.is_finished(place) and not listing.is_finished_batches(place):
            location, kind = prepared_split(config, number, source, place)
            root, locations = place, [location]
        elif source.path and (listed := listed_files(number, source, place)) is not None:
            root, locations = place, _others(listed, place, written_by(config))
        elif source.split and not (glob.has_magic(place) or os.path.isfile(place)):
            return library_split(config, number, source, pattern)
        else:
            refuse_split_of_files(number, source)
            root, locations = _match(place, source, written_by(config), tally)
        for location in locations:
            path = _name(location, root)
            if found.get(path, File(number, path, location, "")).location != location:
                raise InputError(
                    f"two files of one source have the same name: {path}",
                    where=f"{found[path].location} and {location}",
                    next_step="give them as two sources, or under one common folder",
                )
            if source.path and source.function:
                format_of(location, source.format)  # a name that does not tell is refused here
            found[path] = File(number, path, location, format_of(location, kind))
        if not locations:
            _refuse_own_folder(config, number, root)
            raise InputError(
                f"no file matches {pattern!r}",
                where=f"input[{number}], looked in {root}{_only(tally)}",
                next_step=_advice(pattern, root),
            )
    formats = sorted({file.format for file in found.values()})
    if len(formats) > 1:
        raise InputError(
            f"one source has files of different formats: {', '.join(formats)}",
            where=f"input[{number}]",
            next_step="give each format its own source: input: ['*.csv', '*.parquet']",
        )
    return sorted(found.values(), key=_numbered if source_of(formats[0]).is_numbered else _bytewise)


def _bytewise(file: File) -> bytes:
    return file.path.encode()


def _numbered(file: File) -> tuple[list[bytes | int], bytes]:
    """Batch files in the order of the numbers in their names: `batch_9999.npz` before `batch_10000.npz`."""
    pieces = re.split(rb"([0-9]+)", _bytewise(file))  # text and digits in turn, text first
    return [int(piece) if number % 2 else piece for number, piece in enumerate(pieces)], _bytewise(file)


def _name(location: str, root: str) -> str:
    """The path relative to `root`, which begins every location that was found below it."""
    path = location.removeprefix(os.path.join(root, ""))
    if path == location or "/." in f"/{path}" or "//" in path:
        path = os.path.relpath(location, root)
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def _refuse_own_folder(config: Config, number: int, root: str) -> None:
    """Say so if nothing was found because the job writes there."""
    for key, own in (("output", config.output_path), ("export", config.export_path)):
        if own and is_below(os.path.join(root, "file"), own):
            is_same = os.path.abspath(root) == os.path.abspath(own)
            raise InputError(
                f"`{key}:` is {'the input folder itself' if is_same else 'a folder around the input'}; "
                f"files inside the {key} are never read",
                where=f"input[{number}]: {root}",
                next_step=f"another `{key}:`, outside of the input" if is_same else f"another `{key}:`",
            )


def _advice(pattern: str, root: str) -> str:
    if os.path.isdir(root) and os.path.normpath(root).endswith(os.path.normpath(pattern)):
        endings = " ".join((*folder_endings("auto")[0], *folder_endings("auto")[-1]))
        documents = " ".join(folder_endings("text")[0])
        return (
            f"a folder stands for its files that end in {endings}, and with `format: text` for those in {documents}; "
            "for others give a pattern and a `format:`"
        )
    if not glob.has_magic(pattern) and pattern.count("/") == 1:
        return "check the path; for a dataset of the Hugging Face hub add `split:`, such as `split: train`"
    return "check the path; quote patterns on the command line; `**` crosses folders"


def _refuse_twice(files: list[File]) -> None:
    """A file that two patterns or sources name would have its rows twice."""
    seen: dict[str, File] = {}
    real_folder = cache(os.path.realpath)
    for file in files:
        folder, name = os.path.split(file.location)
        is_link = os.path.islink(file.location)
        if is_link and not os.path.exists(file.location):
            raise InputError(
                f"this link is broken: there is no file {os.readlink(file.location)}",
                where=file.location,
                next_step="restore that file, or remove the link",
            )
        place = os.path.realpath(file.location) if is_link else os.path.join(real_folder(folder), name)
        first = seen.setdefault(place, file)
        if first is not file:
            raise InputError(
                "this file occurs twice in the input",
                where=f"{first.location} (input[{first.source}]) and {file.location} (input[{file.source}])",
                next_step="let each file match one pattern of one source",
            )


def _others(locations: Iterable[str], root: str, written: Iterable[str]) -> list[str]:
    """The files of `root` that the job did not write."""
    near = [folder for folder in written if overlap(folder, root)]  # most often none, and files may be millions
    return [each for each in locations if not any(is_below(each, folder) for folder in near)]


def _endings_of(source: SourceConfig) -> tuple[tuple[str, ...], ...]:
    """Endings of the files that a folder stands for: those of the first group of which there are any.

    Raw files may be called anything.
    """
    if source.files:
        return (("",),)
    if source.npz:
        return ((".npz",),)
    groups = folder_endings(source.format)
    return tuple(tuple(ending + packed for ending in group for packed in ("", *COMPRESSIONS)) for group in groups)


def _match(pattern: str, source: SourceConfig, written: tuple[str, ...], tally: listing.Tally) -> tuple[str, list[str]]:
    """(the folder that positions are relative to, the files). A folder means every file below it of a known ending."""
    own = frozenset(map(os.path.abspath, written))
    if others := hidden_matches(pattern):
        raise InputError(
            f"this is the name of a file or folder, and as a pattern it also matches {len(others):,} more",
            where=f"{pattern}, and {others[0]}",
            next_step="rename or remove the one whose name looks like a pattern",
        )
    if os.path.isdir(pattern):
        refuse_dataset(pattern, bool(source.npz))
        below = _others(listing.files_below(pattern, own, bool(source.npz), tally), pattern, written)
        refuse_inner_shards(pattern, below)
        groups = ([each for each in below if each.lower().endswith(group)] for group in _endings_of(source))
        taken = next(filter(None, groups), [])
        chosen = {*taken, *map(read_with, taken)}
        tally.add_files(each for each in below if each not in chosen)
        return pattern, taken
    if os.path.lexists(pattern):
        _refuse_special(pattern)
        root = os.path.dirname(pattern)
        return root, _others([pattern], root, written)
    root = pattern
    while glob.has_magic(root):
        root = os.path.dirname(root)
    return root, _others(listing.files_matching(pattern, root, own, tally), root, written)


def _refuse_special(place: str) -> None:
    if kind := special_kind(place):
        raise InputError(
            f"this is a {kind}, not a file: its bytes can be read only once",
            where=place,
            next_step="write its contents to a file, and name that file",
        )


def _only(tally: listing.Tally) -> str:
    """Names of unread things, for an error message."""
    there = ", ".join(f"{each.count:,} {each.what} ({each.first})" for each in tally.unread()[:3])
    return f"; not read there: {there}" if there else ""
