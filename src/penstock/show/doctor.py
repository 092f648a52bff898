"""Doctor: this machine -> what a job may really use here, and what to change before one is run."""

import importlib.metadata
import os
import platform
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import RenderableType
from rich.text import Text

from penstock.base import machine
from penstock.base.memory import own_memory
from penstock.base.sizes import counted, format_size, parse_size
from penstock.base.stores.mounts import file_system
from penstock.prepare.job.config import Config
from penstock.show.cached import cache_words
from penstock.show.tables import make_list, make_table

_NEEDED = ("penstock", "numpy", "pyarrow", "xxhash", "pydantic", "pyyaml", "typer", "rich")
_TEXT = {  # how each is installed
    "tokenizers": "pip install 'penstock[text]'",
    "gigatoken": "pip install 'penstock[text]'",
    "fastokens": "pip install fastokens",
    "datasets": "pip install 'penstock[hf]'",
}
_OPTIONAL = ("numba", "grain", "torch", "jax", "ray", *_TEXT, "transformers", "array-record")
_LEAST_MEMORY = 10**9
_LEAST_SHARED = 256 * 10**6  # Docker gives 64 MB, which PyTorch's worker processes outgrow
_LEAST_FILES = 1024
_LEAST_DISK = 5 * 10**9
_DEFAULT_MEMORY: str = Config.model_fields["memory"].default  # of a job that says nothing


@dataclass(frozen=True)
class Check:
    """One line: what was looked at, what was found, and what to change if that is too little."""

    name: str
    status: Literal["ok", "warn"]
    found: str
    change: str = ""


def _check(name: str, fine: bool, found: str, change: str) -> Check:
    return Check(name, "ok", found) if fine else Check(name, "warn", found, change)


def doctor_facts(output: str) -> dict[str, Any]:
    disks = [
        _disk("output disk", output, "choose another `output:`, or free some space"),
        _disk("temporary disk", tempfile.gettempdir(), "set TMPDIR to a larger disk: plans try the first rows there"),
    ]
    needed = {name: _version(name) or "missing" for name in _NEEDED}
    optional = {name: version for name in _OPTIONAL if (version := _version(name))}
    checks = [*_memory_checks(), _cores(), _open_files(), *disks, _cache(), _text()]
    return {
        "ok": all(check.status == "ok" for check in checks),
        "checks": [asdict(check) for check in checks],
        "versions": {"python": platform.python_version(), **needed, **optional},
        "platform": platform.platform(),
    }


def _memory_checks() -> Iterator[Check]:
    limit = machine.memory_limit()
    yield _check(
        "memory",
        limit.amount >= _LEAST_MEMORY,
        f"{format_size(limit.amount)}, set by {limit.source}",
        "less than 1 GB is tight: give the container more, and set `memory:` in the job",
    )
    available = _available_memory()
    if available is not None:
        fitting = parse_size(_DEFAULT_MEMORY, available) // 10**6
        yield _check(
            "memory available now",
            available >= parse_size(_DEFAULT_MEMORY, limit.amount),
            format_size(available),
            f"other programs hold the rest: set `memory: {fitting}MB` in the job, or end them",
        )
    yield _check(
        "memory of a process",
        own_memory().counted > 0,
        f"{format_size(own_memory().counted)} counted for this one",
        "/proc/self/smaps_rollup tells nothing here, so a run cannot watch its own memory: use a newer kernel",
    )
    yield from _shared_memory()


def _available_memory() -> int | None:
    """MemAvailable of the machine; a container may be allowed less, never more."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # not Linux
        return None
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return min(found[0], machine.memory_limit().amount) if found else None


def _shared_memory() -> Iterator[Check]:
    if not os.path.isdir("/dev/shm"):
        return
    status = os.statvfs("/dev/shm")
    size = status.f_frsize * status.f_blocks
    yield _check(
        "shared memory",
        size >= _LEAST_SHARED,
        f"{format_size(size)} at /dev/shm, {format_size(status.f_frsize * status.f_bavail)} free",
        "preparing needs none, but loaders with worker processes do: docker run --shm-size=1g",
    )


def _cores() -> Check:
    cores = machine.cpu_count()
    installed = os.cpu_count() or cores.amount
    of = f" of {installed}" if installed != cores.amount else ""
    return Check("cores", "ok", f"{cores.amount}{of}, set by {cores.source}")


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    fine = soft == unlimited or soft >= _LEAST_FILES
    found = "unlimited" if soft == unlimited else f"{soft:,}"
    most = "unlimited" if hard == unlimited else f"{hard:,}"
    return _check("open files", fine, f"{found} (ulimit -n), at most {most}", "ulimit -n 4096")


def _disk(name: str, path: str, change: str) -> Check:
    given = Path(path).absolute()
    place = next(each for each in (given, *given.parents) if each.exists())
    kind = file_system(str(place)).kind
    free = machine.free_disk(path)
    found = f"{format_size(free)} free at {place}{f', {kind}' if kind else ''}"
    if not os.access(place, os.W_OK):
        return Check(name, "warn", f"{found}, not writable", "choose a folder that you may write to")
    if kind in ("tmpfs", "ramfs") and name == "output disk":
        return Check(name, "warn", found, f"its files are held in memory, and count against a container; {change}")
    return _check(name, free >= _LEAST_DISK, found, change)


def _cache() -> Check:
    """What is kept for later jobs."""
    found, change = cache_words()
    return _check("cache", not change, found, change)


def _text() -> Check:
    """Libraries for text jobs. A missing one is no warning: other jobs need none."""
    found = {name: _version(name) for name in _TEXT}
    words = [f"{name} {version}" for name, version in found.items() if version]
    missing = ", ".join(f"{name} ({_TEXT[name]})" for name, version in found.items() if not version)
    words += [f"not installed: {missing}"] if missing else []
    return Check("libraries for text", "ok", "; ".join(words))


def _version(name: str) -> str:
    """From the package's metadata, without importing it."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def doctor_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    table = make_table("", "check", "found")
    for check in facts["checks"]:
        warns = check["status"] == "warn"
        table.add_row(Text(check["status"], style="bold yellow" if warns else "green"), check["name"], check["found"])
        if warns:
            table.add_row("", "", Text.assemble(("change: ", "bold"), check["change"]))
    yield table
    yield ""
    yield make_list([("versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items()))])
    warnings = sum(check["status"] == "warn" for check in facts["checks"])
    yield Text(counted(warnings, "warning") if warnings else "no warnings", style="yellow" if warnings else "green")
