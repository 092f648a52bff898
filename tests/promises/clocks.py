"""Clocks: programs whose clock is hours off, by libfaketime. Files keep the times of the real clock, as on a server."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_LIBRARY = "usr/lib/*/faketime/libfaketimeMT.so.1"
# libfaketime 0.9.10 refuses to sleep until a time of the monotonic clock if it does not fake that clock.
_SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select((), (), (), seconds)\n"
_READ = "import os, time; open('file', 'w').close(); os.utime('file'); print(time.time() - os.stat('file').st_mtime)"


def environment(folder: Path, clock: str) -> dict[str, str]:
    """Variables of a program with that clock: `+1h`, `-1h`, or `+1h x1.5`, which runs too fast."""
    site = folder / "site"
    site.mkdir(parents=True, exist_ok=True)
    (site / "sitecustomize.py").write_text(_SLEEP)
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "LD_PRELOAD": str(_library(folder)),
        "FAKETIME": clock,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",  # times of files are the server's
        "FAKE_UTIME": "1",  # in this version, the value that leaves them alone
    }


def off_by(environment: dict[str, str], python: str, folder: Path) -> float:
    """Seconds that the clock of such a program is ahead of a file that it has just touched."""
    done = subprocess.run(
        [python, "-c", _READ], env=environment, cwd=folder, capture_output=True, text=True, timeout=60
    )
    return float(done.stdout)


def _library(folder: Path) -> Path:
    """The installed one, or that of Debian's package, unpacked beside the test."""
    found = [*Path("/").glob(_LIBRARY), *folder.glob(_LIBRARY)]
    if not found and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        subprocess.run(
            ["apt-get", "download", "libfaketime"], cwd=folder, capture_output=True, timeout=300, check=False
        )
        for archive in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
        found = [*folder.glob(_LIBRARY)]
    if not found:
        pytest.skip("libfaketime is not installed here, and `apt-get download libfaketime` fails")
    return found[0]
