"""Opening: paths -> the mapped shards of datasets, and what they are called. Next: loader.py."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ConfigError, FileError
from penstock.base.files import Folder
from penstock.base.fingerprint import fingerprint
from penstock.base.paths import local_path
from penstock.shards.columns import Column
from penstock.shards.dataset import ArrayRecordDataset, Dataset, open_dataset
from penstock.shards.manifest import dataset_id
from penstock.shards.schema import Schema

Path = str | os.PathLike[str]
_SPARE_FILES = 64  # descriptors that the rest of the program may need


@dataclass(frozen=True)
class Opened:
    """One dataset: native ones have shards, .arrayrecord files are read through `old`."""

    path: str
    name: str  # the dataset's id
    schema: Schema = ()
    shards: tuple[Mapping[str, Column], ...] = ()
    old: ArrayRecordDataset | None = None


def open_all(paths: Path | Sequence[Path], split: str) -> tuple[Opened, ...]:
    names: list[Any] = list(paths) if isinstance(paths, (list, tuple)) else [paths]
    for name in names:
        if not isinstance(name, (str, os.PathLike)):
            raise ConfigError(
                f"{name!r} is no path of a dataset", where="penstock.load", next_step="give a path, or a list of them"
            )
    if not names:
        raise ConfigError("no dataset to load", where="load()", next_step="give a path, or several")
    opened = tuple(_open(local_path(path), split) for path in names)
    first = opened[0]
    for other in opened[1:]:
        if (other.old is None) != (first.old is None) or other.schema != first.schema:
            raise ConfigError(
                f"{other.path} and {first.path} cannot be mixed: their columns differ",
                where=f"{_columns(first)} against {_columns(other)}",
                next_step="prepare them with the same stages, or load them apart",
            )
    return opened


def _columns(opened: Opened) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in opened.schema) or "an .arrayrecord file"


def _open(path: str, split: str) -> Opened:
    dataset = open_dataset(path, split)
    if not len(dataset):
        raise ConfigError(f"there are no records in split {split!r}", where=path, next_step="choose another split")
    if isinstance(dataset, ArrayRecordDataset):
        facts = [[os.path.basename(file), os.path.getsize(file)] for file in dataset.paths]
        return Opened(path, fingerprint([facts, len(dataset)]), old=dataset)
    return Opened(path, dataset_id(Folder(path)), dataset.schema, _map_shards(dataset))


def _map_shards(dataset: Dataset) -> tuple[Mapping[str, Column], ...]:
    """Every shard of the split, mapped for as long as the loader lives: a batch may draw from any of them."""
    shards = len(dataset.counts)
    _allow_files(sum(len(shard.files) for shard in dataset.manifest.splits[dataset.split]))
    return tuple(dataset.columns(shard) for shard in range(shards))


def _allow_files(count: int) -> None:
    """A mapping keeps a descriptor open; the usual limit of 1,024 can be raised without being root."""
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
