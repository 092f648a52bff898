"""Source config: one entry of `input:`, where rows or samples come from. Part of config.py."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_serializer, field_validator, model_validator

from penstock.base.errors import did_you_mean
from penstock.base.numbers import for_json
from penstock.base.sizes import parse_size
from penstock.base.user_code import code_identity
from penstock.base.user_code.carried import is_carried, shown_name
from penstock.prepare.samples.items import Items, items_of
from penstock.prepare.samples.schema import SampleSchema
from penstock.prepare.sources import SourceOptions
from penstock.prepare.sources.reading.encodings import known_encoding
from penstock.prepare.sources.registry import SOURCES, named_formats
from penstock.prepare.sources.row_range import RowRange, parse_split
from penstock.shards.schema import declared_type

_ALWAYS_SAID = {"format", "types", "delimiter", "null_values", "newlines_in_values"}
_ALWAYS_SAID |= {"function", "batch_rows", "samples", "floats", "missing", "trust_pickle"}  # where they have a say
FROZEN = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class SourceConfig(BaseModel):
    """Source of rows. `input: 'data/*.parquet'` is short for `input: {path: 'data/*.parquet'}`.

    With `files:`, `function:` turns raw files into samples. With `items:`, it turns values into samples. `npz:` reads
    batch files of arrays.
    """

    model_config = FROZEN

    path: tuple[str, ...] = Field(
        (),
        description="files, folders, globs (`**` crosses folders), or a dataset that penstock prepared; with `split`, "
        "a dataset on disk or on the hub",
    )
    files: tuple[str, ...] = Field((), description="raw files, each given to `function`")
    items: Any = Field(None, description="values, each given to `function`: a number (1000 means 0 to 999), or a list")
    npz: tuple[str, ...] = Field((), description="batch files of arrays, such as intermediate/batch_*.npz")
    format: str = Field(
        "auto", description="auto goes by the file names", json_schema_extra={"enum": ["auto", *named_formats()]}
    )
    text_column: str | None = Field(None, description="read only this column, and call it `text`")
    document: Literal["file", "line"] = Field("file", description="for format text: a document is a file or a line")
    encoding: str = Field("", description="for CSV, JSONL and text that is not UTF-8: latin-1, cp1252, utf-16, ...")
    bad_utf8: Literal["set_aside", "repair"] = Field(
        "set_aside",
        description="rows whose text is not valid UTF-8 (or `encoding`); repair replaces the bad bytes by U+FFFD",
    )
    split: str | None = Field(
        None,
        description="split to read, or some of its rows: train[:10%]; for a dataset that penstock prepared, that the "
        "`datasets` library saved, or on the hub",
    )
    name: str | None = Field(None, description="configuration of a dataset on the hub")
    revision: str | None = Field(None, description="branch, tag or commit of a dataset on the hub")
    types: dict[str, str] = Field({}, description="column types for CSV and JSONL, such as {time: 'timestamp[us]'}")
    delimiter: str | None = Field(None, description="for CSV; default: comma, or tab for .tsv")
    null_values: tuple[str, ...] = Field(
        ("", "NA", "N/A", "NULL", "null"), description="values that mean null in CSV; columns of text keep them as text"
    )
    newlines_in_values: bool | None = Field(
        None, description="CSV values may hold newlines between quotes; default: only with text_column"
    )
    function: str | None = Field(None, description="module:name of a function that yields samples (dicts)")
    batch_rows: int = Field(1024, gt=0, le=2**20, description="rows per call of `function`, with `path:`")
    samples: dict[str, Any] | None = Field(
        None,
        alias="schema",
        description="types of the samples: {features: 'float32[893]', ids: 'int32[*]'}; default: inferred",
    )
    floats: Literal["float16", "float32", "float64"] | None = Field(
        None, description="type of all floats if there is no schema; default: they keep their types"
    )
    missing: dict[str, Any] = Field(
        {}, description="value of a key that a sample lacks: {labels_x: -1}, or null; default: an error"
    )
    function_memory: str | None = Field(None, description="memory that `function` itself may use; default: measured")
    trust_pickle: bool = Field(False, description="open .npz files that hold pickles, which can run any code")

    @field_validator("missing", mode="after")
    @classmethod
    def _without_numpy(cls, value: dict[str, Any]) -> dict[str, Any]:
        return {name: each.tolist() if hasattr(each, "tolist") else each for name, each in value.items()}

    @field_validator("path", "files", "npz", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        values = [value] if isinstance(value, str | os.PathLike) else value
        return [plain(each) for each in values] if isinstance(values, list | tuple) else values

    @field_validator("items")
    @classmethod
    def _counted(cls, value: Any) -> Items | None:
        return None if value is None else items_of(value)

    @field_serializer("items")
    def _as_written(self, items: Items | None) -> Any:
        return items.written if items else None

    @field_validator("format", mode="before")
    @classmethod
    def _known_format(cls, value: Any) -> Any:
        words = ["auto", *named_formats()]
        if value not in words:
            raise ValueError(f"{value!r} is not one of {', '.join(words)}.{did_you_mean(str(value), words)}")
        return value

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        return known_encoding(value)

    @field_validator("types")
    @classmethod
    def _known_types(cls, value: dict[str, str]) -> dict[str, str]:
        for column, word in value.items():
            try:
                declared_type(word)
            except ValueError as error:
                raise ValueError(f"{column}: {error}") from error
        return value

    @field_validator("delimiter")
    @classmethod
    def _one_plain_character(cls, value: str | None) -> str | None:
        if value is not None and (len(value) != 1 or not value.isascii() or value in '"\r\n\0'):
            raise ValueError(f"{value!r} cannot separate values; write one character such as ';' or \"\\t\"")
        return value

    @field_validator("split")
    @classmethod
    def _known_range(cls, value: str | None) -> str | None:
        if value is not None:
            parse_split(value)
        return value

    @field_validator("function_memory", mode="before")
    @classmethod
    def _size(cls, value: Any) -> Any:
        if value is not None:
            parse_size(str(value))
        return None if value is None else str(value)

    @model_validator(mode="after")
    def _fits_together(self) -> SourceConfig:
        given = [name for name in ("path", "files", "items", "npz") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'none of path, files, items, npz'}: give one of path (rows that penstock "
                "reads), files (raw files for `function`), items (values for `function`) and npz (batch files)"
            )
        if self.files and not self.function:
            raise ValueError(
                "files: needs `function: module:name`, which yields the samples of one file; in Python a function too"
            )
        if self.items and not self.function:
            raise ValueError(
                "items: needs `function: module:name`, which makes samples from one item; in Python a function too"
            )
        if self.npz and self.function:
            raise ValueError("npz: holds samples already, and takes no `function`")
        if self.function and ":" not in self.function and not is_carried(self.function):
            raise ValueError(f"function: {self.function!r} is not module:name, such as features:samples")
        if not self.function and (self.samples is not None or self.missing or self.function_memory):
            raise ValueError(
                "schema, missing and function_memory describe what a `function` yields, but there is no `function`"
            )
        if self.encoding and not self.path:
            raise ValueError("encoding: is an option for text that penstock reads (`path:`)")
        self._refuse_unfit_text()
        return self

    def _refuse_unfit_text(self) -> None:
        rows = bool(self.path) and not self.function
        for name in ("text_column", "split", "name", "revision"):
            if getattr(self, name) is not None and not rows:
                raise ValueError(f"{name}: is an option for rows that penstock reads (`path:`, without `function:`)")
        if self.text_column is not None and self.format != "auto" and SOURCES[self.format].documents:
            raise ValueError(
                f"text_column: files of format {self.format} have one column, which is called `text` already"
            )
        if self.split is not None and len(self.path) != 1:
            raise ValueError(
                f"split: belongs to one dataset, but path: names {len(self.path)}; make each a separate source"
            )
        for name in ("name", "revision"):
            if getattr(self, name) is not None and self.split is None:
                raise ValueError(
                    f"{name}: is an option for a dataset on the hub, which needs `split:`, such as `split: train`"
                )

    @property
    def row_range(self) -> RowRange | None:
        """Some rows of the split, where `split:` says which."""
        return parse_split(self.split) if self.split else None

    @property
    def whole_split(self) -> str | None:
        """Name of the split, whichever of its rows are read."""
        return self.row_range.split if self.row_range else self.split

    @property
    def patterns(self) -> tuple[str, ...]:
        return self.path or self.files or self.npz

    @property
    def kind(self) -> str:
        """The format that its files are read as; `auto` goes by their names."""
        return "items" if self.items else "function" if self.function else "npz" if self.npz else self.format

    def options(self, samples: SampleSchema = ()) -> SourceOptions:
        """Every field that both have, as it is; and those that follow from others."""
        both = {each.name for each in fields(SourceOptions)} & type(self).model_fields.keys()
        options = {name: getattr(self, name) for name in both}
        options |= {"newlines_in_values": self.may_hold_newlines, "samples": samples}
        return SourceOptions(**{**options, "function": self.function or "", "takes_rows": bool(self.path)})

    @property
    def may_hold_newlines(self) -> bool:
        return bool(self.text_column) if self.newlines_in_values is None else self.newlines_in_values

    def semantic(self) -> dict[str, Any]:
        """Options that decide bytes. One that is newer than the first fingerprints counts only where it is set."""
        dumped = self.model_dump(
            mode="json", by_alias=True, exclude={"path", "files", "items", "npz", "function_memory"}
        )
        dumped["newlines_in_values"] = self.may_hold_newlines
        floats = {name: value for name, value in self.missing.items() if isinstance(value, float | list | tuple)}
        dumped["missing"] |= {name: for_json(value) for name, value in floats.items()}
        for name in ("function", "batch_rows", "schema", "floats", "missing") if not self.function else ():
            del dumped[name]
        if self.samples is not None and list(self.samples) != sorted(self.samples):
            dumped["columns"] = list(self.samples)  # their order, which JSON does not count
        if self.function and self.samples is not None:
            dumped["floats"] = self.floats or "float32"  # it decides nothing here; older manifests say so
        if not self.npz:
            del dumped["trust_pickle"]
        for name, each in type(self).model_fields.items():
            if name not in _ALWAYS_SAID and dumped.get(name) == each.default:
                dumped.pop(name, None)
        if not self.function:
            return dumped
        return {**dumped, "function": shown_name(self.function), "code": code_identity(self.function)}


def plain(path: Any) -> Any:
    return os.fspath(path) if isinstance(path, os.PathLike) else path
