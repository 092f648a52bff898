"""Stores: a path as a job or a call has it -> the store that serves it. A new kind of store is chosen here."""

from __future__ import annotations

import os

from penstock.base.paths import refuse_url
from penstock.base.stores.local import LocalStore
from penstock.base.stores.store import Store


def open_store(path: str | os.PathLike[str]) -> Store:
    """The store at `path`, which need not be there yet. A URL that no store serves is refused by name."""
    refuse_url(os.fspath(path))
    return LocalStore(os.path.abspath(path))
