"""Config: a job file (YAML) as a frozen value. Every error has a path into the file. Next: survey.py.

What decides output bytes is *semantic*: sources' options, stages, format, slice size, bad input. What only
decides how the work is done is not: memory, workers, time-outs, where input and output lie.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.sizes import parse_size
from penstock.prepare.compat import preprocessing
from penstock.prepare.compat.preprocessing import Translated
from penstock.prepare.sample_schema import SampleSchema, declared_schema
from penstock.prepare.sources import SourceOptions
from penstock.prepare.stage import Stage
from penstock.prepare.stages import build_stage
from penstock.prepare.user_code import code_identity, forget_modules, load_user_object
from penstock.shards.schema import declared_type

_WHOLE = r"^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$"
_FROZEN = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class SourceConfig(BaseModel):
    """Where rows come from. `input: 'data/*.parquet'` is short for `input: {path: 'data/*.parquet'}`.

    `files:` are raw files that `function:` makes samples of, `npz:` are batch files of arrays.
    """

    model_config = _FROZEN

    path: tuple[str, ...] = Field((), description="files, folders or globs (`**` crosses folders)")
    files: tuple[str, ...] = Field((), description="raw files, each given to `function`")
    npz: tuple[str, ...] = Field((), description="batch files of arrays, such as intermediate/batch_*.npz")
    format: Literal["auto", "parquet", "csv", "jsonl"] = "auto"
    types: dict[str, str] = Field({}, description="column types of text formats, such as {time: 'timestamp[us]'}")
    delimiter: str | None = Field(None, description="of CSV; comma, or tab for .tsv")
    null_values: tuple[str, ...] = Field(("", "NA", "N/A", "NULL", "null"), description="what CSV writes for null")
    newlines_in_values: bool = Field(False, description="CSV values may hold newlines between quotes")
    function: str | None = Field(None, description="module:name that yields samples (dicts) of a file, or of rows")
    batch_rows: int = Field(1024, gt=0, le=2**20, description="rows that `function` is given at a time, with `path:`")
    samples: dict[str, Any] | None = Field(
        None, alias="schema", description="types of what `function` yields: {features: 'float32[893]'}; else inferred"
    )
    floats: Literal["float16", "float32", "float64"] = Field("float32", description="what inferred floats become")
    missing: dict[str, Any] = Field({}, description="what stands for a key that a sample lacks: {labels_x: -1}")
    function_memory: str | None = Field(None, description="that `function` may take of its own; measured if not said")
    trust_pickle: bool = Field(False, description="open .npz files that hold pickles, which can run any code")

    @field_validator("path", "files", "npz", mode="before")
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

    @field_validator("function_memory", mode="before")
    @classmethod
    def _size(cls, value: Any) -> Any:
        if value is not None:
            parse_size(str(value))
        return None if value is None else str(value)

    @model_validator(mode="after")
    def _fits_together(self) -> SourceConfig:
        given = [name for name in ("path", "files", "npz") if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(
                f"{' and '.join(given) or 'none of path, files, npz'}: give one of path (rows that penstock reads), "
                "files (raw files for `function`) and npz (batch files)"
            )
        if self.files and not self.function:
            raise ValueError("files: needs `function: module:name`, which yields the samples of one file")
        if self.npz and self.function:
            raise ValueError("npz: holds samples already, and takes no `function`")
        if self.function and ":" not in self.function:
            raise ValueError(f"function: {self.function!r} is not module:name, such as features:samples")
        if not self.function and (self.samples is not None or self.missing or self.function_memory):
            raise ValueError(
                "schema, missing and function_memory are about what a `function` yields, and there is none"
            )
        return self

    @property
    def patterns(self) -> tuple[str, ...]:
        return self.path or self.files or self.npz

    @property
    def kind(self) -> str:
        """The format that its files are read as; `auto` goes by their names."""
        return "function" if self.function else "npz" if self.npz else self.format

    def options(self, samples: SampleSchema = ()) -> SourceOptions:
        return SourceOptions(
            types=self.types,
            delimiter=self.delimiter,
            null_values=self.null_values,
            newlines_in_values=self.newlines_in_values,
            trust_pickle=self.trust_pickle,
            format=self.format,
            function=self.function or "",
            takes_rows=bool(self.path),
            batch_rows=self.batch_rows,
            samples=samples,
        )

    def semantic(self) -> dict[str, Any]:
        """Options of a trade that the source has not would only change old fingerprints."""
        dumped = self.model_dump(mode="json", by_alias=True, exclude={"path", "files", "npz", "function_memory"})
        for name in ("function", "batch_rows", "schema", "floats", "missing") if not self.function else ():
            del dumped[name]
        if not self.npz:
            del dumped["trust_pickle"]
        return {**dumped, "code": code_identity(self.function)} if self.function else dumped


class Config(BaseModel):
    """A job: what to read, what to do with it, where to put it, and what it may use."""

    model_config = _FROZEN

    input: tuple[SourceConfig, ...] = Field(min_length=1)
    output: str
    stages: tuple[dict[str, Any], ...] = ()
    format: Literal["safetensors", "npy", "arrays", "npz", "arrayrecord"] = Field(
        "safetensors",
        description="container of the columns; arrays (of samples, and their default) is one .npy a column and split, "
        "arrayrecord one file a split, of grouped events only",
    )
    merge_strategy: Literal["sequential", "accumulative"] = Field(
        "sequential", description="of format arrays: place batches one by one, or all at once in memory; same bytes"
    )
    intermediate_dir: str | None = Field(
        None, description="of samples: keep them as batch files there (.npz), and merge these"
    )
    batch_size: int = Field(500, gt=0, description="samples in a batch file of intermediate_dir")
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
        if "format" not in value and isinstance(value.get("input"), list):
            value |= {"format": "arrays"} if any(map(_gives_samples, value["input"])) else {}
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
    def _apart(self) -> Config:
        output, batches = self.output_path, self.batches_path
        if batches and os.path.commonpath([os.path.abspath(output), os.path.abspath(batches)]) in (
            os.path.abspath(output),
            os.path.abspath(batches),
        ):
            raise ValueError(
                f"intermediate_dir: {self.intermediate_dir} and output: {self.output} lie one in the other; "
                "give each a folder of its own"
            )
        return self

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

    @property
    def batches_path(self) -> str:
        """Where batch files are kept, if they are."""
        return os.path.normpath(os.path.join(self.folder, self.intermediate_dir)) if self.intermediate_dir else ""

    def build_stages(self) -> tuple[Stage, ...]:
        """The stages as values. Their modules are looked for beside the job file first."""
        if self.folder in sys.path:
            sys.path.remove(self.folder)
        sys.path.insert(0, self.folder)
        functions = {number: source.function for number, source in enumerate(self.input) if source.function}
        forget_modules(self.folder, (word for word in (*_words(self.stages), *functions.values()) if ":" in word))
        for number, function in functions.items():
            _find_function(number, function)
            _check_schema(number, self.input[number])
        stages: tuple[Stage, ...] = ()
        for number, written in enumerate(self.stages):
            stages = (*stages, _build(number, written).placed(stages))
        return stages

    def semantic(self, stages: tuple[Stage, ...]) -> dict[str, Any]:
        """The part of the job that decides output bytes, with every default spelled out."""
        described = {
            "input": [source.semantic() for source in self.input],
            "stages": [_describe(name, stage) for name, stage in zip(self.stage_names, stages, strict=True)],
            "format": self.format,
            "on_bad_input": self.on_bad_input,
            "slice_size": self.slice_bytes,
        }
        return {**described, "batch_size": self.batch_size} if self.format == "npz" else described

    @property
    def stage_names(self) -> tuple[str, ...]:
        return tuple(next(iter(stage)) for stage in self.stages)


def _gives_samples(source: Any) -> bool:
    return isinstance(source, dict) and bool(source.get("function") or source.get("npz"))


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


def _find_function(number: int, function: str) -> None:
    try:
        found = load_user_object(function)
    except ConfigError as error:
        error.what = f"input[{number}].function: {error.what}"
        raise
    if not callable(found):
        raise ConfigError(f"input[{number}].function: {function} is no function")


def _check_schema(number: int, source: SourceConfig) -> None:
    if source.samples is None:
        return
    try:
        declared_schema(source.samples, source.missing)
    except ConfigError as error:
        place = "" if error.what.startswith("missing") else f"{error.where or 'schema'}: "
        error.what, error.where = f"input[{number}].{place}{error.what}", None
        raise


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
        job = understood({**written, **(overrides or {})}).job
        return make_config({**job, **(overrides or {})}, folder=str(path.parent.absolute()))
    except ConfigError as error:
        error.where = error.where or _place(path, error.what, lines)
        raise


def read_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)


def understood(written: dict[str, Any]) -> Translated:
    """The job file that was written, or the one that another program's config means."""
    if preprocessing.BLOCK not in written:
        return Translated(written, ())
    keys = tuple(name for name, info in Config.model_fields.items() if not info.exclude)
    return preprocessing.translate(written, keys)


def _read_yaml(text: str, path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """(what the job file says, the line of each path into it)."""
    lines: dict[str, int] = {}
    try:
        _note_lines(yaml.compose(text, Loader=yaml.SafeLoader), "", lines)
        written = read_yaml(text)
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
    known = [info.alias or name for name, info in model.model_fields.items() if not info.exclude]
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


class _Loader(yaml.SafeLoader):
    """YAML without numbers of base 60: `skip: [10:20]` is a range, and not 620."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, re.compile(_WHOLE) if tag.endswith(":int") else pattern) for tag, pattern in resolvers]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


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
