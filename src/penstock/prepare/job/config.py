"""Config: a job file (YAML) as a frozen value. Every error has a path into the file. Next: taking.py.

What decides output bytes is *semantic*: sources' options, stages, format, slice size, bad input. What only
decides how the work is done is not: memory, workers, engine, time-outs, where input and output lie.
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from penstock.base.errors import ConfigError, printable
from penstock.base.paths import dataset_path, local_path, normal_path
from penstock.base.sizes import parse_size
from penstock.prepare.job.engine_config import EngineConfig, engine_config, refuse_unknown_options
from penstock.prepare.job.job_file import Translated, read_job_file, refuse_unknown
from penstock.prepare.job.job_text import job_text, shortened
from penstock.prepare.job.objects import named_source, stage_mappings
from penstock.prepare.job.older import translated
from penstock.prepare.job.source_config import FROZEN, SourceConfig, plain
from penstock.prepare.job.stage_list import build_stages, describe_stage, shown_names
from penstock.prepare.stages.problems import problem
from penstock.prepare.stages.stage import Stage

_MOST_SECONDS = 10**8  # three years: the clock of the system cannot wait for ever
_TEXT_SLICE = "16MB"  # of a text job, unless it says another
_OF_DOCUMENTS = {"clean", "dedup", "near_dedup", "tokenize", "pack"}  # stages that take documents


Place = str | os.PathLike[str]


class ExportConfig(BaseModel):
    """An export of the finished dataset for another library. `export: hf` is short for `export: {to: hf}`."""

    model_config = FROZEN

    to: Literal["hf"] = Field(description="hf: for datasets.load_from_disk")
    path: str | None = Field(None, description="folder to write; default: the name of the output plus -hf")
    shard_size: str = Field("200MB", description="largest size of a file in the folder")
    columns: tuple[str, ...] | None = Field(None, description="columns to write, by their exported names; default: all")

    @field_validator("shard_size", mode="before")
    @classmethod
    def _size(cls, value: Any) -> str:
        parse_size(value)
        return str(value)


class Config(BaseModel):
    """A job: its input, stages, output, and the memory and workers that it may use.

    A Config, a dict and a YAML file are equivalent. `Config.from_file(path)` reads the file, `str(config)` is the YAML.
    """

    model_config = FROZEN

    input: tuple[SourceConfig, ...] = Field(min_length=1)
    output: str = Field(description="folder of the dataset")
    stages: tuple[dict[str, Any], ...] = ()
    format: Literal["safetensors", "npy", "arrays", "npz", "arrayrecord"] = Field(
        "safetensors",
        description="file format of the output. arrays: one .npy per column and split, the default for samples; "
        "arrayrecord: one file per split, only for grouped events",
    )
    merge_strategy: Literal["sequential", "accumulative"] = Field(
        "sequential", description="for format arrays: place batches one by one, or all at once in memory; same bytes"
    )
    intermediate_dir: str | None = Field(
        None, description="for samples: folder in which to keep them as batch files (.npz) before the merge"
    )
    batch_size: int = Field(500, gt=0, description="samples per batch file in intermediate_dir")
    export: ExportConfig | None = Field(
        None, description="also write the finished dataset for another library: hf, or {to: hf, path: prepared-hf}"
    )
    on_bad_input: Literal["fail", "set_aside"] = Field(
        "fail", description="bad rows and files: stop with an error, or keep them in rejected/ and continue"
    )
    provenance: bool | Literal["origins"] | None = Field(
        None,
        description="keep file, position and content hash of each document or sample, for loader.origin(k); origins: "
        "without hashes; default: true for text and samples, false after group",
    )
    slice_size: str = Field("64MB", description="input bytes per task; this also sets the size of a shard")
    memory: str = Field("80%", description="limit for the whole process tree: 2GB, 512MiB, or 50% of the machine")
    workers: Literal["auto"] | int = Field(
        "auto", description="processes; 0 runs the tasks inside the driver, to debug"
    )
    engine: EngineConfig = Field(
        EngineConfig(),
        description="who does the tasks: processes of this machine, or a cluster; does not change the output",
    )
    strategy: Literal["auto", "sequential", "parallel", "streaming"] = Field(
        "auto", description="how much to hold in memory at once; does not change the output"
    )
    task_timeout: float = Field(
        600, gt=0, le=_MOST_SECONDS, description="seconds without a row before a task is killed"
    )
    stall_notice: float = Field(
        60, gt=0, le=_MOST_SECONDS, description="seconds without a row before a task is reported"
    )
    folder: str = Field("", exclude=True)  # where relative paths and modules of this job are looked up

    def __init__(
        self,
        job: Mapping[str, Any] | None = None,
        /,
        *,
        input: Place | Mapping[str, Any] | Sequence[Place | Mapping[str, Any]] | None = None,
        output: Place | None = None,
        stages: Sequence[str | Mapping[Any, Any] | Callable[..., Any]] | None = None,
        format: Literal["safetensors", "npy", "arrays", "arrayrecord"] | None = None,
        merge_strategy: Literal["sequential", "accumulative"] | None = None,
        intermediate_dir: Place | None = None,
        batch_size: int | None = None,
        export: Literal["hf"] | Mapping[str, Any] | None = None,
        on_bad_input: Literal["fail", "set_aside"] | None = None,
        provenance: bool | Literal["origins"] | None = None,
        slice_size: str | int | None = None,
        memory: str | int | None = None,
        workers: Literal["auto"] | int | None = None,
        engine: str | Mapping[str, Any] | None = None,
        strategy: Literal["auto", "sequential", "parallel", "streaming"] | None = None,
        task_timeout: float | None = None,
        stall_notice: float | None = None,
        folder: Place | None = None,
    ) -> None:
        """Describe a job, as a dict or with keywords. None means that the key is not set.

        Args:
            job: Keys of a job file, as a dict. Keywords replace its keys.
            input: Files, folders or patterns to read; a dict if there are options; or a list of these.
            output: Folder of the dataset.
            stages: Steps that each row goes through, in order: [{"filter": "rtt > 0"}, {"split": {"test": 0.1}}].
            format: File format of the output. Default: "safetensors", and "arrays" for samples.
            merge_strategy: Format "arrays": place batches one by one, or all at once in memory. Default: "sequential".
            intermediate_dir: Folder in which samples are kept as batch files. Default: none are kept.
            batch_size: Samples per batch file. Default: 500.
            export: Also write the finished dataset for another library: "hf". Default: no export.
            on_bad_input: "fail" stops at a row that cannot be read, "set_aside" keeps it in rejected/ and continues.
                Default: "fail".
            provenance: Keep the file, position and content hash of each document or sample, for `loader.origin(k)`;
                "origins" keeps no hashes. Default: True for text and samples, False after `group`.
            slice_size: Input bytes per task; this also sets the size of a shard. Default: "64MB", and "16MB" for text.
            memory: Upper bound for the whole process tree: "2GB", or a share of the machine. Default: "80%".
            workers: Processes; 0 runs the tasks inside the driver. Default: "auto".
            engine: Who does the tasks: "local" processes, "workers" that you start on any machine, or a Ray cluster:
                "ray", {"ray": {"address": "auto"}}; does not change the output. Default: "local".
            strategy: How much to hold in memory at once; does not change the output. Default: "auto".
            task_timeout: Seconds without a row before a task is killed. Default: 600.
            stall_notice: Seconds without a row before a task is reported. Default: 60.
            folder: Base folder of relative paths and of modules. Default: the working directory.
        """
        said = {name: value for name, value in locals().items() if name in _keys_of(Config) and value is not None}
        written = {**(job or {}), **said}
        _refuse_unknown(written)
        try:
            super().__init__(**written, folder=os.fspath(folder or os.getcwd()))
        except ValidationError as error:
            raise ConfigError(_first_problem(error)) from error
        self.build_stages()  # so that a wrong option is told before any file is touched

    @classmethod
    def from_file(cls, path: Place) -> Config:
        """Read a job file. Relative paths in it start at its folder.

        Args:
            path: YAML file.
        """
        return load_config(path)

    def to_dict(self) -> dict[str, Any]:
        """The keys that were set, as in a job file. `Config(job)` takes this dict."""
        return shortened(self.model_dump(by_alias=True, exclude_unset=True))

    def to_yaml(self) -> str:
        """The job file: YAML that `Config.from_file` reads."""
        return job_text(self.to_dict())

    def __str__(self) -> str:
        return self.to_yaml()

    def __repr__(self) -> str:
        return printable(f"Config({self.to_dict()!r})")

    def _repr_html_(self) -> str:
        lines = map(printable, self.to_yaml().split("\n"))
        return f"<pre>{html.escape(chr(10).join(lines))}</pre>"

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("a job is a mapping with `input:`, `output:` and `stages:`")
        value = dict(value)
        sources = value.get("input")
        if isinstance(sources, str | os.PathLike | dict):
            sources = [sources]
        if hasattr(sources, "columns") or hasattr(sources, "column_names"):  # a DataFrame, an Arrow table, a Dataset
            kind = f"{type(sources).__module__.partition('.')[0]}.{type(sources).__name__}"
            raise ValueError(
                f"input: a job reads files, and this is a {kind}: write it to a Parquet file, and give the path of that"
            )
        if isinstance(sources, list | tuple):
            sources = [{"path": each} if isinstance(each, str | os.PathLike) else each for each in sources]
            value["input"] = [named_source(number, each) for number, each in enumerate(sources)]
        if "format" not in value and isinstance(value.get("input"), list):
            value |= {"format": "arrays"} if any(map(_gives_samples, value["input"])) else {}
        if "slice_size" not in value and any(map(_is_text, value.get("stages") or ())):
            value["slice_size"] = _TEXT_SLICE
        if isinstance(value.get("export"), str):
            value["export"] = {"to": value["export"]}
        if "output" in value:
            value["output"] = plain(value["output"])
        if "stages" in value:
            value["stages"] = stage_mappings(value["stages"])
        for size in ("memory", "slice_size"):
            if isinstance(value.get(size), int) and not isinstance(value[size], bool):
                value[size] = str(value[size])
        return value

    @field_validator("memory", "slice_size")
    @classmethod
    def _sizes(cls, value: str, info: Any) -> str:
        size = parse_size(value, whole=2**40 if info.field_name == "memory" else None)
        if info.field_name == "memory" and value.strip().isdecimal() and size < 10**6:
            raise ValueError(f"{size:,} bytes are too few for any job. Did you mean {size}MB?")
        return value

    @field_validator("task_timeout", "stall_notice", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError(f"{value!r} is not a number of seconds")
        return value

    @field_validator("engine", mode="before")
    @classmethod
    def _engine(cls, value: Any) -> EngineConfig:
        return engine_config(value)

    @field_validator("workers", mode="before")
    @classmethod
    def _workers(cls, value: Any) -> Any:
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if number != "auto" and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
            raise ValueError(f"{value!r} is not `auto`, 0 (inside the driver) or a number of processes")
        return number

    @model_validator(mode="after")
    def _local_paths(self) -> Config:
        """Make every path a local path. Others are refused, and the error names the key."""
        written = {"output": (self.output,), "intermediate_dir": (self.intermediate_dir,)}
        written |= {"export.path": (self.export.path,)} if self.export else {}
        for number, source in enumerate(self.input):
            written |= {f"input[{number}].{name}": getattr(source, name) for name in ("path", "files", "npz")}
        for key, path in ((key, path) for key, paths in written.items() for path in paths if path):
            try:
                located = dataset_path if key == "output" else local_path
                located(path, self.folder, is_output=not key.startswith("input"))
            except ConfigError as error:
                error.what = f"{key}: {error.what}"
                raise
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Config:
        output, batches = self.output_path, self.batches_path
        if batches and os.path.commonpath([os.path.abspath(output), os.path.abspath(batches)]) in (
            os.path.abspath(output),
            os.path.abspath(batches),
        ):
            raise ValueError(
                f"intermediate_dir: {self.intermediate_dir} and output: {self.output} must not contain each "
                "other; give each its own folder"
            )
        if self.provenance and self.intermediate_dir:
            raise ValueError("provenance: true does not work with intermediate_dir: batch files keep no origins")
        if self.strategy == "sequential" and self.workers not in ("auto", 0, 1):
            raise ValueError(f"strategy: sequential uses one process, but workers: {self.workers} asks for more")
        for key, value in {"workers": self.workers, "strategy": self.strategy}.items():
            if value in (0, "sequential") and not self.engine.kind.has_inside:
                raise ValueError(
                    f"{key}: {value} does the tasks inside the driver, and engine: {self.engine.name} elsewhere; leave "
                    "one of the two out"
                )
        return self

    @property
    def slice_bytes(self) -> int:
        return parse_size(self.slice_size)

    @property
    def output_path(self) -> str:
        return normal_path(dataset_path(self.output, self.folder))

    @property
    def export_path(self) -> str:
        """Folder of the export, if there is one."""
        if not self.export:
            return ""
        return os.path.abspath(local_path(self.export.path or f"{normal_path(self.output)}-hf", self.folder))

    @property
    def batches_path(self) -> str:
        """Folder of batch files, if they are kept."""
        return os.path.normpath(local_path(self.intermediate_dir, self.folder)) if self.intermediate_dir else ""

    @property
    def keeps_origins(self) -> bool:
        """Whether rows are stored with their origins. By itself, a job of documents or samples keeps them."""
        if self.provenance is not None:
            return bool(self.provenance)
        names = {next(iter(stage)) for stage in self.stages}
        if "group" in names or self.intermediate_dir or self.format == "npz" or any(each.npz for each in self.input):
            return False
        return bool(names & _OF_DOCUMENTS) or any(each.function for each in self.input)

    def build_stages(self) -> tuple[Stage, ...]:
        """The stages as values. Their modules are looked for beside the job file first."""
        return build_stages(self.stages, self.input, self.folder)

    def semantic(self, stages: tuple[Stage, ...]) -> dict[str, Any]:
        """The part of the job that decides output bytes, with every default spelled out.

        Args:
            stages: Stages from `build_stages()`.
        """
        described = {
            "input": [source.semantic() for source in self.input],
            "stages": [describe_stage(name, stage) for name, stage in zip(self.stage_names, stages, strict=True)],
            "format": self.format,
            "on_bad_input": self.on_bad_input,
            "slice_size": self.slice_bytes,
        }
        return {**described, "batch_size": self.batch_size} if self.format == "npz" else described

    @property
    def stage_names(self) -> tuple[str, ...]:
        return shown_names(self.stages)


def _is_text(stage: Any) -> bool:
    """Whether a stage works on documents, which take more time per byte than rows do, and are stored smaller."""
    return (next(iter(stage), "") if isinstance(stage, dict) else stage) in ("dedup", "tokenize")


def _gives_samples(source: Any) -> bool:
    return isinstance(source, dict) and bool(source.get("function") or source.get("npz"))


def load_config(path: str | os.PathLike[str], overrides: dict[str, Any] | None = None) -> Config:
    """Read a job file. `overrides` replace its top-level keys, as the command line's options do."""
    file = read_job_file(path)
    laid = {**file.written, **(overrides or {})}
    try:
        job = understood(laid).job
        job |= {key: value for key, value in (overrides or {}).items() if key in job or key in _keys_of(Config)}
        return Config(job, folder=str(file.path.parent.absolute()))
    except ConfigError as error:
        error.where = error.where or file.place(error.what)
        raise


def understood(written: dict[str, Any]) -> Translated:
    """The job file that was written, or the one that another program's config means."""
    return translated(written, _keys_of(Config))


def _keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    return tuple(info.alias or name for name, info in model.model_fields.items() if not info.exclude)


def source_keys() -> tuple[str, ...]:
    """Keys of an entry of `input:`."""
    return _keys_of(SourceConfig)


def _refuse_unknown(written: Mapping[str, Any]) -> None:
    refuse_unknown(written, _keys_of(Config))
    sources = written.get("input")
    for number, source in enumerate(sources if isinstance(sources, list | tuple) else [sources]):
        if isinstance(source, dict):
            refuse_unknown(source, _keys_of(SourceConfig), f"input[{number}].")
    if isinstance(written.get("export"), dict):
        refuse_unknown(written["export"], _keys_of(ExportConfig), "export.")
    refuse_unknown_options(written.get("engine"))


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    path = ""
    for part in first["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    if first["type"] == "missing":
        return f"{path}: this key is required"
    # Batch files are a format only between the two halves of a job.
    return problem(path, first, internal=("npz",) if path == "format" else ())
