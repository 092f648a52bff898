"""Finding: the files that a job's input names, in the order in which their rows stand. Next: survey.py."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

from penstock.base.errors import InputError, file_error
from penstock.prepare.config import Config
from penstock.prepare.source_config import SourceConfig
from penstock.prepare.sources import COMPRESSIONS, SUFFIXES, File, format_of


def find_files(config: Config) -> list[File]:
    files = [file for number, source in enumerate(config.input) for file in _files_of(config, number, source)]
    _refuse_twice(files)
    return files


def _files_of(config: Config, number: int, source: SourceConfig) -> list[File]:
    """Files of one source in bytewise order of their paths relative to the pattern's fixed part."""
    found: dict[str, File] = {}
    for pattern in source.patterns:
        root, locations = _match(os.path.join(config.folder, pattern), _endings_of(source))
        locations = [each for each in locations if not _is_below(each, config.output_path)]
        for location in locations:
            path = os.fsencode(os.path.relpath(location, root)).decode("utf-8", "backslashreplace")
            if found.get(path, File(number, path, location, "")).location != location:
                raise InputError(
                    f"two files of one source have the same name: {path}",
                    where=f"{found[path].location} and {location}",
                    next_step="give them as two sources, or under one common folder",
                )
            if source.path and source.function:
                format_of(location, source.format)  # a name that does not tell is refused here
            found[path] = File(number, path, location, format_of(location, source.kind))
        if not locations:
            raise InputError(
                f"no file matches {pattern!r}",
                where=f"input[{number}], looked in {root}",
                next_step="check the path; quote patterns on the command line; `**` crosses folders",
            )
    files = sorted(found.values(), key=lambda file: os.fsencode(file.path))
    formats = sorted({file.format for file in files})
    if len(formats) > 1:
        raise InputError(
            f"one source has files of different formats: {', '.join(formats)}",
            where=f"input[{number}]",
            next_step="give each format as a source of its own: input: ['*.csv', '*.parquet']",
        )
    return files


def _refuse_twice(files: list[File]) -> None:
    """A file that two patterns or sources name would have its rows twice."""
    seen: dict[str, File] = {}
    for file in files:
        first = seen.setdefault(os.path.realpath(file.location), file)
        if first is not file:
            raise InputError(
                "this file is in the input twice",
                where=f"{first.location} (input[{first.source}]) and {file.location} (input[{file.source}])",
                next_step="let each file match one pattern of one source",
            )


def _is_below(path: str, folder: str) -> bool:
    """Whether a file is the job's own output: an output inside the input folder must not feed itself."""
    return os.path.abspath(path).startswith(os.path.join(os.path.abspath(folder), ""))


def _endings_of(source: SourceConfig) -> tuple[str, ...]:
    """How names end of the files that a folder stands for; raw files may be called anything."""
    if source.files:
        return ("",)
    if source.npz:
        return (".npz",)
    return tuple(suffix + packed for suffix in SUFFIXES for packed in ("", *COMPRESSIONS))


def _match(pattern: str, endings: tuple[str, ...]) -> tuple[str, list[str]]:
    """(the folder that positions are relative to, the files). A folder means every file below it of a known ending.

    A link that leads nowhere counts as a file: reading it fails by name, where leaving it out would say nothing.
    """
    if os.path.isdir(pattern):
        return pattern, [each for each in _files_below(pattern) if each.lower().endswith(endings)]
    if os.path.lexists(pattern):
        return os.path.dirname(pattern), [pattern]
    root = pattern
    while glob.has_magic(root):
        root = os.path.dirname(root)
    return root, [each for each in glob.glob(pattern, recursive=True) if not os.path.isdir(each)]


def _files_below(folder: str) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise file_error(error, "list", error.filename or folder)

    for place, _, names in os.walk(folder, onerror=refuse):
        if not os.path.basename(place).startswith(".penstock"):
            yield from (os.path.join(place, name) for name in names)
