"""Filter: keep the rows for which every condition holds."""

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigError, TaskError
from penstock.base.user_code import call_user, is_target, load_user_object
from penstock.base.user_code.carried import shown_name
from penstock.prepare.rows.literals import scalar_of, shown_value
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.interfaces import Adapts
from penstock.prepare.stages.stage import Stage, require_columns

_OPERATORS = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<=": pc.less_equal,
    ">=": pc.greater_equal,
    "<": pc.less,
    ">": pc.greater,
}
_MEASURES = {"characters": pc.utf8_length, "bytes": pc.binary_length, "length": pc.list_value_length}
_CONDITION = re.compile(
    rf"\s*((?:{'|'.join(_MEASURES)})\(\s*`[^`]+`\s*\)|`[^`]+`|[^\s=!<>`]+)"
    r"\s*(==|!=|<=|>=|<|>|(?<=[\s`])(?:not\s+in|in|is\s+not|is)\b)\s*(.+?)\s*"
)
_MEASURED = re.compile(rf"({'|'.join(_MEASURES)})\((.+)\)")
_COMPARES = {"compares": "in the column's type"}
_JOINED = re.compile(r"\s(?:and|or)\s|&&|\|\||\s(?:==|!=|<=|>=|<|>)\s", re.IGNORECASE)


@dataclass(frozen=True)
class Condition:
    """`column op value`, read once."""

    text: str
    column: str
    operator: str
    value: Any
    measure: str = ""  # characters, bytes or length: of the column's value, not the value itself

    @property
    def values(self) -> list[Any]:
        return self.value if isinstance(self.value, list) else [self.value]

    def mask(self, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """Mask of the rows for which it holds. A comparison with null never holds; `is null` asks for nulls."""
        array = batch.column(self.column)
        if self.measure:
            array = _MEASURES[self.measure](_comparable(array)).cast(pa.int64())
        kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
        array = _comparable(array)
        if self.operator in ("is", "is not"):
            answer = pc.is_null(array) if self.operator == "is" else pc.is_valid(array)
        elif self.operator in ("in", "not in"):
            values = [value for value in self.value if value == value]  # no value is equal to NaN
            known = pa.array([scalar_of(value, kind) for value in values], array.type)
            answer = pc.is_in(_with_one_zero(array), _with_one_zero(known))
            if self.operator == "not in":
                answer = pc.and_(pc.invert(answer), pc.is_valid(array))
        else:
            answer = _OPERATORS[self.operator](array, scalar_of(self.value, kind))
        return np.asarray(pc.fill_null(answer, False))


@dataclass(frozen=True, kw_only=True)
class Filter(Adapts):
    """`filter: rtt > 0`, a list of conditions, or `module:function` (a record batch in, a boolean mask out).

    Rows that fail are counted by condition; `keep: true` also writes them to `rejected/`.
    Operators: == != < <= > >= in, not in, is null, is not null. Put a name with spaces between backquotes.
    `characters(text)` and `bytes(text)` measure a text, `length(tokens)` a list. A value is compared in the column's
    type: in a float32 column, `== 0.1` finds the float32 that is closest to 0.1.
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
            if is_target(text):
                load_user_object(text)  # so that one that is not there is told before any file is touched
            else:
                parse_condition(text)

    @cached_property
    def _conditions(self) -> list[Condition | str]:
        return [text if is_target(text) else parse_condition(text) for text in self.where]

    def __call__(self, rows: Rows) -> Rows:
        for condition in self._conditions:
            if isinstance(condition, Condition):
                rows = rows.keep(condition.mask(rows.batch), condition.text, self.keep)
            else:
                rows = rows.keep(_call(condition, rows.batch), shown_name(condition), self.keep)
        return rows

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        for condition in self._conditions:
            if isinstance(condition, Condition):
                require_columns(schema, [condition.column])
                _refuse_column(condition, schema)
                _check_value(condition, schema.field(condition.column).type)
        return schema

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        named = [each.column for each in self._conditions if isinstance(each, Condition)]
        if after is None or len(named) < len(self.where):  # a function may look at any column
            return None
        return after | frozenset(named)

    def adapted(self, given: pa.Schema, gives: pa.Schema) -> Stage:  # noqa: ARG002
        conditions = [each for each in self._conditions if isinstance(each, Condition)]
        is_other = any(_came_to_differ(each, given.field(each.column).type) for each in conditions)
        return _InTheColumnsType(where=self.where, keep=self.keep) if is_other else self

    def describe(self) -> dict[str, Any]:
        """Numbers with a point were once compared in float64, and may now keep other rows of a narrower column."""
        values = [one for each in self._conditions if isinstance(each, Condition) for one in each.values]
        changed = _COMPARES if any(isinstance(one, float) for one in values) else {}
        return {**super().describe(), **changed}

    def takes_codes(self) -> bool:
        return not self.code()

    def code(self) -> tuple[str, ...]:
        return tuple(text for text in self.where if is_target(text))


class _InTheColumnsType(Filter):
    """A filter that may keep other rows than it once did: its datasets have other ids."""

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), **_COMPARES}


def _came_to_differ(condition: Condition, kind: pa.DataType) -> bool:
    """Whether a value without a point once meant something else: 16777217 beside float32, -0.0 in a list with 0, and
    12:30:00, which was a whole number."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_time(kind):
        return any(isinstance(value, str) for value in condition.values)
    if condition.measure or condition.operator in ("is", "is not") or not pa.types.is_floating(kind):
        return False
    is_zero_listed = condition.operator in ("in", "not in") and 0 in condition.values
    return is_zero_listed or any(scalar_of(value, kind).as_py() != float(value) for value in condition.values)


def written_condition(column: str, rest: str) -> str:
    """A condition as it stands in a job file, for a person to copy. YAML wants quotes around a backquote."""
    return f"{column} {rest}" if column.isidentifier() else f"'`{column}` {rest}'"


def parse_condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if not match:
        raise ConfigError(
            f"cannot read the condition {text!r}",
            next_step="write `column op value`, for example rtt > 0, kind in [a, b], name is not null, "
            "`a name with spaces` > 0 (with the backticks), or module:function",
        )
    column, operator = match[1], " ".join(match[2].split())
    measured = _MEASURED.fullmatch(column)
    measure, column = (measured[1], measured[2].strip().strip("`")) if measured else ("", column.strip("`"))
    _refuse_joined(text, match[3])
    from penstock.prepare.rows.written import read_literal

    try:
        value = read_literal(match[3])
    except ValueError as error:
        raise ConfigError(
            f"{text!r}: cannot read the value {match[3]!r}", next_step=f"put text in quotes: {_quoted(text, match[3])}"
        ) from error
    if operator in ("is", "is not") and value is not None:
        raise ConfigError(f"{text!r}: `{operator}` is used with null; for a value write == or !=")
    if operator in ("in", "not in") and not isinstance(value, list):
        raise ConfigError(f"{text!r}: `{operator}` needs a list, such as [1, 2]")
    values = value if isinstance(value, list) else [value]
    if operator not in ("is", "is not") and None in values:
        raise ConfigError(
            f"{text!r}: a comparison with null is never true; write `is null` or `is not null`",
            next_step=f"put text in quotes: {_quoted(text, match[3])}",
        )
    return Condition(text.strip(), column, operator, value, measure)


def _refuse_joined(text: str, value: str) -> None:
    """`s != bob and i > 3` would compare with the text `bob and i > 3`."""
    from penstock.prepare.rows.written import unquoted

    if any(_JOINED.search(piece) for piece in unquoted(value)):
        raise ConfigError(
            f"{text!r} is read as one condition, with {value!r} as its value",
            next_step="for several conditions, which must all hold, write a list: filter: [s != bob, i > 3]; for `or` "
            f"name a function of your own: filter: module:function; put text in quotes: {_quoted(text, value)}",
        )


def _quoted(text: str, value: str) -> str:
    """The condition with quotes around its value, or around the values of a list."""
    if value.startswith(("[", "'", '"')):
        return "x == 'a b', or x in ['a', 'b']"
    return text.strip().removesuffix(value) + "'{}'".format(value.replace("'", "''"))


def _refuse_column(condition: Condition, schema: pa.Schema) -> None:
    """`x == y` with a column y is taken for neither: quotes make a text of it."""
    value = condition.value
    if isinstance(value, str) and value in schema.names and condition.text.endswith(value):
        raise ConfigError(
            f"{condition.text!r}: {value!r} is a column, but a condition compares a column with a value",
            next_step=f"for the text write {condition.text.removesuffix(value)}'{value}'; to compare columns, "
            "name a function of your own: `filter: module:function`",
        )


def _check_value(condition: Condition, kind: pa.DataType) -> None:
    try:
        condition.mask(pa.RecordBatch.from_arrays([pa.array([], kind)], names=[condition.column]))
    except pa.ArrowNotImplementedError as error:
        what = f"{condition.measure}({condition.column})" if condition.measure else repr(condition.value)
        raise ConfigError(f"{condition.text!r}: column {condition.column!r} is {kind}, which has no {what}") from error
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        value = shown_value(condition.value)
        raise ConfigError(
            f"{condition.text!r}: column {condition.column!r} is {kind}, and {value} is not ({error})",
            next_step=_how_to_quote(condition, kind),
        ) from error


def _how_to_quote(condition: Condition, kind: pa.DataType) -> str | None:
    """`no`, 5 and 2020-01-01 are no text, unless they are quoted."""
    held = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = held in (pa.string(), pa.large_string(), pa.string_view())
    if condition.measure or not is_text:
        return None
    written = _CONDITION.fullmatch(condition.text)
    return f"put text in quotes: {_quoted(condition.text, written[3])}" if written else None


def _comparable(array: pa.Array) -> pa.Array:
    """Floats as float64, which holds them exactly and has all of Arrow's kernels."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array.cast(pa.float64()) if pa.types.is_floating(array.type) else array


def _with_one_zero(array: pa.Array) -> pa.Array:
    """-0.0 as 0.0: Arrow's is_in takes them for two numbers."""
    return pc.add(array, 0.0) if pa.types.is_floating(array.type) else array


def _call(target: str, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    if not batch.num_rows:
        return np.ones(0, bool)
    mask = np.asarray(call_user(target, batch))
    if mask.dtype != bool or mask.shape != (batch.num_rows,):
        raise TaskError(
            f"{shown_name(target)} returned {mask.dtype} of shape {mask.shape} for {batch.num_rows} rows",
            next_step="return one True (keep) or False per row, without nulls",
        )
    return mask
