"""Engine config: the job key `engine:`, who does the tasks. Part of config.py.

The kinds of engine are here, by name, with their options. engines/choosing.py imports and opens the one of the job.
No engine decides a byte of the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field, SerializeAsAny, ValidationError, model_serializer

from penstock.base.errors import did_you_mean
from penstock.prepare.job.job_file import refuse_unknown
from penstock.prepare.job.source_config import FROZEN
from penstock.prepare.stages.problems import problem

DEFAULT = "local"


class EngineOptions(BaseModel):
    """Options of a kind of engine."""

    model_config = FROZEN


class LocalOptions(EngineOptions):
    """Worker processes on this machine; with `workers: 0`, the driver itself."""


class RayOptions(EngineOptions):
    """Tasks of Ray, on a running cluster or on one that the run starts on this machine."""

    address: str | None = Field(
        None,
        min_length=1,
        description="auto, or host:port of a running Ray cluster; default: start one on this machine for this run",
    )


class WorkersOptions(EngineOptions):
    """Workers that you start on any machine with `penstock work OUTPUT`."""

    lease: float = Field(
        60, gt=0, le=86_400, description="seconds without a sign of life before others do a worker's tasks"
    )


@dataclass(frozen=True)
class EngineKind:
    """`opens` and `runs` are targets (module:name) of functions: one makes the engine from an `Opening`
    (engines/__init__.py), the other runs a plan."""

    options: type[EngineOptions]
    opens: str
    has_inside: bool = False  # whether the driver may do tasks itself: for a small job, or `workers: 0`
    has_many_hosts: bool = False  # whether tasks on other machines write the output
    runs: str = "penstock.prepare.run.run:run"


KINDS = {
    DEFAULT: EngineKind(LocalOptions, "penstock.prepare.engines.local:open_engine", has_inside=True),
    "ray": EngineKind(RayOptions, "penstock.prepare.engines.ray.opening:open_engine", has_many_hosts=True),
    "workers": EngineKind(
        WorkersOptions,
        "penstock.prepare.engines.workers.onlooker:open_engine",
        runs="penstock.prepare.run.members.attending:attend",
    ),
}


class EngineConfig(BaseModel):
    """The engine of a job. `engine: ray` is short for `engine: {ray: {}}`."""

    model_config = FROZEN

    name: str = DEFAULT
    options: SerializeAsAny[EngineOptions] = LocalOptions()

    @property
    def kind(self) -> EngineKind:
        return KINDS[self.name]

    @model_serializer
    def _as_written(self) -> Any:
        options = self.options.model_dump(exclude_unset=True)
        return {self.name: options} if options else self.name


def engine_config(written: Any) -> EngineConfig:
    """The engine that a job names, in the short form or the long one."""
    if isinstance(written, EngineConfig):
        return written
    form = {written: None} if isinstance(written, str) else written
    if not isinstance(form, dict) or len(form) != 1:
        raise ValueError(f"expected one of {', '.join(KINDS)}, or a mapping of one to its options; got {written!r}")
    ((name, options),) = form.items()
    if name not in KINDS:
        raise ValueError(f"{name!r} is not one of {', '.join(KINDS)}.{did_you_mean(str(name), list(KINDS))}")
    try:
        return EngineConfig(name=name, options=KINDS[name].options.model_validate({} if options is None else options))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(problem(".".join(map(str, (name, *first["loc"]))), dict(first))) from error


def refuse_unknown_options(engine: Any) -> None:
    """Refuse options that the engine does not have. Other mistakes are pydantic's to find."""
    for name, options in engine.items() if isinstance(engine, dict) else ():
        if name in KINDS and isinstance(options, dict):
            refuse_unknown(options, tuple(KINDS[name].options.model_fields), f"engine.{name}.")
