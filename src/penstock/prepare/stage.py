"""Stage: a frozen value that turns Rows into Rows. Its fields are its YAML keys.

A user's own code is a function on Arrow record batches, or a Stage class where it needs to set rows aside.
stages/__init__.py finds a stage by its name in the job.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from penstock.base.errors import ConfigError, PenstockError, TaskError, did_you_mean
from penstock.base.files import ReadFile
from penstock.base.fingerprint import digest
from penstock.prepare.rows import Rows


class Fit(Protocol):
    """A reduction of `columns` to a small artifact. States are JSON; rows come in blocks of a fixed number."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    def start(self) -> Any: ...
    def update(self, state: Any, block: pa.RecordBatch) -> Any: ...
    def merge(self, left: Any, right: Any) -> Any: ...
    def finish(self, state: Any) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The base of every stage: what a stage is when it says nothing else."""

    uses_artifact: ClassVar[bool] = False  # whether its own fit must be finished before it can take a row

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

    def fit(self) -> Fit | None:
        """The reduction this stage runs over the rows that reach it, if it has one."""
        return None

    def bind(self, artifact: Any) -> Stage:  # noqa: ARG002
        """The stage that uses the finished artifact on every row."""
        return self

    def describe(self) -> dict[str, Any]:
        """Everything that decides its output, as JSON: the manifest shows it, fingerprints cover it."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, kw_only=True)
class FunctionStage(Stage):
    """A user's function from a record batch to a record batch of as many rows."""

    target: str
    options: dict[str, Any] = field(default_factory=dict)
    expected: pa.Schema | None = None

    def __call__(self, rows: Rows) -> Rows:
        return rows.with_batch(self._apply(rows.batch))

    def _apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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
        """Only calling it can tell: it is called on the first rows of the input."""
        return self._apply(sample.cast(schema)).schema

    def describe(self) -> dict[str, Any]:
        return {"options": self.options, "code": code_identity(self.target)}


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


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


def load_object(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def load_user_object(target: str) -> Any:
    """What `module:name` stands for; a ConfigError where there is no such thing."""
    module, _, attribute = target.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"there is no module {error.name!r}",
            next_step=f"put {module.partition('.')[0]}.py beside the job file, or install the package that has it",
        ) from error
    except Exception as error:
        raise ConfigError(f"importing {module} raised {type(error).__name__}: {error}", where=_place(error)) from error
    if not hasattr(loaded, attribute):
        names = [name for name in vars(loaded) if not name.startswith("_")]
        raise ConfigError(f"module {module!r} has no {attribute!r}.{did_you_mean(attribute, names)}")
    return getattr(loaded, attribute)


def _place(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}"


def call_user(target: str, *arguments: Any, **options: Any) -> Any:
    """Call the user's code; what it raises comes back as a TaskError that names its line."""
    try:
        return load_object(target)(*arguments, **options)
    except PenstockError:
        raise
    except Exception as error:
        raise TaskError(
            f"{target} raised {type(error).__name__}: {error}",
            where=_place(error),
            next_step="mend it and run the same command; changed code is noticed and its tasks are redone",
        ) from error


def code_identity(target: str) -> str:
    """Hash of the module file behind `module:name`: other code, other output."""
    module = importlib.import_module(target.partition(":")[0])
    if not module.__file__:
        return target
    with ReadFile(module.__file__) as file:
        return f"{target}-{digest(file.read())}"


def require_columns(schema: pa.Schema, names: list[str]) -> None:
    """Raise ConfigError for the first of `names` that `schema` lacks."""
    for name in names:
        if name not in schema.names:
            raise ConfigError(
                f"there is no column {name!r}. Columns: {', '.join(schema.names)}.{did_you_mean(name, schema.names)}"
            )
