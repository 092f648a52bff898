"""Documents: places in a file of the input -> the documents that are there, each checked by its content hash.

A document is shown only if its text has the hash that was stored when the dataset was made. The column needs no name:
it is the one whose text has the hash.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from penstock.shards import arrow as pa
from penstock.shards.origins import content_hash
from penstock.shards.rereading.lines import Place, has_lines, is_json, is_table, lines_at, open_file
from penstock.shards.rereading.tables import rows_at

CHANGED = "the file no longer has this document there"
NO_HASH = "the dataset keeps no content hashes, so a document cannot be checked"
OTHER_FORMAT = "files of this format are not read again"
_MARK = b"\xef\xbb\xbf"


class Reread(NamedTuple):
    """A document as its file has it, and its line; or why there is none."""

    text: str | None
    line: int | None = None
    problem: str | None = None


def reread(
    path: str, options: Mapping[str, Any], hashes: Mapping[Place, int | None], counts: bool
) -> dict[Place, Reread]:
    """The documents at these places of one file, which is read once. `options` are those of its source.

    A place without a hash has no text that could be checked: only its line is counted.
    """
    try:
        return {place: _checked(found, hashes[place]) for place, found in _read(path, options, hashes, counts)}
    except OSError as error:
        problem = f"the file cannot be read: {error.strerror or error}"
    except (pa.ArrowException, csv.Error, ValueError) as error:
        problem = f"the file cannot be read: {str(error).partition(chr(10))[0]}"
    return {place: Reread(None, None, problem) for place in hashes}


class _Found(NamedTuple):
    texts: list[bytes]
    line: int | None = None
    problem: str | None = None  # where it is not known what the file has there


def _checked(found: _Found, stored: int | None) -> Reread:
    if stored is None:
        return Reread(None, found.line, found.problem or NO_HASH)
    for text in found.texts:
        if content_hash(text) == stored:
            return Reread(text.decode(), found.line)
    return Reread(None, None, found.problem or CHANGED)


def _read(
    path: str, options: Mapping[str, Any], places: Mapping[Place, Any], counts: bool
) -> Iterator[tuple[Place, _Found]]:
    if options.get("function"):
        yield from ((place, _Found([], None, "a function made it from this file")) for place in places)
    elif options.get("format") == "parquet" or path.endswith((".parquet", ".pq")):
        yield from _rows(path, places)
    elif options.get("format") == "csv" or is_table(path):
        rows = rows_at(path, options, places, counts)
        yield from (
            (place, _Found(rows[place].values, rows[place].number) if place in rows else _Found([])) for place in places
        )
    elif not (has_lines(path) or options.get("format") == "text") or (
        options.get("encoding") and (is_json(path) or options.get("document") == "line")
    ):
        yield from ((place, _Found([], None, OTHER_FORMAT)) for place in places)
    elif is_json(path) or options.get("document") == "line":
        lines = lines_at(path, places, counts)
        for place in places:
            line = lines.get(place)
            texts = [] if line is None else _strings(line.data) if is_json(path) else [line.data.removeprefix(_MARK)]
            yield place, _Found(texts, line.number) if line else _Found([], None, CHANGED)
    else:
        with open_file(path) as stream:
            data = stream.read()
        if encoding := options.get("encoding"):
            data = data.decode(encoding).encode()
        yield from ((place, _Found([data.removeprefix(_MARK)], 1)) for place in places)


def _strings(line: bytes) -> list[bytes]:
    """Every text in a line of JSON."""
    try:
        left, found = [json.loads(line.removeprefix(_MARK))], []
    except ValueError:
        return []
    while left:
        value = left.pop()
        if isinstance(value, str):
            found.append(value.encode("utf-8", "surrogatepass"))
        else:
            left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return found


def _rows(path: str, places: Mapping[Place, Any]) -> Iterator[tuple[Place, _Found]]:
    """The texts of rows of a Parquet file, a row group at a time."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        kinds = file.schema_arrow
        columns = [field.name for field in kinds if "string" in str(field.type)]
        first = 0
        left = set(places)
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            own = [place for place in left if first <= place.position < first + rows]
            table = file.read_row_group(group, columns) if own else None
            for place in own:
                texts = (column[place.position - first].as_py() for column in table.columns) if table else ()
                yield place, _Found([text.encode() for text in texts if isinstance(text, str)])
            left.difference_update(own)
            first += rows
    yield from ((place, _Found([], None, CHANGED)) for place in left)
