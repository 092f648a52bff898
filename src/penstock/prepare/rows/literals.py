"""Literals: the value of a condition, as a person wrote it -> a scalar of the column's type. Used by filter.py.

The value means what the column's type would hold for it: 0.1 beside float32 is the float32 next to 0.1. What that type
cannot hold at all (2.5 beside int64, 1e39 beside float32) is refused.
"""

import re
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import yaml


class WrittenFloat(float):
    """A number with a point or an exponent, with all the digits that were written."""

    text: str

    @property
    def exact(self) -> Decimal:
        try:
            return Decimal(self.text.replace("_", ""))
        except InvalidOperation:  # .inf and .nan
            return Decimal(self)


class _Values(yaml.SafeLoader):
    """YAML's values, where 1e-3 is a number too; 12:30:00 and 007 are text, which YAML would take for other numbers."""


_Values.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if not tag.endswith((":int", ":float"))]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Values.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)\Z"), list("-+0123456789")
)
_Values.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"(?:[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
    list("-+0123456789."),
)


def shown_value(value: Any) -> str:
    """A value as a person wrote it, for errors: 2024-06-01, not datetime.date(2024, 6, 1)."""
    return str(value) if isinstance(value, date) else repr(value)


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> WrittenFloat:
    number = WrittenFloat(loader.construct_yaml_float(node))
    number.text = node.value
    return number


def _construct_time(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> Any:
    """YAML cuts a second after six digits: a finer time stays text, which no column of times takes."""
    fraction = re.search(r"\.([0-9]+)", node.value)
    is_fine = fraction and fraction[1][6:].strip("0")
    return node.value if is_fine else loader.construct_yaml_timestamp(node)


_Values.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Values.add_constructor("tag:yaml.org,2002:timestamp", _construct_time)


def read_literal(text: str) -> Any:
    """Raises ValueError for what is no value, and where YAML would read another one than is written: `a #1` is `a`."""
    try:
        node, value = yaml.compose(text, _Values), yaml.load(text, _Values)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a day such as 2020-13-45
        raise ValueError(f"{text!r} is not a value") from error
    if not node or _written(node, text) != text or not _is_as_written(node, text):
        raise ValueError(f"{text!r} has characters that mean something else in YAML")
    return value


def unquoted(text: str) -> list[str]:
    """The pieces of a value that stand without quotes; all of it where it is no value."""
    try:
        node = yaml.compose(text, _Values)
    except yaml.YAMLError:
        return [text]
    pieces = node.value if isinstance(node, yaml.SequenceNode) else [node]
    return [piece.value for piece in pieces if isinstance(piece, yaml.ScalarNode) and piece.style is None]


def _is_as_written(node: yaml.Node, text: str) -> bool:
    """Whether it is `[`a list`]`, a text in quotes, or a scalar of just the characters that stand there."""
    written = _written(node, text)
    if isinstance(node, yaml.SequenceNode):
        return written.startswith("[") and all(_is_as_written(each, text) for each in node.value)
    return isinstance(node, yaml.ScalarNode) and (written == node.value or written[:1] in ("'", '"'))


def _written(node: yaml.Node, text: str) -> str:
    return text[node.start_mark.index : node.end_mark.index]


def scalar_of(value: Any, kind: pa.DataType) -> pa.Scalar:
    """The value in the column's type; raises where that would be another value. Floats are answered as float64."""
    is_a = pa.types
    if is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind):
        return _number(value, kind)
    if is_a.is_temporal(kind):
        return _time(value, kind)
    try:
        return pa.scalar(value, kind)
    except TypeError as error:  # Arrow's words name classes of Python
        raise TypeError("text is needed") from error


def _number(value: Any, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a number is needed")
    if pa.types.is_floating(kind):
        return pa.scalar(_rounded(value, kind.bit_width), pa.float64())
    exact = value.exact if isinstance(value, WrittenFloat) else Decimal(value)
    if pa.types.is_decimal(kind):  # 0.1 of a job is a tenth, as it was written
        return pa.scalar(Decimal(repr(value)) if type(value) is float else exact, kind)
    if not exact.is_finite() or exact != exact.to_integral_value():
        raise ValueError("a whole number is needed")
    return pa.scalar(int(exact), kind)


def _rounded(value: float, bits: int) -> float:
    """The nearest float with this number of bits."""
    wide = float(value)
    is_infinite = isinstance(value, WrittenFloat) and "inf" in value.text.lower()
    with np.errstate(over="ignore", under="ignore"):
        narrow = float(np.dtype(f"f{bits // 8}").type(wide))
    if np.isinf(narrow) and not is_infinite:
        raise ValueError(f"it is beyond the range of float{bits}")
    if narrow == 0 and (value.exact if isinstance(value, WrittenFloat) else value) != 0:
        raise ValueError(f"float{bits} has no number this small except 0")
    return narrow


def _time(value: Any, kind: pa.DataType) -> pa.Scalar:
    is_a = pa.types
    if isinstance(value, float):
        raise TypeError("a time, or a whole number in the column's unit, is needed")
    if is_a.is_time(kind) and isinstance(value, str):
        return pa.scalar(time.fromisoformat(value), pa.time64("us")).cast(kind)
    if isinstance(value, str) and (is_a.is_date(kind) or is_a.is_timestamp(kind)):
        value = read_literal(value)  # between quotes: '2024-06-01'
        if not isinstance(value, date):
            raise TypeError("a day or a time is needed, such as 2024-06-01 or 2024-06-01T12:30:00")
    if is_a.is_date(kind) and isinstance(value, datetime):
        raise TypeError("a day without a time is needed")
    if is_a.is_timestamp(kind) and isinstance(value, date):
        value = value if isinstance(value, datetime) else datetime.combine(value, time())
        if value.tzinfo and not kind.tz:
            raise TypeError("the column has no zone, and a time without one is needed")
        return pa.scalar(value, pa.timestamp("us", kind.tz)).cast(kind)
    return pa.scalar(value, kind)
