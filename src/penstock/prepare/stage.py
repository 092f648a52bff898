"""Stage: a frozen value that turns Rows into Rows. Its fields are its YAML keys.

A user's own code is a function on Arrow record batches, or a Stage class where it needs to set rows aside.
stages/__init__.py finds a stage by its name in the job.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.base.errors import ConfigError, TaskError, did_you_mean
from penstock.base.store import Store
from penstock.prepare.exchange import Exchange, Sorted
from penstock.prepare.layouts import plain_batch
from penstock.prepare.room import Room
from penstock.prepare.rows import Rows, jsonable
from penstock.prepare.user_code import call_user
from penstock.shards.columns import FileFacts


class Fit(Protocol):
    """A reduction of `columns` to a small artifact. Rows come in blocks of `block_rows`; packed states are JSON."""

    @property
    def columns(self) -> tuple[str, ...] | None: ...  # None: all
    def block_rows(self, schema: pa.Schema) -> int: ...
    def start(self) -> Any: ...
    def update(self, state: Any, block: pa.RecordBatch) -> Any: ...
    def pack(self, state: Any) -> Any: ...  # as JSON, which merge and finish take
    def merge(self, left: Any, right: Any) -> Any: ...
    def finish(self, state: Any) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The base of every stage: what a stage is when it says nothing else."""

    version: ClassVar[int] = 1  # raised when the same options come to mean other bytes
    uses_artifact: ClassVar[bool] = False  # whether its own fit must be finished before it can take a row
    is_tried: ClassVar[bool] = True  # whether the first rows are taken through it before there is a plan
    unit_in: ClassVar[str] = ""  # what it calls its rows; a stage that says nothing takes them as they come
    unit_out: ClassVar[str] = ""
    counts_tokens: ClassVar[bool] = False  # whether the account of tokens begins with it

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        """The fields that `- name: written` means. A stage with a short form reads it here."""
        if written is None:
            return {}
        if not isinstance(written, dict):
            raise ConfigError(f"expected options as a mapping, got {written!r}")
        return written

    def __call__(self, rows: Rows) -> Rows:  # noqa: ARG002
        raise TypeError(f"{type(self).__name__} needs a __call__(rows)")

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        """The columns it gives when given `schema`. Raises ConfigError for a column that is not there."""
        return schema

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:  # noqa: ARG002
        """The columns it must be given so that `after` can be given on. None means all."""
        return None

    def splits(self) -> tuple[str, ...]:
        """Names of the splits it divides rows into; most stages divide nothing."""
        return ()

    def exchange(self) -> Exchange | None:
        """How its rows must be brought together before `reduce` can take them; most stages take rows as they come.

        A stage with an exchange is called on rows before it, to set some aside, and reduces what comes out of it.
        """
        return None

    def reduce(self, runs: Iterator[Sorted]) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        raise TypeError(f"{type(self).__name__} has an exchange and needs a reduce(runs)")

    def takes_codes(self) -> bool:
        """Whether it may be given text as codes (a dictionary array) where its columns say text."""
        return False

    def keeps_rows(self) -> bool:
        """Whether it gives every row that it is given, so that their number is known beforehand."""
        return False

    def keeps_bytes(self) -> int:
        """The most bytes of rows that `reduce` keeps from one run to the next."""
        return 0

    def placed(self, before: tuple[Stage, ...]) -> Stage:  # noqa: ARG002
        """The stage as it is behind those `before` it; one whose options depend on them settles them here."""
        return self

    def located(self, folder: str, output: str, before: Sequence[Stage], made_from: str) -> Stage:  # noqa: ARG002
        """The stage with what it names on disk found; `folder` is where the job's relative paths start, `made_from`
        a digest of the job's input."""
        return self

    def given(self, schema: pa.Schema) -> Stage:  # noqa: ARG002
        """The stage as it is for these columns, which `output_schema` took."""
        return self

    def opened(self, store: Store, number: int, threads: int, room: Room) -> Stage:  # noqa: ARG002
        """The stage as one task uses it, that of slice `number`: with what it reads from disk or holds in memory.
        `room` is what it may hold while it works on one row, however large."""
        return self

    def ended(self) -> None:
        """Called when a task has taken its last row through it."""

    def keyed_by(self) -> str:
        """The column whose equal values it leaves out but one of; most stages compare no rows."""
        return ""

    def threads(self) -> int:
        """How many threads of a process it keeps busy, 1 if that is dear in memory; 0: a process is one thread."""
        return 0

    def grows_by(self, threads: int) -> int:  # noqa: ARG002
        """Bytes that a process of it may come to hold beyond what its first rows tell."""
        return 0

    def says(self) -> str:
        """A line for the screen: how it does its work here."""
        return ""

    def leave(self, store: Store) -> tuple[FileFacts, ...]:  # noqa: ARG002
        """Write what belongs to a dataset that it made, beside its shards."""
        return ()

    def fit(self) -> Fit | None:
        """The reduction this stage runs over the rows that reach it, if it has one.

        One of a stage with an exchange is given the records that it makes, in batches of any size: it must be exact.
        """
        return None

    def bind(self, artifact: Any) -> Stage:  # noqa: ARG002
        """The stage that uses the finished artifact on every row."""
        return self

    def describe(self) -> dict[str, Any]:
        """The options that decide its output, as JSON: the manifest shows them, fingerprints cover them."""
        return dataclasses.asdict(self)

    def code(self) -> tuple[str, ...]:
        """The code of the user's own that decides its output, each as module:name."""
        kind = type(self)
        return () if kind.__module__.startswith("penstock.") else (f"{kind.__module__}:{kind.__qualname__}",)


@dataclass(frozen=True, kw_only=True)
class FunctionStage(Stage):
    """A user's function from a record batch to a record batch of as many rows."""

    target: str
    options: dict[str, Any] = field(default_factory=dict)
    expected: pa.Schema | None = None

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
                f"{self.target} returned {type(answer).__name__}, not a pyarrow.RecordBatch",
                next_step="return a record batch with as many rows as it was given",
            )
        if answer.num_rows != batch.num_rows:
            raise TaskError(
                f"{self.target} was given {batch.num_rows} rows and returned {answer.num_rows}",
                next_step=f"drop rows with `filter: {self.target}` (a function that returns a mask), so that "
                "they are counted",
            )
        answer = plain_batch(answer)
        return answer if self.expected is None else self._cast(answer)

    def _cast(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.schema.equals(self.expected):
            return batch
        raise TaskError(
            f"{self.target} returned other columns than for the first rows: {_columns(batch.schema)} now, "
            f"{_columns(self.expected)} then",
            next_step="give every array its type explicitly: pa.array(values, pa.float32())",
        )

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:
        """Only calling it can tell: it is called on the first rows, and on each half of them."""
        whole = self._apply(sample.cast(schema))
        middle = sample.num_rows // 2
        halves = [self._apply(part.cast(schema)) for part in (sample.slice(0, middle), sample.slice(middle))]
        if middle and _values(pa.concat_batches(halves)) != _values(whole):
            raise ConfigError(
                f"{self.target} gives other values when it is given the same rows in two batches",
                next_step="make each row's values depend on that row alone: how rows are cut into batches "
                "depends on memory",
            )
        return whole.schema

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


def stage(function: Callable[..., pa.RecordBatch]) -> Callable[..., pa.RecordBatch]:
    """Mark a function as a penstock stage, and check early that it can be one."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or any(each.kind != inspect.Parameter.KEYWORD_ONLY for each in parameters[1:]):
        raise TypeError(
            f"{function.__qualname__}: a stage takes a record batch, then options as keywords: "
            "def my_stage(batch, *, option=1)"
        )
    return function


def require_columns(schema: pa.Schema, names: list[str]) -> None:
    """Raise ConfigError for the first of `names` that `schema` lacks."""
    for name in names:
        if name not in schema.names:
            raise ConfigError(
                f"there is no column {name!r}. Columns: {', '.join(schema.names)}.{did_you_mean(name, schema.names)}"
            )
