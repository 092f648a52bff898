"""Clearing: removes an earlier result, foreign leftovers, and files between passes."""

import re
from contextlib import suppress

from penstock.base.errors import IntegrityError, OutputError
from penstock.base.events import LIVE
from penstock.base.stores.store import PLAN, STATE, Store
from penstock.prepare.ledger import TASKS, remove_announced
from penstock.prepare.rows.kept import forget_kept
from penstock.shards.manifest import MANIFEST, Manifest, ShardFacts, read_manifest

# Names that only penstock gives; a person's file that lies among them is left alone.
_OURS = re.compile(
    r"[^/]+/\d{5}-of-\d{5}\.[^/]+|batch_+\d+(_+\d+)*\.npz|rejected/((records-\d+-)?\d{5}|files)\.jsonl|artifacts/[^/]+\.json"
    r"|duplicates/\d{5}\.parquet"
)


def is_to_be_replaced(store: Store) -> bool:
    """Whether the output holds a result, or finished tasks of an unfinished run."""
    return store.exists(MANIFEST) or bool(store.list(TASKS))


def end_runs_of_members(store: Store) -> None:
    """Take the output away from workers of other machines, whatever they are doing."""
    store.remove(PLAN)
    store.fence()


def remove_result(store: Store) -> None:
    """Remove the manifest of an output that is to be replaced, and the files that lie beside it: only the manifest, or
    what a run has announced, tells them from a person's."""
    remove_announced(store)
    shards: list[ShardFacts] = []
    if store.exists(MANIFEST):
        with suppress(IntegrityError, OutputError):  # damaged, or of another version: then the files stay
            shards = [shard for shards in read_manifest(store).splits.values() for shard in shards]
    for file in (file for shard in shards for file in shard.files):
        if "/" not in file.file:
            store.remove(file.file)
    store.remove(MANIFEST)


def remove_leftovers(store: Store, manifest: Manifest) -> None:
    """Remove shards and rows set aside by an earlier job in this output that this one does not have."""
    known = {file.file for file in manifest.files}
    for name in store.list():
        if name not in known and _OURS.fullmatch(name):
            store.remove(name)


def remove_scaffolding(store: Store) -> None:
    """Remove what tasks have left for each other: all that lies in the folders of the state but the ledger; and the
    last sample, which a killed run has left."""
    forget_kept()  # a shared folder with a removed file in it that is still open cannot be removed
    store.remove(LIVE)
    for name in store.entries(STATE):
        if name.endswith("/") and name != f"{TASKS}/":
            store.remove(name)
    store.sweep(whole=True)
