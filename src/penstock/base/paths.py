"""Paths: a path as it was written in a job, a command or a call -> a path of this machine."""

import glob
import os
import re

from penstock.base.errors import ConfigError
from penstock.base.stores import is_served, refuse_url

_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|\{\w+\})[^/]*")


def local_path(written: str | os.PathLike[str], folder: str = "", is_output: bool = False) -> str:
    """The path that was written, with `~` expanded; a relative one starts at `folder`.

    Refuses what would otherwise become a folder of a strange name: URLs, unknown users, and `$NAME`, unless
    something of that very name is there.
    """
    text = os.fspath(written)
    refuse_url(text, is_output)
    path = os.path.join(folder, _encodable(_with_home(text)))
    _refuse_variable(text, path)
    return path


def dataset_path(written: str | os.PathLike[str], folder: str = "", is_output: bool = False) -> str:
    """The place of a dataset: like `local_path`, but a URL that a store serves stays as it was written."""
    text = os.fspath(written)
    return text if is_served(text) else local_path(text, folder, is_output)


def normal_path(place: str) -> str:
    """A path without `..` and doubled slashes; a URL that a store serves stays as it is."""
    return place if is_served(place) else os.path.normpath(place)


def hidden_matches(pattern: str) -> list[str]:
    """Other paths that match a pattern, where something has the pattern itself as its name: by a shell's `> a*.csv`."""
    if not glob.has_magic(pattern) or not os.path.lexists(pattern):
        return []
    return sorted(each for each in glob.iglob(pattern, recursive=True) if each != pattern)


def _with_home(text: str) -> str:
    path = os.path.expanduser(text)
    if path.startswith("~"):
        user = path[1:].partition("/")[0]
        raise ConfigError(
            f"{text!r}: `~{user}` cannot be expanded: there is no user {user!r}",
            next_step=f"write the whole path; for a name that begins with ~ write ./{text}",
        )
    return path


def _encodable(path: str) -> str:
    """Names on disk are bytes, and UTF-8 nearly everywhere, also where the locale (LC_ALL=C) has no word for them."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return os.fsdecode(path.encode("utf-8", "surrogateescape"))
    return path


def _refuse_variable(text: str, path: str) -> None:
    for found in _VARIABLE.finditer(path):
        if not os.path.lexists(path[: found.end()]):
            raise ConfigError(
                f"{text!r}: ${found.group(1)} is not expanded, and no such path exists",
                next_step="write the path itself, or give it on the command line, where the shell expands it",
            )
