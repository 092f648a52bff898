"""Excluded: exclude= of load(), a file or a list -> the documents that it names, by origin or by content hash."""

from __future__ import annotations

import json
import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.base.errors import ConfigError
from penstock.base.numbers import is_whole
from penstock.base.paths import normal_path
from penstock.base.stores import is_served
from penstock.loader.batches import SegmentOrigin

_MOST_SHOWN = 200  # characters of a line
_MOST_POSITION = 2**63 - 1
_HASH = re.compile(r"[0-9a-f]{16}")
_USAGE = (
    "one per line, or one JSON array: file:position; 16 hexadecimal digits, the hash of the text; "
    '[source, "file", position] where inputs have files of the same name; or {"dataset": "prepared", "source": 0, '
    '"file": "a.jsonl", "position": 17}, as loader.origin(k) has them'
)


class ContentHash(NamedTuple):
    """Hash of the text of a document, as the input has it."""

    value: int

    def __str__(self) -> str:
        return f"{self.value:016x}"


class Place(NamedTuple):
    """Place of a document in the input. None is any dataset, and any source."""

    file: str
    position: int
    source: int | None = None
    dataset: str | None = None

    def __str__(self) -> str:
        return f"{self.dataset or ''}{': ' if self.dataset else ''}{self.file}:{self.position}"

    def may_be_of(self, path: str) -> bool:
        """Whether the dataset at this path is the one that is named, or any may be."""
        return self.dataset is None or _real(self.dataset) == _real(path)

    def written(self) -> str:
        """As a line of a list."""
        if self.dataset is None:
            return json.dumps([self.source, self.file, self.position], ensure_ascii=False)
        own = {"dataset": self.dataset, "source": self.source, "file": self.file, "position": self.position}
        return json.dumps({name: value for name, value in own.items() if value is not None}, ensure_ascii=False)


Line = Place | ContentHash


def read_lines(given: str | os.PathLike[str] | Sequence[Any]) -> list[Line]:
    """The documents of a file or a list, each once."""
    written: Iterable[Any] = given if not isinstance(given, str | os.PathLike) else _lines_of(given)
    lines = list(dict.fromkeys(map(_parsed, written)))
    if not lines:
        raise ConfigError("the list to exclude is empty", where="load(exclude=...)", next_step="leave exclude= out")
    return lines


def _lines_of(path: str | os.PathLike[str]) -> list[Any]:
    """Entries of a file with or without a byte order mark: a JSON array of origins, or lines that are no comments."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            whole = file.read()
        return _entries_of(whole) or [
            line.strip() for line in whole.split("\n") if line.strip() and not line.startswith("# ")
        ]
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, ValueError) else error.strerror or str(error)
        raise ConfigError(f"the list to exclude cannot be read: {reason}", where=os.fspath(path)) from error


def _entries_of(whole: str) -> list[Any]:
    """Origins of one JSON array, as a dump of `loader.origin(k)` has them; none if the text is something else."""
    if not whole.lstrip().startswith("["):
        return []
    try:
        entries = json.loads(whole)
    except ValueError:
        return []
    return entries if all(isinstance(each, Mapping | list) for each in entries) else []


def _parsed(line: Any) -> Line:
    if isinstance(line, SegmentOrigin):
        line = line._asdict()
    try:
        if isinstance(line, str) and _HASH.fullmatch(line.lower()):
            return ContentHash(int(line, 16))
        if isinstance(line, str) and not line.startswith(("[", "{")):
            file, _, position = line.rpartition(":")
            return Place(file, _number(int(position)))
        told = json.loads(line) if isinstance(line, str) else line
        if isinstance(told, Mapping):
            return _of_mapping(told)
        source, file, position = told
        return Place(str(file), _number(position), _number(source))
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{_shortened(repr(line))} is neither an origin nor a hash", where="load(exclude=...)", next_step=_USAGE
        ) from error


def _shortened(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _of_mapping(told: Mapping[str, Any]) -> Line:
    """An origin as `loader.origin(k)` has it; or a hash alone."""
    if set(told) == {"hash"} and _HASH.fullmatch(told["hash"]):
        return ContentHash(int(told["hash"], 16))
    if not isinstance(told["file"], str):
        raise TypeError("the origin is not known")
    dataset, source = told.get("dataset"), told.get("source")
    if not isinstance(dataset, str | None):
        raise TypeError("a dataset is named by its path")
    return Place(told["file"], _number(told["position"]), source if source is None else _number(source), dataset)


def _number(value: Any) -> int:
    """A position, or the number of a source. One that would have to be rounded may be that of another document."""
    if not is_whole(value, 0, _MOST_POSITION):
        raise ValueError(f"{value!r} is no whole number from 0 on")
    return operator.index(value)


@lru_cache(maxsize=1024)  # a list names few datasets, many times
def _real(path: str) -> str:
    return normal_path(path) if is_served(path) else os.path.realpath(path)
