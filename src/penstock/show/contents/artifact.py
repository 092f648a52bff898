"""Artifact: the name of a file that a job left beside its shards -> its bytes, if it is as it was written."""

from penstock.base.fingerprint import digest
from penstock.base.stores.store import Store
from penstock.shards.columns import damaged_file
from penstock.shards.manifest import Manifest


def read_artifact(store: Store, manifest: Manifest, name: str) -> bytes | None:
    """None where the job left no such file."""
    found = [file for file in manifest.artifacts if file.file == name]
    if not found:
        return None
    data = store.read(name) if store.exists(name) else b""
    if digest(data) != found[0].digest:
        raise damaged_file(name, "is not the file that was written")
    return data
