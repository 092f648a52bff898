"""Announced: names of files that will appear beside the manifest, written down before the first of them does.

Should the run be killed and the job be changed before it is resumed, nothing else could tell them from a person's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from penstock.base.files import STATE, Folder

ANNOUNCED = f"{STATE}/announced.json"


def announce(folder: Folder, names: Sequence[str]) -> None:
    folder.commit_bytes(ANNOUNCED, json.dumps(names).encode())


def remove_announced(folder: Folder) -> None:
    """Remove the files of an output that is to be replaced, finished or not."""
    if folder.exists(ANNOUNCED):
        with suppress(ValueError):  # damaged: then the files stay, and `verify` names them
            for name in json.loads(folder.read(ANNOUNCED)):
                folder.remove(str(name))
        folder.remove(ANNOUNCED)
