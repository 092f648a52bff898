"""Modal: a job file, its needs and the options of `penstock deploy modal` -> a Container. Next: modal_app.py."""

import math
import os
import re
import sys
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.sizes import format_size
from penstock.deploy.named_files import inside, named_files
from penstock.deploy.needs import Needs
from penstock.deploy.prices import AS_OF, GIB, Cost
from penstock.deploy.ranges import Range, name_of, size_of
from penstock.deploy.writing import own_version, plain_name
from penstock.prepare.job.config import Config

MIB = 1 << 20
HEADROOM_MIB = 512  # of the hard limit, on top of penstock's memory: for Modal's own process and the kernel
FREE_DISK = 512 * GIB  # what every container has without asking
DAY = 86400
RETRIES = 5
SLOWER = 4  # the time limit is so many times the estimate: it only ends jobs that hang
HOUR = 3600

# The client accepts any number; a mistake would show after the upload, or on the bill.
# Modal does not publish the largest number of cores and memory; these bounds are ours.
_CORES = Range("--cores", 1, 64, "cores are physical ones, and a container of Modal has 64 at most")
_MEMORY = Range(
    "--memory", 256 * MIB, 336 * GIB - HEADROOM_MIB * MIB, "a container of Modal has 336 GiB at most", format_size
)
_DISK = Range(
    "--disk",
    FREE_DISK,
    3072 * GIB,
    "every container has 512 GiB without asking; Modal gives at most 3 TiB",
    format_size,
)
_TIMEOUT = Range("--timeout", 60, DAY, "seconds; Modal ends every attempt after 24 hours, and the next one resumes")
_RETRIES = Range("--retries", 0, 10, "Modal starts a function again at most 10 times; preemptions do not count")
_PYTHONS = ((3, 10), (3, 14))  # the images that Modal's client knows
_WHEEL = re.compile(r"penstock-(?P<version>[^-]+)-[^-]+-[^-]+-[^-]+\.whl")


@dataclass(frozen=True)
class Container:
    """The one container that runs the job, and the files that it needs from this machine."""

    name: str
    volume: str
    job: str
    files: tuple[str, ...]
    extras: tuple[str, ...]
    wheel: str | None
    python: str
    cores: int
    memory_mib: int
    disk_mib: int | None
    timeout: int
    retries: int
    projection: dict[str, Any] | None  # of the time; None if the job cannot be planned here

    @property
    def seconds(self) -> float | None:
        return None if self.projection is None else float(self.projection["seconds"])

    @property
    def limit_mib(self) -> int:
        return self.memory_mib + HEADROOM_MIB

    @property
    def requirement(self) -> str:
        """Requirement for pip: this version of penstock with the extras that the job needs."""
        return f"penstock{self.extras_text}=={own_version()}"

    @property
    def extras_text(self) -> str:
        return f"[{','.join(self.extras)}]" if self.extras else ""

    def dollars(self, seconds: float) -> float:
        return Cost(self.cores, self.memory_mib * MIB, (self.disk_mib or 0) * MIB).dollars(seconds)


@dataclass(frozen=True)
class ModalOptions:
    """The options of the command, in their ranges. None: the plan decides."""

    cores: int | None
    memory_bytes: int | None
    disk_bytes: int | None
    timeout: int | None
    retries: int
    volume: str | None
    wheel: str | None

    @property
    def missing(self) -> list[str]:
        """Options that only a plan could replace."""
        given = {"--memory": self.memory_bytes, "--cores": self.cores}
        return [name for name, value in given.items() if value is None]

    @property
    def planned_memory(self) -> str | None:
        """The job's `memory:` in its plan."""
        return str(self.memory_bytes) if self.memory_bytes else None

    @property
    def planned_workers(self) -> str | None:
        return str(self.cores) if self.cores else None


def modal_options(
    cores: int | None = None,
    memory: str | None = None,
    disk: str | None = None,
    timeout: int | None = None,
    retries: int = RETRIES,
    volume: str | None = None,
    wheel: str | None = None,
) -> ModalOptions:
    """Check each option against what Modal takes."""
    memory_bytes = None if memory is None else int(_MEMORY.taken(size_of("--memory", memory), memory))
    disk_bytes = None if disk is None else int(_DISK.taken(size_of("--disk", disk), disk))
    if volume is not None:
        words = "1 to 64 letters, digits and _ . - , and nothing that looks like the id of an app"
        name_of("--volume", volume, r"(?!ap-[a-zA-Z0-9]{22}$)[a-zA-Z0-9_.-]{1,64}", words)
    if wheel is not None:
        _refuse_other_wheel(wheel)
    return ModalOptions(
        cores=None if cores is None else int(_CORES.taken(cores)),
        memory_bytes=memory_bytes,
        disk_bytes=disk_bytes,
        timeout=None if timeout is None else int(_TIMEOUT.taken(timeout)),
        retries=int(_RETRIES.taken(retries)),
        volume=volume,
        wheel=wheel and os.path.abspath(wheel),
    )


def make_container(job: str, config: Config, options: ModalOptions, needs: Needs) -> Container:
    """The container. The plan decides what the options leave open, within Modal's ranges."""
    name = f"penstock-{plain_name(job, 40)}"
    cores = options.cores or int(_CORES.taken(needs.cores))
    memory = options.memory_bytes or int(_MEMORY.taken(needs.memory_bytes))
    disk = options.disk_bytes or (int(_DISK.taken(needs.disk_bytes)) if needs.disk_bytes > FREE_DISK else None)
    projection = needs.projection(1, cores, memory)
    return Container(
        name=name,
        volume=options.volume or name,
        job=os.path.abspath(job),
        files=tuple(named_files(job, config)),
        extras=_extras(config),
        wheel=options.wheel,
        python=_python(),
        cores=cores,
        memory_mib=memory // MIB,
        disk_mib=math.ceil(disk / MIB) if disk else None,
        timeout=options.timeout or _timeout(projection),
        retries=options.retries,
        projection=projection,
    )


def container_facts(container: Container, app: str, config: Config, needs: Needs) -> dict[str, Any]:
    seconds = container.seconds
    return {
        "app": app,
        "job": container.job,
        "name": container.name,
        "volume": container.volume,
        "output": inside(os.path.dirname(container.job), config.output_path, "output"),
        "files": list(container.files),
        "requirement": container.wheel or container.requirement,
        "cores": container.cores,
        "memory_bytes": container.memory_mib * MIB,
        "limit_bytes": container.limit_mib * MIB,
        "disk_bytes": container.disk_mib * MIB if container.disk_mib else None,
        "timeout": container.timeout,
        "retries": container.retries,
        "projection": container.projection,
        "dollars": None if seconds is None else container.dollars(seconds),
        "dollars_per_hour": container.dollars(HOUR),
        "prices_of": AS_OF,
        "unknown": needs.unknown,
    }


def _extras(config: Config) -> tuple[str, ...]:
    """Extras of penstock that the job needs, as far as its keys show."""
    stages = {next(iter(stage)) for stage in config.stages}
    needed = {
        "arrayrecord": config.format == "arrayrecord",
        "hf": any(source.split or source.revision for source in config.input),
        "text": bool(stages & {"tokenize", "pack"}),
    }
    return tuple(name for name, is_needed in needed.items() if is_needed)


def _timeout(projection: dict[str, Any] | None) -> int:
    """A limit far above the estimate: it is there for a job that hangs."""
    return DAY if projection is None else int(min(DAY, max(HOUR, SLOWER * projection["seconds"])))


def _python() -> str:
    here = sys.version_info[:2]
    if not _PYTHONS[0] <= here <= _PYTHONS[1]:
        raise ConfigError(
            f"Modal has images of Python {_PYTHONS[0][0]}.{_PYTHONS[0][1]} to {_PYTHONS[1][0]}.{_PYTHONS[1][1]}, and "
            f"this is Python {here[0]}.{here[1]}",
            next_step="run this command with one of those: a job's functions are compared by their bytecode",
        )
    return f"{here[0]}.{here[1]}"


def _refuse_other_wheel(path: str) -> None:
    found = _WHEEL.fullmatch(os.path.basename(path))
    if not found or not os.path.isfile(path):
        raise ConfigError(
            f"--wheel {path} is not a wheel of penstock",
            where="--wheel",
            next_step="`pip wheel --no-deps -w dist .` in a checkout makes dist/penstock-VERSION-py3-none-any.whl",
        )
    if found["version"] != own_version():
        raise ConfigError(
            f"--wheel {path} is penstock {found['version']}, and this is {own_version()}",
            where="--wheel",
            next_step="use the wheel of this version: another one may write other bytes",
        )
