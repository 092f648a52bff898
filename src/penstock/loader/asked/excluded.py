"""Excluded: exclude= of load(), a file or a list -> the documents that it names, by origin or by content hash."""

import json
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock.base.errors import ConfigError
from penstock.loader.batches import SegmentOrigin
from penstock.shards.origins import Origin

_HASH = re.compile(r"[0-9a-f]{16}")
_USAGE = (
    'one per line: file:position; 16 hexadecimal digits, the hash of the text; or [source, "file", position] where '
    "inputs have files of the same name"
)


class ContentHash(NamedTuple):
    """Hash of the text of a document, as the input has it."""

    value: int

    def __str__(self) -> str:
        return f"{self.value:016x}"


Line = Origin | ContentHash


def read_lines(given: str | os.PathLike[str] | Sequence[Any]) -> list[Line]:
    """The documents of a file or a list, each once. Source -1 is any source."""
    written: Iterable[Any] = given if not isinstance(given, str | os.PathLike) else ()
    if isinstance(given, str | os.PathLike):
        try:
            with open(given, encoding="utf-8") as file:
                written = [line.strip() for line in file if line.strip() and not line.startswith("# ")]
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"the list to exclude cannot be read: {reason}", where=os.fspath(given)) from error
    lines = list(dict.fromkeys(map(_parsed, written)))
    if not lines:
        raise ConfigError("the list to exclude is empty", where="load(exclude=...)", next_step="leave exclude= out")
    return lines


def _parsed(line: Any) -> Line:
    if isinstance(line, SegmentOrigin):
        return Origin(line.source, line.file, line.position)
    try:
        if isinstance(line, str) and _HASH.fullmatch(line.lower()):
            return ContentHash(int(line, 16))
        if isinstance(line, str) and not line.startswith("["):
            file, _, position = line.rpartition(":")
            return Origin(-1, file, int(position))
        source, file, position = json.loads(line) if isinstance(line, str) else line
        return Origin(int(source), str(file), int(position))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{line!r} is neither an origin nor a hash", where="load(exclude=...)", next_step=_USAGE
        ) from error
