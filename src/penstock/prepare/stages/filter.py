"""Filter: keep the rows for which every condition holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from penstock.base.errors import ConfigError, TaskError
from penstock.prepare.rows import Rows
from penstock.prepare.stage import Stage, call_user, code_identity, require_columns

_OPERATORS = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<=": pc.less_equal,
    ">=": pc.greater_equal,
    "<": pc.less,
    ">": pc.greater,
}
_CONDITION = re.compile(r"\s*(`[^`]+`|[^\s=!<>`]+)\s*(==|!=|<=|>=|<|>|not\s+in\b|in\b|is\s+not\b|is\b)\s*(.+?)\s*")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Condition:
    """`column op value`, read once."""

    text: str
    column: str
    operator: str
    value: Any

    def mask(self, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """Where it holds. A comparison with null holds nowhere; `is null` asks for nulls."""
        array = batch.column(self.column)
        if self.operator in ("is", "is not"):
            answer = pc.is_null(array) if self.operator == "is" else pc.is_valid(array)
        elif self.operator in ("in", "not in"):
            known = pa.array(self.value, array.type)
            answer = pc.is_in(array, known)
            if self.operator == "not in":
                answer = pc.and_(pc.invert(answer), pc.is_valid(array))
        else:
            answer = _OPERATORS[self.operator](_decoded(array), pa.scalar(self.value, _value_type(array.type)))
        return np.asarray(pc.fill_null(answer, False))


@dataclass(frozen=True, kw_only=True)
class Filter(Stage):
    """`filter: rtt > 0`, a list of conditions, or `module:function` (a record batch in, a boolean mask out).

    Rows that fail are counted by condition; `keep: true` also writes them to `rejected/`.
    Operators: == != < <= > >= in, not in, is null, is not null. A name with spaces goes between backquotes.
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
            if not _FUNCTION.fullmatch(text):
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

    def describe(self) -> dict[str, Any]:
        code = [code_identity(text) for text in self.where if _FUNCTION.fullmatch(text)]
        return {"where": list(self.where), "keep": self.keep, **({"code": code} if code else {})}


def parse_condition(text: str) -> Condition:
    match = _CONDITION.fullmatch(text)
    if not match:
        raise ConfigError(
            f"cannot read the condition {text!r}",
            next_step="write `column op value`, for example rtt > 0, kind in [a, b], name is not null, "
            "or module:function",
        )
    column, operator, value = match[1].strip("`"), " ".join(match[2].split()), yaml.safe_load(match[3])
    if operator in ("is", "is not") and value is not None:
        raise ConfigError(f"{text!r}: `{operator}` goes with null, write == or != for a value")
    if operator in ("in", "not in") and not isinstance(value, list):
        raise ConfigError(f"{text!r}: `{operator}` goes with a list, such as [1, 2]")
    return Condition(text.strip(), column, operator, value)


def _check_value(condition: Condition, kind: pa.DataType) -> None:
    try:
        condition.mask(pa.RecordBatch.from_arrays([pa.array([], kind)], names=[condition.column]))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"{condition.text!r}: column {condition.column!r} is {kind}, and {condition.value!r} is not ({error})"
        ) from error


def _value_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    # Compared in float64, so that `rtt > 0.1` means the decimal people read, not its float32 neighbour.
    return pa.float64() if pa.types.is_floating(kind) else kind


def _decoded(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _call(target: str, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
    mask = np.asarray(call_user(target, batch))
    if mask.dtype != bool or mask.shape != (batch.num_rows,):
        raise TaskError(
            f"{target} returned {mask.dtype} of shape {mask.shape} for {batch.num_rows} rows",
            next_step="return one True (keep) or False for each row, and no nulls",
        )
    return mask
