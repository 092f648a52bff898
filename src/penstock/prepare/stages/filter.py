"""Filter: keep the rows for which every condition holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from penstock.base.errors import ConfigError, TaskError
from penstock.prepare.rows import Rows
from penstock.prepare.stage import Stage, require_columns
from penstock.prepare.user_code import call_user, load_user_object

_OPERATORS = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<=": pc.less_equal,
    ">=": pc.greater_equal,
    "<": pc.less,
    ">": pc.greater,
}
_CONDITION = re.compile(
    r"\s*(`[^`]+`|[^\s=!<>`]+)\s*(==|!=|<=|>=|<|>|(?<=[\s`])(?:not\s+in|in|is\s+not|is)\b)\s*(.+?)\s*"
)
_MEASURES = {"characters": pc.utf8_length, "bytes": pc.binary_length, "length": pc.list_value_length}
_MEASURED = re.compile(rf"({'|'.join(_MEASURES)})\((.+)\)")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Condition:
    """`column op value`, read once."""

    text: str
    column: str
    operator: str
    value: Any
    measure: str = ""  # characters, bytes or length: of the column's value, not the value itself

    def mask(self, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """Where it holds. A comparison with null holds nowhere; `is null` asks for nulls."""
        array = _comparable(batch.column(self.column))
        if self.measure:
            array = _MEASURES[self.measure](array).cast(pa.int64())
        if self.operator in ("is", "is not"):
            answer = pc.is_null(array) if self.operator == "is" else pc.is_valid(array)
        elif self.operator in ("in", "not in"):
            known = pa.array([_scalar(value, array.type) for value in self.value], array.type)
            answer = pc.is_in(array, known)
            if self.operator == "not in":
                answer = pc.and_(pc.invert(answer), pc.is_valid(array))
        else:
            answer = _OPERATORS[self.operator](array, _scalar(self.value, array.type))
        return np.asarray(pc.fill_null(answer, False))


@dataclass(frozen=True, kw_only=True)
class Filter(Stage):
    """`filter: rtt > 0`, a list of conditions, or `module:function` (a record batch in, a boolean mask out).

    Rows that fail are counted by condition; `keep: true` also writes them to `rejected/`.
    Operators: == != < <= > >= in, not in, is null, is not null. A name with spaces goes between backquotes.
    `characters(text)` and `bytes(text)` measure a text, `length(tokens)` a list.
    """

    where: tuple[str, ...]
    keep: bool = False

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        options = dict(written) if isinstance(written, dict) else {"where": written}
        if isinstance(options.get("where"), str):
            options["where"] = [options["where"]]
        return options

    def __post_init__(self) -> None:
        for text in self.where:
            if _FUNCTION.fullmatch(text):
                load_user_object(text)  # so that one that is not there is told before any file is touched
            else:
                parse_condition(text)

    @cached_property
    def _conditions(self) -> list[Condition | str]:
        return [text if _FUNCTION.fullmatch(text) else parse_condition(text) for text in self.where]

    def __call__(self, rows: Rows) -> Rows:
        for condition in self._conditions:
            if isinstance(condition, Condition):
                rows = rows.keep(condition.mask(rows.batch), condition.text, self.keep)
            else:
                rows = rows.keep(_call(condition, rows.batch), condition, self.keep)
        return rows

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        for condition in self._conditions:
            if isinstance(condition, Condition):
                require_columns(schema, [condition.column])
                _check_value(condition, schema.field(condition.column).type)
        return schema

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        named = [each.column for each in self._conditions if isinstance(each, Condition)]
        if after is None or len(named) < len(self.where):  # a function may look at any column
            return None
        return after | frozenset(named)

    def takes_codes(self) -> bool:
        return not self.code()

    def code(self) -> tuple[str, ...]:
        return tuple(text for text in self.where if _FUNCTION.fullmatch(text))


def parse_condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if not match:
        raise ConfigError(
            f"cannot read the condition {text!r}",
            next_step="write `column op value`, for example rtt > 0, kind in [a, b], name is not null, "
            "or module:function",
        )
    column, operator = match[1], " ".join(match[2].split())
    measured = _MEASURED.fullmatch(column)
    measure, column = (measured[1], measured[2].strip().strip("`")) if measured else ("", column.strip("`"))
    try:
        value = yaml.load(match[3], _Values)
    except yaml.YAMLError as error:
        raise ConfigError(f"{text!r}: cannot read the value {match[3]!r}") from error
    if operator in ("is", "is not") and value is not None:
        raise ConfigError(f"{text!r}: `{operator}` goes with null, write == or != for a value")
    if operator in ("in", "not in") and not isinstance(value, list):
        raise ConfigError(f"{text!r}: `{operator}` goes with a list, such as [1, 2]")
    values = value if isinstance(value, list) else [value]
    if operator not in ("is", "is not") and None in values:
        raise ConfigError(f"{text!r}: no comparison with null holds, write `is null` or `is not null`")
    return Condition(text.strip(), column, operator, value, measure)


def _check_value(condition: Condition, kind: pa.DataType) -> None:
    try:
        condition.mask(pa.RecordBatch.from_arrays([pa.array([], kind)], names=[condition.column]))
    except pa.ArrowNotImplementedError as error:
        what = f"{condition.measure}({condition.column})" if condition.measure else repr(condition.value)
        raise ConfigError(f"{condition.text!r}: column {condition.column!r} is {kind}, which has no {what}") from error
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"{condition.text!r}: column {condition.column!r} is {kind}, and {condition.value!r} is not ({error})"
        ) from error


class _Values(yaml.SafeLoader):
    """YAML's values, where 1e-3 is a number too."""


_Values.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def _comparable(array: pa.Array) -> pa.Array:
    """Floats are compared in float64: `rtt > 0.1` means the decimal people read, not its float32 neighbour."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.float64()) if pa.types.is_floating(array.type) else array


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """The value in the column's type; raises where that would be another value."""
    is_a = pa.types
    if is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind):
        return _number(value, kind)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError("a whole number is needed")
    if is_a.is_date(kind) and isinstance(value, datetime):
        raise TypeError("a day without a time is needed")
    if is_a.is_timestamp(kind) and isinstance(value, date):
        value = value if isinstance(value, datetime) else datetime.combine(value, time())
        return pa.scalar(value, pa.timestamp("us", kind.tz)).cast(kind)
    return pa.scalar(value, kind)


def _number(value: Any, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a number is needed")
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(str(value)), kind)
    if pa.types.is_floating(kind):
        return pa.scalar(float(value), kind)
    if value != int(value):
        raise ValueError("a whole number is needed")
    return pa.scalar(int(value), kind)


def _call(target: str, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    if not batch.num_rows:
        return np.ones(0, bool)
    mask = np.asarray(call_user(target, batch))
    if mask.dtype != bool or mask.shape != (batch.num_rows,):
        raise TaskError(
            f"{target} returned {mask.dtype} of shape {mask.shape} for {batch.num_rows} rows",
            next_step="return one True (keep) or False for each row, and no nulls",
        )
    return mask
