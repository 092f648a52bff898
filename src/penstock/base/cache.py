"""Cache: the folder of this user that keeps what is slow to make and can be made again, such as compiled kernels.

A file appears whole or not at all, and begins with the digest of the rest: any number of processes may write at once,
and a damaged file is made again.
"""

import os
import re
import shutil
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.base.errors import FileError, file_error
from penstock.base.files import unique_name
from penstock.base.fingerprint import digest

VARIABLE = "PENSTOCK_CACHE_DIR"
_OWN = 0o700
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_DIGEST = 32  # characters
_UNUSED_SECONDS = 30 * 24 * 3600  # what no process has used for so long goes: it may be of another version
KERNELS, PROOFS = "kernels", "proofs"
_KINDS = {KERNELS: "compiled kernels", PROOFS: "comparisons of tokenizers"}
_OURS = re.compile(r"([0-9a-f]+-){0,2}[0-9a-f]{32}")  # a digest; before it, `unique_name` of one half written


def cache_folder(name: str) -> Path:
    """A folder in the cache of this user, made if it is missing. A FileError says why it cannot be used.

    What lies there is trusted, and machine code among it is run. So nobody else may own it or write to it.
    """
    folder = cache_root()
    _take(folder)
    folder /= name
    _take(folder)
    return folder


def read_kept(file: Path) -> bytes | None:
    """What was kept there. None if there is no such file, or one that is not what was written."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    own, kept = data[:_DIGEST], data[_DIGEST:]
    return kept if own == digest(kept).encode() else None


def keep(file: Path, data: bytes) -> None:
    """Write the file whole or not at all. A FileError says why it cannot be written."""
    beside = file.with_name(unique_name(file.name))
    try:
        beside.write_bytes(digest(data).encode() + data)
        os.replace(beside, file)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise file_error(error, "write to the cache", str(file.parent)) from error


def mark_used(entry: Path) -> None:
    with suppress(OSError):  # what cannot be written can still be read
        os.utime(entry)


def forget_unused(folder: Path) -> None:
    """Remove entries that penstock made in a folder and no process has used for 30 days. Other files stay."""
    old = time.time() - _UNUSED_SECONDS
    for entry in _entries(folder):
        with suppress(OSError):  # another process was faster
            if entry.stat().st_mtime < old:
                _remove(entry)


@dataclass(frozen=True)
class Holding:
    """One kind of what the cache holds."""

    what: str
    files: int
    bytes: int


def held() -> list[Holding]:
    """What the cache holds, by kind. Makes no folder."""
    return [_holding(name) for name in _KINDS]


def why_unusable() -> FileError | None:
    """What is wrong with the folder of the cache, if it is there. Makes none."""
    folder = cache_root()
    if not folder.exists():
        return None
    try:
        _take(folder)
    except FileError as error:
        return error
    return None


def clear() -> list[Holding]:
    """Remove all that penstock has kept, and nothing else that lies there. Returns what was removed."""
    before = held()
    for name in _KINDS:
        for entry in _entries(cache_root() / name):
            _remove(entry)
    return [
        Holding(was.what, was.files - left.files, was.bytes - left.bytes)
        for was, left in zip(before, held(), strict=True)
    ]


def _holding(name: str) -> Holding:
    sizes = []
    for file in (
        each for entry in _entries(cache_root() / name) for each in (entry, *entry.rglob("*")) if each.is_file()
    ):
        with suppress(OSError):  # another process has just removed it
            sizes.append(file.stat().st_size)
    return Holding(_KINDS[name], len(sizes), sum(sizes))


def _entries(folder: Path) -> list[Path]:
    with suppress(OSError):  # there is no such folder, or nobody may list it
        return sorted(each for each in folder.iterdir() if _OURS.fullmatch(each.name))
    return []


def _remove(entry: Path) -> None:
    if entry.is_dir():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


def cache_root() -> Path:
    if given := os.environ.get(VARIABLE):
        return Path(given).expanduser().absolute()
    above = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(above) if os.path.isabs(above) else Path("~/.cache").expanduser().absolute()) / "penstock"


def _take(folder: Path) -> None:
    """Make the folder, or see that it is this user's own. One that cannot be written can still be read."""
    try:
        folder.mkdir(mode=_OWN, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise file_error(error, "make the cache", str(folder)) from error
    if found.st_uid != os.geteuid():
        raise FileError(
            f"the cache belongs to user {found.st_uid}, and this is user {os.geteuid()}",
            where=str(folder),
            next_step=f"{VARIABLE}=a folder of your own",
        )
    if found.st_mode & _OTHERS_WRITE:
        raise FileError(
            f"others may write to the cache: its mode is {stat.S_IMODE(found.st_mode):04o}",
            where=str(folder),
            next_step=f"chmod 700 {folder}, or {VARIABLE}=a folder of your own",
        )
