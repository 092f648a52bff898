"""Split by time: rows at or after a time go to the split that begins there; rows before all of them are `train`."""

from dataclasses import dataclass, replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigError
from penstock.base.numbers import is_not_finite
from penstock.prepare.rows.literals import scalar_of, shown_value
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.filter import Condition, written_condition
from penstock.prepare.stages.interfaces import Splits
from penstock.prepare.stages.splitting.names import TRAIN, refuse_name
from penstock.prepare.stages.stage import require_columns

REASON = "no time to split by"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class SplitByTime(Splits):
    """`split: {by_time: at, test: "2024-06-01"}`: rows from that time on are `test`, earlier rows are `train`.

    Each split begins at its time and ends where the next one begins. The column holds times, days or numbers. The
    boundary is compared as in `filter: at >= ...`: it is UTC if it names no zone. A row without a time is bad input.
    """

    by_time: str
    boundaries: dict[str, str | int | float]
    by = ()

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        for name in ("by", "seed"):
            if name in written:
                raise ConfigError(
                    f"{name}: it cannot be combined with `by_time`", next_step=f"leave {name} out, or by_time"
                )
        boundaries = {str(name): _plain(value) for name, value in written.items() if name != "by_time"}
        for name, value in boundaries.items():
            if isinstance(value, bool) or not isinstance(value, str | int | float):  # a bool would become 1 or 0
                raise ConfigError(f"{name}: {value} is not a time at which a split can begin")
        return {"by_time": written["by_time"], "boundaries": dict(sorted(boundaries.items()))}

    def __post_init__(self) -> None:
        if not self.boundaries:
            raise ConfigError('name at least one split and the time at which it begins, such as {test: "2024-06-01"}')
        for name, value in self.boundaries.items():
            refuse_name(name)
            if is_not_finite(value):
                raise ConfigError(f"{name}: {value} is not a time at which a split can begin")

    def __call__(self, rows: Rows) -> Rows:
        times = rows.batch.column(self.by_time)
        known = _known(times)
        if not known.all():
            condition = "> -1e30" if pa.types.is_floating(times.type) else "is not null"  # NaN is not null
            rows = rows.reject(
                known,
                REASON,
                lambda row: f"column {self.by_time!r} is {'null' if not times[row].is_valid else 'NaN'}",
                "correct them, or leave them out before the split: "
                f"`filter: {written_condition(self.by_time, condition)}`",
            )
        return replace(rows, splits=self._decide(rows.batch))

    def _decide(self, batch: pa.RecordBatch) -> Array:
        """Split numbers, 0 = train. A later boundary overrules an earlier one."""
        numbers = {name: number for number, name in enumerate(self.boundaries, start=1)}
        splits = np.zeros(batch.num_rows, "u1")
        for name, value in self._in_order(batch.schema.field(self.by_time).type):
            splits[Condition("", self.by_time, ">=", value).mask(batch)] = numbers[name]
        return splits

    def _in_order(self, kind: pa.DataType) -> list[tuple[str, Any]]:
        """Splits and where they begin, the earliest first."""
        scalars = {name: scalar_of(value, kind) for name, value in self.boundaries.items()}
        ordered = sorted(scalars, key=lambda name: _number(scalars[name]))
        return [(name, self.boundaries[name]) for name in ordered]

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_columns(schema, [self.by_time])
        kind = schema.field(self.by_time).type
        _refuse_type(self.by_time, kind, next(iter(self.boundaries.values())))
        begins: dict[Any, str] = {}
        for name, value in self.boundaries.items():
            start = _number(_boundary(self.by_time, name, value, kind))
            if start in begins:
                raise ConfigError(
                    f"{begins[start]} and {name} begin at the same time, {value}: no row could be in one of them",
                    next_step="give them different times, or leave one out",
                )
            begins[start] = name
        return schema

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None else after | {self.by_time}

    def splits(self) -> tuple[str, ...]:
        return (TRAIN, *self.boundaries)


def _plain(value: Any) -> Any:
    """YAML reads 2024-06-01 as a day even without quotes. A job holds it as text."""
    return value.isoformat() if isinstance(value, date) else value


def _known(times: pa.Array) -> Array:
    known = times.is_valid()
    if pa.types.is_floating(times.type):
        known = pc.and_(known, pc.invert(pc.fill_null(pc.is_nan(times.cast(pa.float64())), False)))
    return np.asarray(known)


def _number(scalar: pa.Scalar) -> Any:
    """The scalar as a number that Python compares: units below a microsecond are kept."""
    kind = scalar.type
    if pa.types.is_temporal(kind):
        return scalar.cast(pa.int64() if kind.bit_width == 64 else pa.int32()).as_py()
    return scalar.as_py()


def _refuse_type(name: str, kind: pa.DataType, value: Any) -> None:
    is_a = pa.types
    if is_a.is_timestamp(kind) or is_a.is_date(kind) or _is_number(kind):
        return
    if is_a.is_list(kind) or is_a.is_large_list(kind):
        before, after = written_condition(name, f"< {value}"), written_condition(name, f">= {value}")
        raise ConfigError(
            f"by_time: column {name!r} is {kind}: a record with several times can be on both sides of a boundary",
            next_step=f"make two datasets, with `filter: {before}` and `filter: {after}` before `group`",
        )
    raise ConfigError(
        f"by_time: column {name!r} is {kind}, not a time, a day or a number",
        next_step=f"give it a type before the split: `cast: {{{name}: 'timestamp[us]'}}`",
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _boundary(column: str, split: str, value: Any, kind: pa.DataType) -> pa.Scalar:
    try:
        return scalar_of(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        advice = 'write a time, such as "2024-06-01" or "2024-06-01T12:30:00"'
        if _is_number(kind):
            advice = (
                f"write a number in the unit of the column (1717200000 for seconds), or make the column a time before "
                f"the split: `cast: {{{column}: 'timestamp[s]'}}`"
            )
        raise ConfigError(
            f"{split}: column {column!r} is {kind}, and {shown_value(value)} is not ({error})", next_step=advice
        ) from error
