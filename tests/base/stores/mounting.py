"""Mounting: a folder through a FUSE mount, as containers see a shared folder. Tests skip without bindfs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, at: Path) -> Iterator[Path]:
    """`folder` once more, in a mount of its own: a lock taken here is not seen there."""
    if not shutil.which("bindfs") or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs bindfs and /dev/fuse")
    at.mkdir()
    done = subprocess.run(["bindfs", str(folder), str(at)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"bindfs cannot mount here: {done.stderr}")
    try:
        yield at
    finally:
        subprocess.run(["fusermount3", "-u", "-z", str(at)], check=True)
