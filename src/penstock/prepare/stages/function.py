"""Function: a user's own function on record batches, as a stage."""

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.base.errors import ConfigError, TaskError
from penstock.base.user_code import call_user
from penstock.base.user_code.carried import shown_name
from penstock.prepare.rows.jsonable import jsonable
from penstock.prepare.rows.layouts import plain_batch
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.interfaces import Adapts
from penstock.prepare.stages.stage import Stage


@dataclass(frozen=True, kw_only=True)
class FunctionStage(Adapts):
    """A user's function from a record batch to a record batch of as many rows."""

    target: str
    options: dict[str, Any] = field(default_factory=dict)
    expected: pa.Schema | None = None

    @property
    def name(self) -> str:
        """Its name for people."""
        return shown_name(self.target)

    def __call__(self, rows: Rows) -> Rows:
        return rows.with_batch(self._apply(rows.batch))

    def _apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.expected is not None and not batch.num_rows:
            return _empty(self.expected)  # whether a batch is empty depends on its size, and on memory
        answer = call_user(self.target, batch, **self.options)
        if isinstance(answer, pa.Table):
            answer = answer.combine_chunks().to_batches()[0] if answer.num_rows else _empty(answer.schema)
        if not isinstance(answer, pa.RecordBatch):
            raise TaskError(
                f"{self.name} returned {type(answer).__name__}, not a pyarrow.RecordBatch",
                next_step="return a record batch with as many rows as it was given",
            )
        if answer.num_rows != batch.num_rows:
            raise TaskError(
                f"{self.name} was given {batch.num_rows} rows and returned {answer.num_rows}",
                next_step=f"drop rows with `filter: {self.name}` (a function that returns a mask), so that "
                "they are counted",
            )
        answer = plain_batch(answer)
        if self.expected is None:
            return answer
        if (answer.schema.names, answer.schema.types) != (self.expected.names, self.expected.types):
            raise TaskError(
                f"{self.name} returned other columns than for the first rows: {_columns(answer.schema)} now, "
                f"{_columns(self.expected)} then",
                next_step="give every array its type explicitly: pa.array(values, pa.float32())",
            )
        # A column that the file declares without nulls is like any other.
        return pa.RecordBatch.from_arrays(answer.columns, schema=self.expected)

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:
        """Only calling it can tell: it is called on the first rows, and on each half of them."""
        whole = self._apply(sample.cast(schema))
        middle = sample.num_rows // 2
        halves = [self._apply(part.cast(schema)) for part in (sample.slice(0, middle), sample.slice(middle))]
        if middle and _values(pa.concat_batches(halves)) != _values(whole):
            raise ConfigError(
                f"{self.name} gives other values when it is given the same rows in two batches",
                next_step="compute each row from that row alone: the number of rows in a batch depends on memory",
            )
        return pa.schema([each.remove_metadata() for each in whole.schema])  # it may have put features elsewhere

    def adapted(self, given: pa.Schema, gives: pa.Schema) -> Stage:  # noqa: ARG002
        return replace(self, expected=gives)

    def describe(self) -> dict[str, Any]:
        return self.options

    def keeps_rows(self) -> bool:
        return True

    def code(self) -> tuple[str, ...]:
        return (self.target,)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _values(batch: pa.RecordBatch) -> str:
    """All values by their text: NaN is equal to NaN, and -0.0 is not 0.0."""
    return repr([[jsonable(value) for value in column] for column in batch.columns])


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
