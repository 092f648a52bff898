"""Machine: the memory, cores and disk that this process may use, including the cgroup limits of a container."""

import os
import platform
import resource
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

_NO_LIMIT = 1 << 60  # cgroup v1 reports about 2^63 for "none"


@dataclass(frozen=True)
class Limit:
    """A limit and who sets it: `Limit(2_000_000_000, "cgroup v2 /app")`."""

    amount: int
    source: str


def memory_limit() -> Limit:
    """The smallest of physical memory and every cgroup limit above this process."""
    limits = [Limit(physical_memory(), "physical memory"), *memory_limits(cgroup_folders("memory"))]
    return min(limits, key=lambda limit: limit.amount)


def cpu_count() -> Limit:
    """Whole cores this process may use: the smaller of CPU affinity and cgroup quota, at least one."""
    if hasattr(os, "sched_getaffinity"):
        cores = Limit(len(os.sched_getaffinity(0)), "CPU affinity")
    else:
        cores = Limit(os.cpu_count() or 1, "CPU count")
    return min([cores, *cpu_limits(cgroup_folders("cpu"))], key=lambda limit: limit.amount)


def physical_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_disk(path: str) -> int:
    """Free bytes where `path` is or will be."""
    place = Path(path).absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def open_files_limit() -> int:
    """How many files this process may have open at a time."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def boot_id() -> str:
    """A name of this machine's time since it was started; none where the system gives it none."""
    return _read(Path("/proc/sys/kernel/random/boot_id"))


def process_age() -> float:
    """Seconds since this process started, or 0 if the system does not say."""
    with suppress(OSError, ValueError):
        ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
    return 0.0


@cache
def processor() -> str:
    """Model and abilities of the first core, as far as the system tells them."""
    wanted = ("model name", "flags", "Features", "CPU part")  # the last two: ARM
    with suppress(OSError), open("/proc/cpuinfo") as file:
        first = takewhile(str.strip, file)  # one paragraph per core
        return "\n".join(line.strip() for line in first if line.startswith(wanted))
    return platform.processor() or platform.machine()


def describe() -> dict[str, str | int]:
    """Facts about the machine for run.json."""
    memory, cores = memory_limit(), cpu_count()
    return {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "memory_limit_bytes": memory.amount,
        "memory_limit_source": memory.source,
        "cores": cores.amount,
    }


Folders = list[tuple[str, Path]]


def cgroup_folders(controller: str, root: Path | None = None, table: str | None = None) -> Folders:
    """(version, folder) of each cgroup this process is in for `controller`, from its own up to the root."""
    root = root or Path("/sys/fs/cgroup")
    if table is None:
        try:
            table = Path("/proc/self/cgroup").read_text()
        except OSError:  # not Linux: there are no cgroups to ask
            return []
    folders: Folders = []
    for line in table.splitlines():
        _, names, path = line.split(":", 2)
        if names == "":
            folders += [("v2", folder) for folder in _upwards(root, path)]
        elif controller in names.split(","):
            folders += [("v1", folder) for folder in _upwards(root / controller, path)]
    return folders


def _upwards(top: Path, path: str) -> list[Path]:
    """A limit anywhere above counts. Inside a container the path may not be visible; its top is."""
    folder = top / path.lstrip("/")
    return [each for each in (folder, *folder.parents) if each.is_relative_to(top) and each.is_dir()]


def memory_limits(folders: Folders) -> list[Limit]:
    limits = []
    for version, folder in folders:
        text = _read(folder / ("memory.max" if version == "v2" else "memory.limit_in_bytes"))
        if text.isdigit() and int(text) < _NO_LIMIT:
            limits.append(Limit(int(text), f"cgroup {version} {folder}"))
    return limits


def cpu_limits(folders: Folders) -> list[Limit]:
    limits = []
    for version, folder in folders:
        if version == "v2":
            words = _read(folder / "cpu.max").split()
        else:
            words = [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit():
            limits.append(Limit(max(1, int(words[0]) // int(words[1])), f"cgroup {version} {folder}"))
    return limits


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # that controller is not there, so it limits nothing
        return ""
