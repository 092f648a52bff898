"""Config: a job file (YAML) as a frozen value. Every error has a path into the file. Next: survey.py.

What decides output bytes is *semantic*: sources' options, stages, format, slice size, bad input. What only
decides how the work is done is not: memory, workers, time-outs, where input and output lie.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.sizes import parse_size
from penstock.prepare.stage import Stage
from penstock.prepare.stages import build_stage
from penstock.prepare.user_code import code_identity, forget_modules
from penstock.shards.schema import declared_type

_FROZEN = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class SourceConfig(BaseModel):
    """Where rows come from. `input: 'data/*.parquet'` is short for `input: {path: 'data/*.parquet'}`."""

    model_config = _FROZEN

    path: tuple[str, ...] = Field(min_length=1, description="files, folders or globs (`**` crosses folders)")
    format: Literal["auto", "parquet", "csv", "jsonl"] = "auto"
    types: dict[str, str] = Field({}, description="column types of text formats, such as {time: 'timestamp[us]'}")
    delimiter: str | None = Field(None, description="of CSV; comma, or tab for .tsv")
    null_values: tuple[str, ...] = Field(("", "NA", "N/A", "NULL", "null"), description="what CSV writes for null")
    newlines_in_values: bool = Field(False, description="CSV values may hold newlines between quotes")

    @field_validator("path", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        values = [value] if isinstance(value, str | os.PathLike) else value
        return [_plain(each) for each in values] if isinstance(values, list | tuple) else values

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

    def semantic(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"path"})


class Config(BaseModel):
    """A job: what to read, what to do with it, where to put it, and what it may use."""

    model_config = _FROZEN

    input: tuple[SourceConfig, ...] = Field(min_length=1)
    output: str
    stages: tuple[dict[str, Any], ...] = ()
    format: Literal["safetensors", "npy", "arrayrecord"] = Field(
        "safetensors", description="container of the columns; arrayrecord is one file a split, of grouped events only"
    )
    on_bad_input: Literal["fail", "set_aside"] = "fail"
    slice_size: str = Field("64MB", description="input bytes a task reads, and so the size of a shard")
    memory: str = Field("80%", description="of the whole process tree: 2GB, 512MiB, or a share of the machine's")
    workers: Literal["auto"] | int = Field("auto", description="processes; 0 works inside the driver, to debug")
    strategy: Literal["auto", "sequential", "parallel", "streaming"] = Field(
        "auto", description="how much to hold at once: all that fits, or as little as is good; changes no byte"
    )
    task_timeout: float = Field(600, gt=0, description="seconds without a row before a task is killed")
    stall_notice: float = Field(60, gt=0, description="seconds without a row before a task is named")
    folder: str = Field("", exclude=True)  # where relative paths and modules of this job are looked up

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("a job is a mapping with `input:`, `output:` and `stages:`")
        value = dict(value)
        sources = value.get("input")
        if isinstance(sources, str | os.PathLike | dict):
            sources = [sources]
        if isinstance(sources, list | tuple):
            value["input"] = [{"path": each} if isinstance(each, str | os.PathLike) else each for each in sources]
        if "output" in value:
            value["output"] = _plain(value["output"])
        if "stages" in value:
            value["stages"] = _stage_mappings(value["stages"])
        for size in ("memory", "slice_size"):
            if isinstance(value.get(size), int) and not isinstance(value[size], bool):
                value[size] = str(value[size])
        return value

    @field_validator("memory", "slice_size")
    @classmethod
    def _sizes(cls, value: str, info: Any) -> str:
        parse_size(value, whole=2**40 if info.field_name == "memory" else None)
        return value

    @field_validator("workers", mode="before")
    @classmethod
    def _workers(cls, value: Any) -> Any:
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if number != "auto" and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
            raise ValueError(f"{value!r} is not `auto`, 0 (inside the driver) or a number of processes")
        return number

    @model_validator(mode="after")
    def _one_process(self) -> Config:
        if self.strategy == "sequential" and self.workers not in ("auto", 0, 1):
            raise ValueError(f"strategy: sequential is one process, and workers: {self.workers} asks for more")
        return self

    @property
    def slice_bytes(self) -> int:
        return parse_size(self.slice_size)

    @property
    def output_path(self) -> str:
        return os.path.normpath(os.path.join(self.folder, self.output))

    def build_stages(self) -> tuple[Stage, ...]:
        """The stages as values. Their modules are looked for beside the job file first."""
        if self.folder in sys.path:
            sys.path.remove(self.folder)
        sys.path.insert(0, self.folder)
        forget_modules(self.folder, (word for word in _words(self.stages) if ":" in word))
        stages: tuple[Stage, ...] = ()
        for number, written in enumerate(self.stages):
            stages = (*stages, _build(number, written).placed(stages))
        return stages

    def semantic(self, stages: tuple[Stage, ...]) -> dict[str, Any]:
        """The part of the job that decides output bytes, with every default spelled out."""
        return {
            "input": [source.semantic() for source in self.input],
            "stages": [_describe(name, stage) for name, stage in zip(self.stage_names, stages, strict=True)],
            "format": self.format,
            "on_bad_input": self.on_bad_input,
            "slice_size": self.slice_bytes,
        }

    @property
    def stage_names(self) -> tuple[str, ...]:
        return tuple(next(iter(stage)) for stage in self.stages)


def _plain(path: Any) -> Any:
    return os.fspath(path) if isinstance(path, os.PathLike) else path


def _words(written: Any) -> Iterator[str]:
    """Every string in the stages as written: one of them may name a module."""
    if isinstance(written, str):
        yield written
    elif isinstance(written, dict):
        yield from (word for pair in written.items() for each in pair for word in _words(each))
    elif isinstance(written, list | tuple):
        yield from (word for each in written for word in _words(each))


def _describe(name: str, stage: Stage) -> dict[str, Any]:
    """A stage in the manifest: its options, and what else decides its bytes."""
    described: dict[str, Any] = {name: stage.describe()}
    if stage.code():
        described["code"] = [code_identity(target) for target in stage.code()]
    if stage.version > 1:
        described["version"] = stage.version
    return described


def _stage_mappings(stages: Any) -> list[dict[str, Any]]:
    if stages is None:  # the key with nothing under it
        return []
    if not isinstance(stages, list | tuple):
        raise ValueError("stages: is a list, each entry one stage such as `- filter: rtt > 0`")
    mappings = []
    for number, entry in enumerate(stages):
        if isinstance(entry, str):
            entry = {entry: None}
        if not isinstance(entry, dict) or len(entry) != 1:
            raise ValueError(f"stages[{number}]: one stage with its options, such as `- filter: rtt > 0`")
        mappings.append({str(name): options for name, options in entry.items()})
    return mappings


def _build(number: int, stage: dict[str, Any]) -> Stage:
    ((name, written),) = stage.items()
    with stage_errors(number, name):
        return build_stage(name, written)
    raise AssertionError  # for the type checker, which cannot know that the block does not swallow errors


@contextmanager
def stage_errors(number: int, name: str) -> Iterator[None]:
    """`with stage_errors(2, "filter"):` puts `stages[2].filter: ` before what a ConfigError says."""
    try:
        yield
    except ConfigError as error:
        if not error.what.startswith("stages["):
            error.what = f"stages[{number}].{name}: {error.what}"
        raise


def load_config(path: str | os.PathLike[str], overrides: dict[str, Any] | None = None) -> Config:
    """Read a job file. `overrides` replace its top-level keys, as the command line's options do."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the job file: {error}",
            where=str(path),
            next_step="`penstock init` writes one to start from",
        ) from error
    written, lines = _read_yaml(text, path)
    try:
        return make_config({**written, **(overrides or {})}, folder=str(path.parent.absolute()))
    except ConfigError as error:
        error.where = error.where or _place(path, error.what, lines)
        raise


def _read_yaml(text: str, path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """(what the job file says, the line of each path into it)."""
    lines: dict[str, int] = {}
    try:
        _note_lines(yaml.compose(text, Loader=yaml.SafeLoader), "", lines)
        written = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"not YAML: {error.problem}", where=f"{path}{line}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}", where=str(path)) from error
    except _WrittenTwice as twice:
        raise ConfigError(f"{twice.name}: written twice", where=f"{path}, line {twice.line}") from twice
    if not isinstance(written, dict):
        raise ConfigError("a job is a mapping with `input:`, `output:` and `stages:`", where=str(path))
    return written, lines


def make_config(written: dict[str, Any], folder: str | None = None) -> Config:
    """A Config from Python values; relative paths start at `folder`, or at the working directory."""
    _refuse_unknown(written, Config, "")
    for number, source in enumerate(_sources_of(written)):
        if isinstance(source, dict):
            _refuse_unknown(source, SourceConfig, f"input[{number}].")
    try:
        config = Config(**{**written, "folder": folder or os.getcwd()})
    except ValidationError as error:
        raise ConfigError(_first_problem(error)) from error
    config.build_stages()  # so that a wrong option is told before any file is touched
    return config


def _sources_of(written: dict[str, Any]) -> list[Any]:
    sources = written.get("input")
    return list(sources) if isinstance(sources, list | tuple) else [sources]


def _refuse_unknown(written: dict[str, Any], model: type[BaseModel], path: str) -> None:
    known = [name for name, info in model.model_fields.items() if not info.exclude]
    for key in written:
        if key not in known:
            raise ConfigError(f"{path}{key}: unknown key. Keys: {', '.join(known)}.{did_you_mean(str(key), known)}")


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    path = ""
    for part in first["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    if first["type"] == "missing":
        return f"{path}: this key is required"
    message = first["msg"].removeprefix("Value error, ")
    got = "" if first["type"] == "value_error" else f", got {first['input']!r}"
    return f"{path}: {message}{got}" if path else message


class _WrittenTwice(Exception):
    def __init__(self, name: str, line: int) -> None:
        super().__init__(name)
        self.name, self.line = name, line


def _note_lines(node: yaml.Node | None, path: str, lines: dict[str, int]) -> None:
    """Remember the line of every key, and refuse a key that is written twice: YAML would drop the first."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{path}.{key.value}" if path else str(key.value)
            line = key.start_mark.line + 1
            if name in lines:
                raise _WrittenTwice(name, line)
            lines[name] = line
            _note_lines(value, name, lines)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            lines[f"{path}[{number}]"] = value.start_mark.line + 1
            _note_lines(value, f"{path}[{number}]", lines)


def _place(path: Path, what: str, lines: dict[str, int]) -> str:
    """`job.yaml, line 7`: the line of the longest known path that the message starts with."""
    spellings = [what, what.replace("[0]", "", 1)]  # one source may be written without a list
    known = [name for name in lines if any(spelling.startswith(name) for spelling in spellings)]
    return f"{path}, line {lines[max(known, key=len)]}" if known else str(path)
