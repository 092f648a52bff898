"""Cache: the folder of this user that keeps what is slow to make and can be made again, such as compiled kernels."""

import os
import stat
from pathlib import Path

from penstock.base.errors import FileError, file_error

VARIABLE = "PENSTOCK_CACHE_DIR"
_OWN = 0o700
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder(name: str) -> Path:
    """A folder in the cache of this user, made if it is missing. A FileError says why it cannot be used.

    What lies there is trusted, and machine code among it is run. So nobody else may own it or write to it.
    """
    folder = _root()
    _take(folder)
    folder /= name
    _take(folder)
    return folder


def _root() -> Path:
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
