"""Slurm: a job file, its needs and the options of `penstock deploy slurm` -> an Array. Next: slurm_script.py."""

import os
import re
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.sizes import format_size
from penstock.base.stores import is_served
from penstock.deploy.needs import Needs
from penstock.deploy.ranges import Range, name_of, size_of
from penstock.deploy.writing import plain_name
from penstock.prepare.job.config import Config

MIB = 1 << 20
GRACE_SECONDS = 120  # from SIGTERM to the limit, or up to a minute more: Slurm checks once per minute
SHELL_BYTES = 64 * MIB  # of an element's memory: bash, and what the kernel keeps for the processes
DEFAULT_ARRAY = 1001  # MaxArraySize, where a cluster does not set it

_NODES = Range("--nodes", 1, 4_000_001, "Slurm's arrays have at most 4,000,001 elements, and 1,001 by default")
_CORES = Range("--cores", 1, 65_533, "Slurm keeps --cpus-per-task in 16 bits")
_MEMORY = Range(
    "--memory-per-node", 256 * MIB, 10**15, "penstock alone takes about 150 MB; no node has a petabyte", format_size
)
_TIME = Range(
    "--time",
    5 * 60,
    365 * 86400,
    f"an element is asked to stop up to {GRACE_SECONDS + 60} s before its limit, and Slurm takes a year for unlimited",
    lambda seconds: f"{seconds / 60:,.0f} minutes" if seconds < 86400 else f"{seconds / 86400:,.0f} days",
)
# minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds
_TIMES = re.compile(r"(?:(?P<days>\d{1,9})-)?(?P<a>\d{1,9})(?::(?P<b>\d{1,9}))?(?::(?P<c>\d{1,9}))?")
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"


@dataclass(frozen=True)
class Array:
    """An array job: each element is a worker of its own, on one node."""

    name: str
    job: str
    output: str
    python: str
    nodes: int
    cores: int
    memory_bytes: int
    time: str | None
    partition: str | None
    projection: dict[str, Any] | None  # of the time; None if the job cannot be planned here
    exports: bool  # whether the job has an `export:`, which is made when the dataset is finished

    @property
    def memory_mib(self) -> int:
        """Memory of an element as Slurm counts it: M means MiB."""
        return self.memory_bytes // MIB

    @property
    def worker_mib(self) -> int:
        return self.memory_mib - SHELL_BYTES // MIB


@dataclass(frozen=True)
class SlurmOptions:
    """The options of the command, in their ranges. None: the plan decides, or the cluster."""

    nodes: int
    cores: int | None
    memory_bytes: int | None
    time: str | None
    partition: str | None

    @property
    def missing(self) -> list[str]:
        """Options that only a plan could replace."""
        given = {"--memory-per-node": self.memory_bytes, "--cores": self.cores}
        return [name for name, value in given.items() if value is None]

    @property
    def planned_memory(self) -> str | None:
        """The job's `memory:` in a plan for one node."""
        return str(self.memory_bytes - SHELL_BYTES) if self.memory_bytes else None

    @property
    def planned_workers(self) -> str | None:
        return str(self.cores) if self.cores else None


def slurm_options(
    nodes: int, cores: int | None, memory_per_node: str | None, time: str | None, partition: str | None
) -> SlurmOptions:
    """Check each option against what Slurm takes."""
    memory = None if memory_per_node is None else size_of("--memory-per-node", memory_per_node)
    if memory is not None:
        _MEMORY.taken(memory, memory_per_node)
    if time is not None:
        _TIME.taken(seconds_of(time), time)
    if partition is not None:
        allowed = "letters, digits and _ . + - ; several with commas: short,long"
        name_of("--partition", partition, f"{_NAME}(,{_NAME})*", allowed)
    checked_cores = None if cores is None else int(_CORES.taken(cores))
    return SlurmOptions(int(_NODES.taken(nodes)), checked_cores, memory, time, partition)


def make_array(job: str, config: Config, python: str, options: SlurmOptions, needs: Needs) -> Array:
    """The array; what the options leave open is as the plan says."""
    if config.intermediate_dir:
        raise ConfigError(
            "intermediate_dir: makes two runs of the job, and the workers of an array join one",
            where="intermediate_dir",
            next_step="leave it out: the dataset is the same; or run the job on one node",
        )
    cores = options.cores or needs.cores
    memory = (options.memory_bytes or needs.memory_bytes + SHELL_BYTES) // MIB * MIB
    return Array(
        name=f"penstock-{plain_name(job, 50)}",
        job=job,
        output=config.output_path if is_served(config.output_path) else os.path.abspath(config.output_path),
        python=python,
        nodes=options.nodes,
        cores=cores,
        memory_bytes=memory,
        time=options.time,
        partition=options.partition,
        projection=needs.projection(options.nodes, cores, memory - SHELL_BYTES),
        exports=config.export is not None,
    )


def seconds_of(text: str) -> int:
    """Seconds of a time as Slurm writes it."""
    found = _TIMES.fullmatch(text.strip())
    if not found:
        raise ConfigError(
            f"--time {text!r} is not a time that Slurm understands",
            where="--time",
            next_step="write minutes (90), hours:minutes:seconds (1:30:00) or days-hours (1-12)",
        )
    parts = [int(found[name]) for name in "abc" if found[name] is not None]
    if found["days"] is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
        return int(found["days"]) * 86400 + hours * 3600 + minutes * 60 + seconds
    hours, minutes, seconds = parts if len(parts) == 3 else [0, *parts, 0][:3]
    return hours * 3600 + minutes * 60 + seconds


def array_facts(array: Array, script: str, needs: Needs) -> dict[str, Any]:
    return {
        "script": script,
        "job": array.job,
        "output": array.output,
        "nodes": array.nodes,
        "cores": array.cores,
        "memory_bytes": array.memory_mib * MIB,
        "worker_memory_bytes": array.worker_mib * MIB,
        "time": array.time,
        "partition": array.partition,
        "python": array.python,
        "projection": array.projection,
        "unknown": needs.unknown,
        "needs_larger_arrays": array.nodes > DEFAULT_ARRAY,
    }
