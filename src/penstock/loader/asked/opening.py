"""Opening: paths -> the mapped shards of datasets, and what they are called. Next: agreement.py."""

import os
import resource
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ConfigError, FileError
from penstock.base.fingerprint import fingerprint
from penstock.base.memory import Budget
from penstock.base.paths import dataset_path
from penstock.base.stores import open_store
from penstock.loader.asked.options import largest_batch
from penstock.loader.tables import Datasets, Shard
from penstock.shards.columns import open_columns
from penstock.shards.dataset import DEFAULT_SPLIT, ArrayRecordDataset, is_bare, open_dataset
from penstock.shards.manifest import Manifest, dataset_id
from penstock.shards.schema import Schema

Path = str | os.PathLike[str]
_SPARE_FILES = 64  # descriptors that the rest of the program may need


@dataclass(frozen=True)
class Opened:
    """One dataset: native ones have shards, .arrayrecord files are read through `old`."""

    path: str
    name: str  # the dataset's id
    schema: Schema = ()
    manifest: Manifest | None = None
    shards: tuple[Shard, ...] = ()
    old: ArrayRecordDataset | None = None

    @property
    def is_bare(self) -> bool:
        """Whether these are .arrayrecord files without a manifest, given by name or by their folder."""
        return self.old is not None and self.old.manifest is None


@dataclass(frozen=True)
class Asked:
    """Open datasets and the options of load(), from which a kind of data is chosen and made."""

    opened: tuple[Opened, ...]
    options: Mapping[str, Any]  # of load(), by name
    budget: Budget
    larger_than_memory: bool

    @property
    def is_old(self) -> bool:
        """Whether the datasets are .arrayrecord files, which have no columns."""
        return self.opened[0].old is not None

    @property
    def schema(self) -> Schema:
        return self.opened[0].schema

    @property
    def holds_samples(self) -> bool:
        """Whether a user's function made the records: their lists are arrays of any length, and no grouped events."""
        manifest = self.opened[0].manifest
        return manifest is not None and any(source.get("function") for source in manifest.config.get("input", ()))

    @property
    def rows(self) -> int:
        """Rows of this rank in the largest batch."""
        return largest_batch(self.options) // int(self.options["world"])

    @property
    def where(self) -> str:
        return self.opened[0].path

    @property
    def shards(self) -> Datasets:
        return [each.shards for each in self.opened]

    def refuse_unused(self, loaded: str, unused: Mapping[str, str]) -> None:
        """Refuse options that mean nothing for this kind of data. The error names the option."""
        for name, about in unused.items():
            if (given := self.options[name]) is not None and (name, given) != ("mix_by", "examples"):
                raise ConfigError(
                    f"{name}={given!r} is an option for {about}, but this dataset is loaded as {loaded}",
                    where=self.where,
                    next_step=f"leave {name}= out",
                )


def open_all(paths: Path | Sequence[Path], split: str | None) -> tuple[Opened, ...]:
    names: list[Any] = list(paths) if isinstance(paths, (list, tuple)) else [paths]
    for name in names:
        if not isinstance(name, (str, os.PathLike)):
            raise ConfigError(
                f"{name!r} is not the path of a dataset",
                where="penstock.load",
                next_step="give a path, or a list of them",
            )
    if not names:
        raise ConfigError("no dataset to load", where="load()", next_step="give a path, or several")
    return tuple(_open(dataset_path(path), split) for path in names)


def split_of(opened: Sequence[Opened], split: str | None) -> str | None:
    """Name of the split that was opened, for the recipe; files without a manifest have none."""
    return None if all(each.is_bare for each in opened) else DEFAULT_SPLIT if split is None else split


def _open(path: str, split: str | None) -> Opened:
    dataset = open_dataset(path, split)
    if not len(dataset):
        place = "" if is_bare(path) else f" in split {(DEFAULT_SPLIT if split is None else split)!r}"
        raise ConfigError(f"there are no records{place}", where=path, next_step="choose another split or file")
    if isinstance(dataset, ArrayRecordDataset):
        facts = [[os.path.basename(file), os.path.getsize(file)] for file in dataset.paths]
        return Opened(path, fingerprint([facts, len(dataset)]), old=dataset)
    store, facts_of_shards = open_store(path), dataset.manifest.splits[dataset.split]
    _allow_files(sum(len(shard.files) for shard in facts_of_shards))
    # Every shard is mapped for as long as the loader lives: a batch may draw from any of them.
    shards = tuple(open_columns(store, shard.files) for shard in facts_of_shards)
    return Opened(path, dataset_id(store), dataset.schema, dataset.manifest, shards)


def _allow_files(count: int) -> None:
    """Raise the limit of open files if needed: every mapped file keeps a descriptor open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len(os.listdir("/proc/self/fd")) + count + _SPARE_FILES if os.path.isdir("/proc/self/fd") else count + 256
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    with suppress(ValueError, OSError):  # refused: said below with the numbers
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return
    raise FileError(
        f"this dataset has {count:,} files to map, and this process may open {soft:,} in all",
        next_step=f"raise the limit (`ulimit -n {wanted}`), or prepare it with larger shards",
    )
