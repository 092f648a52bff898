"""Announced: names of files that will appear beside the manifest, written down before the first of them does.

Should the run be killed and the job be changed before it is resumed, nothing else could tell them from a person's.
"""

import json
from collections.abc import Sequence
from contextlib import suppress

from penstock.base.stores.store import STATE, Store

ANNOUNCED = f"{STATE}/announced.json"


def announce(store: Store, names: Sequence[str]) -> None:
    store.commit_bytes(ANNOUNCED, json.dumps(names).encode())


def remove_announced(store: Store) -> None:
    """Remove the files of an output that is to be replaced, finished or not."""
    if store.exists(ANNOUNCED):
        with suppress(ValueError):  # damaged: then the files stay, and `verify` names them
            for name in json.loads(store.read(ANNOUNCED)):
                store.remove(str(name))
        store.remove(ANNOUNCED)
