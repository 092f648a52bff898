"""Stage: a frozen value that turns Rows into Rows. Its fields are its YAML keys. Next: interfaces.py."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from penstock.base.errors import ConfigError, TaskError, did_you_mean
from penstock.base.user_code import telling
from penstock.base.user_code.carried import known_target, shown_name
from penstock.prepare.rows.rows import Rows


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Base class of all stages: how a stage is called, its columns, and its identity."""

    version: ClassVar[int] = 1  # raised when the same options come to mean other bytes
    is_tried: ClassVar[bool] = True  # whether the first rows are taken through it before there is a plan
    unit_in: ClassVar[str] = ""  # what it calls its rows; a stage that says nothing takes them as they come
    unit_out: ClassVar[str] = ""
    counts: ClassVar[str] = ""  # a unit inside its rows; the account of that unit begins with this stage
    most_rows_per_slice: ClassVar[int] = 0  # where short rows cost as much as long ones; 0: any number
    holds_much: ClassVar[bool] = False  # in every process: neither fewer workers nor fewer columns make it less

    @classmethod
    def variant(cls, written: Any) -> type[Stage]:  # noqa: ARG003
        """Class that `- name: written` asks for, if one name stands for several.

        Args:
            written: Value of the stage's key in the job file.
        """
        return cls

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        """The fields that `- name: written` means. A stage with a short form reads it here.

        Args:
            written: YAML value after the stage's name, or None.
        """
        if written is None:
            return {}
        if not isinstance(written, dict):
            raise ConfigError(f"expected options as a mapping, got {written!r}")
        return written

    def __call__(self, rows: Rows) -> Rows:  # noqa: ARG002
        raise TypeError(f"{type(self).__name__} needs a __call__(rows)")

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        """Columns that the stage returns. Raises ConfigError for a column that does not exist.

        Args:
            schema: Columns that it is given.
            sample: First rows of the input as far as they came, at most a hundred.
        """
        return schema

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:  # noqa: ARG002
        """Columns that the stage needs. None means all.

        Args:
            after: Columns that later stages and the output need; None means all.
        """
        return None

    def takes_codes(self) -> bool:
        """Whether it accepts text columns as dictionary arrays."""
        return False

    def keeps_rows(self) -> bool:
        """Whether it keeps every row, so that the number of rows is known in advance."""
        return False

    def describe(self) -> dict[str, Any]:
        """Options that decide its output, as JSON. They are in the manifest and in fingerprints."""
        return dataclasses.asdict(self)

    def code(self) -> tuple[str, ...]:
        """The user's own code that decides its output, each as module:name."""
        kind = type(self)
        return () if kind.__module__.startswith("penstock.") else (known_target(kind),)


def applied(stage: Stage, rows: Rows) -> Rows:
    """Rows that a stage returns. Errors in a user's own stage name that stage."""
    code = stage.code()
    if not code:
        return stage(rows)
    with telling(*code):
        given = stage(rows)
    if not isinstance(given, Rows):
        raise TaskError(
            f"{shown_name(code[0])} returned {type(given).__name__}, not Rows",
            next_step="return rows.with_batch(...) or rows.keep(...)",
        )
    try:
        given.batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise TaskError(
            f"{shown_name(code[0])} returned a batch that Arrow cannot use: {error}",
            next_step="write text as UTF-8, or give the column the type binary",
        ) from error
    return given


def stage(function: Callable[..., pa.RecordBatch]) -> Callable[..., pa.RecordBatch]:
    """Mark a function as a penstock stage, and check early that it can be one.

    Args:
        function: Takes a pyarrow.RecordBatch, then options as keywords, and returns a batch of as many rows.
    """
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
                f"there is no column {name!r}. Columns: {', '.join(schema.names)}.{did_you_mean(name, schema.names)}",
                next_step=f"if the input has a `text_column`, only that is read: leave it out, and write the stage "
                f"`select: {{text: its_name, {name}: {name}}}` first"
                if schema.names in (["text"], ["tokens"], ["text", "tokens"])
                else None,
            )
