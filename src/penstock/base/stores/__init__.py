"""Stores: the place of a dataset, as a job or a call has it -> the store that serves it, or a refusal by name."""

import os
import re
from collections.abc import Callable

from penstock.base.errors import ConfigError, FileError
from penstock.base.stores.local import LocalStore
from penstock.base.stores.shared import SharedStore, is_shared_root
from penstock.base.stores.store import Store

SERVED: dict[str, Callable[[str], Store]] = {}  # by the scheme of a URL, such as "s3"; paths are served by LocalStore

# One slash too: `pathlib.Path` and `os.path.normpath` make s3:/bucket of s3://bucket.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)


def open_store(place: str | os.PathLike[str]) -> Store:
    """The store at a path or URL, or of a root. It need not exist yet. A URL that no store serves is refused."""
    text = os.fspath(place)
    if is_shared_root(text):
        return SharedStore(text)
    if is_served(text):
        return SERVED[text.partition(":")[0]](text)
    refuse_url(text)
    return LocalStore(os.path.abspath(text))


def is_served(place: str) -> bool:
    """Whether it is a URL that a store serves: such a place is no path, and stays as it was written."""
    url = _URL.match(place)
    return url is not None and url[1] in SERVED


def refuse_url(text: str, is_output: bool = False) -> None:
    """Refuse a URL where a path of this machine is needed."""
    url = _URL.match(text)
    if not url:
        return
    scheme, rest = url.groups()
    next_step = "copy the data to a disk of this machine, or mount it, and give that path"
    if scheme == "file":
        next_step = f"write the path itself: /{rest.lstrip('/')}"
    elif is_output:
        next_step = "write to a folder of this machine, then upload it"
    elif scheme == "hf":
        next_step = "name a dataset of the hub as org/name, with `split:`"
    raise ConfigError(
        f"{text!r} is a URL; penstock reads and writes only local paths",
        next_step=next_step,
    )


def refuse_file(place: str) -> None:
    """Raise FileError if a file stands where the folder of a dataset, or one above it, must be."""
    above = place
    while not is_served(place) and above and not os.path.lexists(above):
        above = os.path.dirname(above)
    if os.path.isfile(above):
        name = "this is" if above == place else f"{above} is"
        raise FileError(
            f"`output:` must be a folder, but {name} a file",
            where=place,
            next_step="choose another `output:`, or move the file away",
        )
