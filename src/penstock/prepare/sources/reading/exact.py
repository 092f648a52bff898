"""Exact: values as a file spells them -> the first type that changes none of them, or string.

`keeps` is the definition; docs/decisions/0020-inference.md says what it means and why.
"""

import re
from collections.abc import Callable, Collection
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.prepare.rows.rows import Array
from penstock.shards.arrays import is_list

KINDS = (pa.int64(), pa.uint64(), pa.bool_(), pa.float64())  # in the order in which inference tries them
ALL_EXACT = 2.0**53  # every integer below it is a float64
_BOUNDS = {pa.int64(): (-(2**63), 2**63), pa.uint64(): (0, 2**64)}
_BOOLS = ["true", "True", "TRUE", "false", "False", "FALSE"]
LONGEST_INTEGER = 1000  # characters; Python makes no number of many thousands
_DIGITS = "-?[0-9]+"
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|-?\.[0-9]+")  # a number without an exponent
_NUMBER = re.compile(rf"(?:{_PLAIN.pattern})(?:[eE][+-]?[0-9]+)?")
_NO_NUMBER = re.compile(r"-?(?:nan|inf|infinity)", re.IGNORECASE)
_MOST_DIGITS = 400  # of an integer that some float64 is equal to, and then some
_SPACES = " \t"
_MINUS, _ZERO, _ONE = b"-01"


def keeps(text: str, kind: pa.DataType) -> bool:
    """Whether a value of one of KINDS is what `text` spells: the definition, value by value."""
    text = text.strip(_SPACES)
    if kind == pa.bool_():
        return text in _BOOLS
    if kind in _BOUNDS:
        low, high = _BOUNDS[kind]
        return bool(_INTEGER.fullmatch(text)) and len(text) <= 20 and low <= int(text) < high
    return bool(_NO_NUMBER.fullmatch(text)) or (bool(_NUMBER.fullmatch(text)) and _is_exact(text))


def _is_exact(number: str) -> bool:
    """Whether float64 keeps a number: a finite one stays finite, and a large one equal unless it has an exponent."""
    value = float(number)
    if abs(value) < ALL_EXACT:
        return True
    if abs(value) == float("inf") or len(number) > _MOST_DIGITS:
        return False
    return not _PLAIN.fullmatch(number) or Fraction(number) == Fraction(value)


def has_infinity(array: pa.Array) -> bool:
    """Whether a float in the array, or in what it holds, may be infinite; one that is null may say so too."""
    return _any_float(array, np.isinf)


def has_large_float(array: pa.Array) -> bool:
    """Whether a float64 in the array, or in what it holds, may have been another integer in the file."""
    return _any_float(array, lambda values: np.abs(values) >= ALL_EXACT)


def _any_float(array: pa.Array, ask: Callable[[Array], Array]) -> bool:
    kind, is_a = array.type, pa.types
    if is_a.is_floating(kind):
        return bool(ask(_numpy(array)).any())
    if is_list(kind):
        return _any_float(array.values, ask)
    return is_a.is_struct(kind) and any(_any_float(array.field(number), ask) for number in range(kind.num_fields))


def _numpy(array: pa.Array) -> Array:
    """The values of an array of floats, with anything where it is null."""
    values = np.frombuffer(array.buffers()[1], f"f{array.type.bit_width // 8}") if len(array) else np.zeros(0)
    return values[array.offset : array.offset + len(array)]


def is_too_large(number: str, kind: pa.DataType) -> bool:
    """Whether a float type would make an infinity of a number. Arrow rounds it, as it does when it reads it."""
    if not number[-1:].isdigit():  # inf itself is spelled in letters
        return False
    read_as = pa.float64() if pa.types.is_float16(kind) else kind
    return bool(np.isinf(pa.scalar(number).cast(read_as).cast(kind).as_py()))


def how_to_declare(column: str, word: str = "string") -> str:
    """The end of a complaint about a value that the type of an inferred column would change."""
    return f"which the first rows showed: declare its type, such as `types: {{{column}: {word}}}`"


def how_to_expect(column: str) -> str:
    """The end of a complaint about a field of JSON lines that comes later than in the first rows."""
    name = column if column.isprintable() else ascii(column)
    return f"which the first rows do not have: declare it, such as `types: {{{name}: string}}`, or `select` others"


def type_of_numbers(numbers: Collection[str]) -> pa.DataType:
    """The type of JSON numbers, by their spelling."""
    integers = all(re.fullmatch(_DIGITS, number) for number in numbers)
    for kind in (pa.int64(), pa.uint64()) if integers else (pa.float64(),):
        if all(keeps(number, kind) for number in numbers):
            return kind
    return pa.string()


def inferred_type(texts: pa.Array, null_words: tuple[str, ...]) -> pa.DataType:
    """The type of a column of CSV values; null where no value tells."""
    given = _with_nulls(texts, null_words)
    if given.null_count == len(given):
        return pa.null()
    first = _decoded(given.drop_null()[0])
    for kind in KINDS:
        if not keeps(first, kind):  # which spares thousands of columns a closer look
            continue
        try:
            _exact(given, kind)
            break
        except pa.ArrowInvalid:
            continue
    else:
        return pa.string()
    integers = kind == pa.float64() and pc.all(pc.match_substring_regex(given, rf"^[ \t]*{_DIGITS}[ \t]*$")).as_py()
    return pa.string() if integers else kind


def exact_array(texts: pa.Array, kind: pa.DataType, null_words: tuple[str, ...]) -> pa.Array:
    """The values that `texts` (strings) spell. ArrowInvalid if `kind`, one of KINDS, would change one."""
    if not len(texts):
        return pa.array([], kind)
    return _exact(_with_nulls(texts, null_words), kind)


def _exact(given: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return _cast(given, kind)
    except pa.ArrowInvalid:
        trimmed = pc.ascii_trim(given, _SPACES)
        if trimmed.equals(given):
            raise
        return _cast(trimmed, kind)


def _cast(given: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind == pa.bool_():
        number = pc.index_in(given, pa.array(_BOOLS))
        _refuse_if(number.null_count > given.null_count)
        return pc.less(number, _BOOLS.index("false"))
    _refuse_if(not _looks_plain(given, kind))
    array = given.cast(kind)
    if kind == pa.float64():
        large = np.flatnonzero(np.abs(_numpy(array)) >= ALL_EXACT)
        _refuse_if(not _all_kept(given.take(pa.array(large)), kind))
    return array


def _refuse_if(changed: bool) -> None:
    if changed:
        raise pa.ArrowInvalid("a value would be changed")


def _looks_plain(given: pa.Array, kind: pa.DataType) -> bool:
    """Whether no value starts in a way that does not print back. The cast decides about the rest of it."""
    starts, ends, data = _bounds(given)
    if not len(data):
        return True
    odd = np.flatnonzero(_not_from(_ONE, data.take(starts, mode="clip")) | (starts == ends))
    if not len(odd):
        return True
    starts, ends = starts[odd], ends[odd]
    negative = data.take(starts, mode="clip") == _MINUS
    starts = starts + negative
    first, second = data.take(starts, mode="clip"), data.take(starts + 1, mode="clip")
    alone = ends - starts == 1
    plain = ~_not_from(_ONE, first)
    if kind == pa.float64():
        plain |= (first == _ZERO) & (alone | _not_from(_ZERO, second))
    else:
        plain |= (first == _ZERO) & alone & ~negative
    plain &= ends > starts
    return _all_kept(given.take(pa.array(odd[~plain])), kind)


def _all_kept(texts: pa.Array, kind: pa.DataType) -> bool:
    return not len(texts) or all(keeps(_decoded(value), kind) for value in texts.drop_null().unique())


def _decoded(text: pa.Scalar) -> str:
    """The text, which may be anything but UTF-8."""
    return str(text.as_buffer().to_pybytes(), "utf-8", "replace")


def _not_from(lowest: int, characters: Array) -> Array:
    """Mask of the characters that are no digit from `lowest` to 9: a smaller one wraps around."""
    return characters - np.uint8(lowest) > np.uint8(ord("9") - lowest)


def _with_nulls(texts: pa.Array, null_words: tuple[str, ...]) -> pa.Array:
    """The texts, null where they are one of the words. Only those are compared that do not start like a number."""
    if not null_words:
        return texts
    starts, ends, data = _bounds(texts)
    if any(word[:1].isdigit() or word[:1] == "-" for word in null_words):
        maybe = np.arange(len(texts))
    else:
        first = data.take(starts, mode="clip") if len(data) else np.zeros(len(texts), "u1")
        maybe = np.flatnonzero((starts == ends) | (_not_from(_ZERO, first) & (first != _MINUS)))
    if not len(maybe):
        return texts
    words = pa.array(null_words, texts.type)
    null = maybe[pc.is_in(texts.take(pa.array(maybe)), words).to_numpy(zero_copy_only=False)]
    if not len(null):
        return texts
    valid = np.ones(len(texts), bool)
    valid[null] = False
    _, offsets, values = texts.buffers()
    bitmap = pa.py_buffer(np.packbits(np.concatenate([np.ones(texts.offset, bool), valid]), bitorder="little"))
    return pa.Array.from_buffers(texts.type, len(texts), [bitmap, offsets, values], len(null), texts.offset)


def _bounds(texts: pa.Array) -> tuple[Array, Array, Array]:
    """(starts, ends, bytes): each text's place, and the bytes of all."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, "i4")[texts.offset : texts.offset + len(texts) + 1]
    return bounds[:-1], bounds[1:], np.frombuffer(data, "u1") if data else np.zeros(0, "u1")
