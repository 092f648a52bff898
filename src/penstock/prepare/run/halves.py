"""Halves: a job that keeps batch files -> the job that makes them, and the one that merges them. Next: entry.py."""

import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from typing import Any

from penstock.base.errors import ConfigError, InputError
from penstock.base.stores import open_store
from penstock.base.stores.store import STATE, Store
from penstock.prepare.job.config import Config
from penstock.prepare.run.resume import refuse_foreign
from penstock.shards.manifest import read_manifest


def halves_of(config: Config, before_redo: Callable[[Config], Any] | None = None) -> Iterator[Config]:
    """The job itself; or, where batch files are kept, the job that makes them, and when it is done, their merge.

    Batch files that are the input are merged as they are. `before_redo` is called with the whole job before batch files
    are replaced: it raises what only the merge would refuse.
    """
    if not config.intermediate_dir:
        yield config
        return
    if all(source.npz for source in config.input):
        yield Config(written(config), folder=config.folder)
        return
    refuse_foreign(open_store(config.output_path))
    if before_redo and open_store(config.batches_path).exists(STATE):
        before_redo(config)
    yield keep_batches(config)
    yield merge_batches(config, config.batches_path)


def keep_batches(config: Config) -> Config:
    if not config.intermediate_dir:
        raise ConfigError(
            "there is no folder for the batch files", next_step="add intermediate_dir: data/intermediate to the job"
        )
    job = {**written(config), "output": config.batches_path, "stages": [], "format": "npz", "export": None}
    return Config(job, folder=config.folder)


def merge_batches(config: Config, folder: str) -> Config:
    """The job with batch files for its input."""
    if not folder:
        raise ConfigError(
            "there is no folder of batch files",
            next_step="penstock merge DIR --config JOB, or intermediate_dir: in the job",
        )
    _refuse_other_batches(open_store(folder))
    source = {
        "npz": os.path.join(folder, "batch_*.npz"),
        "trust_pickle": any(each.trust_pickle for each in config.input),
    }
    return Config({**written(config), "input": source, "format": "arrays"}, folder=config.folder)


def _refuse_other_batches(store: Store) -> None:
    """A folder that penstock wrote has a manifest: all of its batch files must be there, and no others."""
    if not store.exists(STATE):
        return
    manifest = read_manifest(store)
    known = {file.file: file.bytes for shards in manifest.splits.values() for shard in shards for file in shard.files}
    found = {name: store.size(name) for name in store.list() if fnmatch(name, "batch_*.npz")}
    wrong = sorted(name for name in {*known, *found} if known.get(name) != found.get(name))
    if wrong:
        raise InputError(
            f"{len(wrong)} batch files are missing, changed or foreign; the first: {wrong[0]}",
            where=store.root,
            next_step="run the job again with --skip-merge, which writes them again, or move foreign files elsewhere",
        )


def written(config: Config) -> dict[str, Any]:
    """The config as a job file has it, without the batch files that lie between."""
    return config.model_dump(by_alias=True, exclude={"intermediate_dir"}, exclude_unset=True)
