"""JSON literals: numbers, true and false as a line spells them, each with its place and the type of its column there.

Arrow's reader makes a float64 of a large integer, and takes no literal for text. The few lines where that matters are
read here, token by token, without recursion.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.prepare.sources.reading.exact import ALL_EXACT, is_too_large, keeps, type_of_numbers
from penstock.shards.arrays import is_list

DEEPEST = 100  # levels of lists and objects; Arrow ends the process where it infers the type of thousands
TOO_DEEP = f"its lists and objects nest more than {DEEPEST} levels deep"
ITEM = ""  # stands in a path for the items of a list
_STRING = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_NESTING = re.compile(rb"%b|([\[{])|[\]}]" % _STRING)
_TOKEN = re.compile(rb"%b|-?(?:[0-9][0-9.eE+-]*|NaN|Inf(?:inity)?)|true|false|[][{}:,]" % _STRING)
_LONG_INTEGER = re.compile(rb"(?<![0-9.])[0-9]{16}")  # what is shorter is exact in float64
_LARGE_NUMBER = re.compile(rb"(?<![0-9.])[0-9]{5}|[0-9][eE]\+?[0-9]")  # what is smaller is finite in float16
_ESCAPED_KEY = rb'[{,]\s*"[^"\\\n]*(?:\\.[^"\\\n]*)+"\s*:'

Path = tuple[str, ...]
Kind = Any  # a pa.DataType, or None where the schema does not reach


class Literal(NamedTuple):
    """A number, true or false, spelled from `start` to `end` of the data."""

    path: Path
    kind: Kind
    start: int
    end: int
    text: str


def nests_too_deep(line: bytes) -> bool:
    if line.count(b"[") + line.count(b"{") <= DEEPEST:
        return False
    depth = 0
    for token in _NESTING.finditer(line):
        if not token[0].startswith(b'"'):
            depth += 1 if token[1] else -1
            if depth > DEEPEST:
                return True
    return False


def literals_in(data: bytes, schema: pa.Schema, start: int = 0, end: int = sys.maxsize) -> Iterator[Literal]:
    """Literals of the line from `start` to `end`."""
    kind: Kind = pa.struct(list(schema))
    path: Path = ()
    around: list[tuple[Kind, Path]] = []
    text = b""
    for token in _TOKEN.finditer(data, start, end):
        mark = token[0][:1]
        if mark == b'"':
            text = token[0]
        elif mark in b"{[":
            around.append((kind, path))
            kind, path = _item(kind, path) if mark == b"[" else (None, path)
        elif not around:
            return  # it is no object
        elif mark in b"}]":
            around.pop()
            kind = None
        elif mark == b",":
            kind, path = _item(*around[-1])
        elif mark == b":":
            kind, path = _member(*around[-1], text)
        else:
            yield Literal(path, kind, token.start(), token.end(), token[0].decode())


def _item(kind: Kind, path: Path) -> tuple[Kind, Path]:
    return (kind.value_type if kind is not None and is_list(kind) else None), (*path, ITEM)


def _member(kind: Kind, path: Path, key: bytes) -> tuple[Kind, Path]:
    try:
        name = json.loads(key)
        number = kind.get_field_index(name) if kind is not None and pa.types.is_struct(kind) else -1
    except ValueError:  # half a character, or not UTF-8
        return None, path
    return (kind.field(number).type if number >= 0 else None), (*path, name)


def plain_check(kind: Kind) -> Callable[[Any], bool]:
    """Makes a quick check: yes for values that the type surely keeps as they are spelled, no for all that need a look.

    Reading a line token by token takes ten times as long as Python's parser with this check.
    """
    is_a = pa.types
    if is_a.is_list(kind):
        item = plain_check(kind.value_type)
        return lambda value: value is None or (type(value) is list and all(map(item, value)))
    if is_a.is_struct(kind):
        fields = {field.name: plain_check(field.type) for field in kind}
        return lambda value: (
            value is None
            or (type(value) is dict and all(name in fields and fields[name](each) for name, each in value.items()))
        )
    if kind in (pa.int64(), pa.uint64()):
        low = 0 if kind == pa.uint64() else -ALL_EXACT
        return lambda value: value is None or (type(value) is int and low <= value < ALL_EXACT)
    if kind == pa.float64():
        return lambda value: value is None or (type(value) in (int, float) and abs(value) < ALL_EXACT)
    python = {pa.string(): str, pa.bool_(): bool}.get(kind)
    return lambda value: value is None or type(value) is python


def inexact_literal(data: bytes, schema: pa.Schema) -> Literal | None:
    """The first literal in lines of JSON that its float64 would change."""
    floats = (each for each in _literals_near(_LONG_INTEGER, data, schema) if each.kind == pa.float64())
    return next((each for each in floats if not keeps(each.text, each.kind)), None)


def infinite_literal(data: bytes, schema: pa.Schema) -> Literal | None:
    """The first number in lines of JSON that its float type would make infinite."""
    known = (each for each in _literals_near(_LARGE_NUMBER, data, schema) if each.kind is not None)
    floats = (each for each in known if pa.types.is_floating(each.kind))
    return next((each for each in floats if is_too_large(each.text, each.kind)), None)


def settled_types(lines: list[bytes], schema: pa.Schema) -> pa.Schema:
    """The columns of the schema in which a float64 would change a number of the lines, in another type."""
    if not len(schema) or not any(map(_LONG_INTEGER.search, lines)):
        return pa.schema([])
    found: dict[Path, set[str]] = {}
    for line in lines:
        for literal in literals_in(line, schema):
            if literal.kind == pa.float64():
                found.setdefault(literal.path, set()).add(literal.text)
    kinds = {path: type_of_numbers(numbers) for path, numbers in found.items()}
    settled = pa.schema([(field.name, _settled(field.type, (field.name,), kinds)) for field in schema])
    return pa.schema([field for field in settled if field != schema.field(field.name)])


def _settled(kind: pa.DataType, path: Path, kinds: dict[Path, pa.DataType]) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_settled(kind.value_type, (*path, ITEM), kinds))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _settled(field.type, (*path, field.name), kinds)) for field in kind])
    return kinds.get(path, kind)


def literals_as_text(data: bytes, schema: pa.Schema) -> bytes:
    """Lines of JSON with quotes around the literals in columns of text, as far as the schema has those columns."""
    if not len(schema):
        return data
    pieces, at = [], 0
    for literal in _literals_near(_before_literals(schema), data, schema):
        if literal.kind in (pa.string(), pa.large_string()):
            pieces += [data[at : literal.start], b'"', literal.text.encode(), b'"']
            at = literal.end
    return b"".join([*pieces, data[at:]])


def _before_literals(schema: pa.Schema) -> re.Pattern[bytes]:
    """Matches the key of a column and how a value starts there that is a literal, or may hold one.

    It also matches every key with an escape in it, which may be another spelling of a column.
    """
    is_a = pa.types
    keys = [_ESCAPED_KEY]
    for field in schema:
        start = rb"{" if is_a.is_struct(field.type) else rb"\[" if is_a.is_nested(field.type) else rb"[-0-9NItf]"
        for key in {json.dumps(field.name), json.dumps(field.name, ensure_ascii=False)}:
            keys.append(rb"%b\s*:\s*%b" % (re.escape(key.encode()), start))
    return re.compile(b"|".join(keys))


def _literals_near(pattern: re.Pattern[bytes], data: bytes, schema: pa.Schema) -> Iterator[Literal]:
    """Literals of the lines in which the pattern occurs."""
    position = 0
    while found := pattern.search(data, position):
        start = data.rfind(b"\n", 0, found.start()) + 1
        position = data.find(b"\n", found.end()) + 1 or len(data)
        yield from literals_in(data, schema, start, position)
