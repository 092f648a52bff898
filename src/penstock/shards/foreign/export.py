"""Export: a finished dataset -> a folder of files that other programs read, which appears whole or not at all.

What hf_dataset.py, maxtext.py, megatron.py and zarr.py have in common. A folder is written beside its place, under a
name that a later export of the same place finds and clears; its last file, export.json, tells that penstock wrote it. A
folder of Zarr has that in the zarr.json of its root.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TypeVar

from penstock.base.errors import ConfigError, IntegrityError, OutputError, file_error
from penstock.base.files import WriteFile
from penstock.base.shown import Shown
from penstock.base.sizes import format_size, parse_size
from penstock.base.stores import open_store
from penstock.base.stores.local import LocalStore
from penstock.shards.columns import Column
from penstock.shards.dataset import Dataset, open_dataset
from penstock.shards.foreign.arrayrecord import FORMAT as ARRAYRECORD
from penstock.shards.manifest import Manifest, dataset_id, read_manifest
from penstock.shards.origins import has_origins, without_origins
from penstock.shards.schema import Schema

SHARD_SIZE = "200MB"
SHARD_OPTION = "--shard-size, shard_size="  # for errors
MARK, ZARR_MARK = "export.json", "zarr.json"
MARKS = (MARK, ZARR_MARK)
_BESIDE, _BEFORE = ".penstock-part", ".penstock-old"
_MOST_FILES = 10_000
_LARGER_SHARDS = "1GB"


@dataclass
class Written:
    """Counts of one split so far; `tokens` is None if it has no column of them."""

    rows: int = 0
    tokens: int | None = None
    files: int = 0


@dataclass(frozen=True, repr=False)
class Exported(Shown):
    """Counts of a finished export. `penstock.export` returns it.

    Attributes:
        dataset: Id of the dataset that was exported.
        bytes: Size of the export.
        files: Number of its files.
        rows: Number of rows, by split.
        tokens: Number of tokens, by split; empty without a column of tokens.
    """

    dataset: str
    bytes: int
    files: int
    rows: Mapping[str, int]
    tokens: Mapping[str, int]

    def facts(self) -> dict[str, str]:
        tokens = {"tokens": _by_split(self.tokens)} if self.tokens else {}
        files = f"{self.files:,}, {format_size(self.bytes)}"
        return {"rows": _by_split(self.rows), **tokens, "files": files, "dataset": self.dataset}


def _by_split(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} in {split}" for split, count in counts.items())


def option(name: str, value: str | bool) -> str:
    """An option as it is written on the command line and in Python, for errors: both ways lead to an export."""
    flag = f"--{name.replace('_', '-')}"
    return f"{flag} (in Python: {name}=True)" if value is True else f'{flag} {value} (in Python: {name}="{value}")'


# What there is, and what cannot be, before anything is written.


def open_splits(path: str, split: str | None, to: str) -> dict[str, Dataset]:
    """The splits of a dataset that has columns, or the one asked for. Origins mean nothing elsewhere: they stay."""
    manifest = read_manifest(open_store(path))
    if manifest.config.get("format") == ARRAYRECORD:
        raise ConfigError(
            f"records of .arrayrecord files have no columns of their own, and an export to {to} is made of columns",
            where=os.path.abspath(path),
            next_step="make the dataset without `format: arrayrecord`",
        )
    columns = [field.name for field in without_origins(manifest.schema)] if has_origins(manifest.schema) else None
    names = [split] if split is not None else manifest.splits
    opened = {name: open_dataset(path, name, columns) for name in names}
    return {name: dataset for name, dataset in opened.items() if isinstance(dataset, Dataset)}


def shard_bytes(shard_size: str | int, splits: Mapping[str, Dataset]) -> int:
    """The most bytes of a file. Refuses words that are no size, and sizes that make very many files."""
    try:
        most = parse_size(shard_size)
    except ValueError as error:
        raise ConfigError(str(error), where=SHARD_OPTION, next_step=option("shard_size", SHARD_SIZE)) from error
    for name, dataset in splits.items():
        size = sum(file.bytes for shard in dataset.manifest.splits[name] for file in shard.files)
        if size // most > _MOST_FILES:
            raise ConfigError(
                f"split {name!r} has {format_size(size)}: in files of {format_size(most)} that would be about "
                f"{size // most:,} files, more than {_MOST_FILES:,}",
                where=SHARD_OPTION,
                next_step=f"a larger one, such as {option('shard_size', _LARGER_SHARDS)}",
            )
    return most


def refuse_target(path: str, target: str, overwrite: bool) -> None:
    """Refuse a place inside the dataset or around it, and a folder that is there, unless it is ours to replace."""
    dataset, place = os.path.realpath(path), os.path.realpath(target)
    if os.path.commonpath([dataset, place]) in (dataset, place):
        raise OutputError(
            "the export must not be inside the dataset, or contain it",
            where=target,
            next_step="write it beside the dataset's folder",
        )
    if os.path.lexists(target) and not os.path.isdir(target):
        raise OutputError(
            "this is a file, but the export is a folder",
            where=target,
            next_step=f"another {option('output', 'PATH')}",
        )
    if not os.path.isdir(target) or not os.listdir(target):
        return
    if not overwrite:
        raise OutputError(
            "this folder exists already",
            where=target,
            next_step=f"another {option('output', 'PATH')}, or {option('overwrite', True)}",
        )
    if not _is_ours(target):
        raise OutputError(
            f"this folder is not an export of penstock (it has no {MARK}), and is not replaced",
            where=target,
            next_step=f"another {option('output', 'PATH')}, or remove the folder yourself",
        )


def refuse_nulls(schema: Schema, columns: Mapping[str, Column], to: str, where: str) -> None:
    for field in schema:
        if f"{field.name}/valid" in columns or f"{field.name}/values/valid" in columns:
            raise ConfigError(
                f"column {field.name!r} has nulls, and {to} has no place for them",
                where=where,
                next_step="filter them out or fill them when the dataset is made, or leave the column out with "
                "`select:`",
            )


def _is_ours(target: str) -> bool:
    if os.path.isfile(os.path.join(target, MARK)):
        return True
    store = LocalStore(target)
    return store.exists(ZARR_MARK) and is_mark(store.read(ZARR_MARK))


def is_mark(data: bytes) -> bool:
    """Whether these are the bytes of a last file of ours. Any program may have a file of that name."""
    try:
        facts = json.loads(data)
    except (ValueError, RecursionError):
        return False
    if not isinstance(facts, dict):
        return False
    inner = facts.get("attributes")
    return any({"dataset", "to", "splits"} <= set(each) for each in (facts, inner) if isinstance(each, dict))


# Writing.


P = TypeVar("P", bound=Sized)  # a piece: bytes that stay together, as bytes or as a buffer of Arrow's


@dataclass(frozen=True)
class Overhead:
    """Bytes that a format writes beside the pieces: in each file, and with each piece."""

    file: int = 0
    piece: int = 0


NO_OVERHEAD = Overhead()


def cut(pieces: Iterator[P], most: int, overhead: Overhead = NO_OVERHEAD) -> Iterator[Iterator[P]]:
    """Pieces in groups of at most `most` bytes, or of one that is larger; without pieces, one group without any.

    Each group has to be taken whole before the next.
    """
    following = next(pieces, None)

    def group() -> Iterator[P]:
        nonlocal following
        room, is_first = most - overhead.file, True
        while following is not None and (is_first or len(following) + overhead.piece <= room):
            room, is_first = room - len(following) - overhead.piece, False
            yield following
            following = next(pieces, None)

    yield group()
    while following is not None:
        yield group()


def write_files(
    store: LocalStore,
    stem: str,
    suffix: str,
    pieces: Iterator[P],
    most: int,
    write: Callable[[WriteFile, Iterator[P]], None],
    overhead: Overhead = NO_OVERHEAD,
) -> list[str]:
    """Write pieces into `{stem}-00000-of-00004{suffix}` and so on, `most` bytes in each; the names, one at least."""
    count = 0
    for group in cut(pieces, most, overhead):
        with new_file(store, f"{stem}-{count:05d}") as file:
            write(file, group)
        count += 1
    names = [f"{stem}-{number:05d}-of-{count:05d}{suffix}" for number in range(count)]
    store.publish({f"{stem}-{number:05d}": name for number, name in enumerate(names)})
    return names


@contextmanager
def new_file(store: LocalStore, name: str) -> Iterator[WriteFile]:
    """A file of the folder, synced when it is whole."""
    file = store.new_file(name)
    try:
        yield file
        file.sync()
    finally:
        file.close()


def write_json(store: LocalStore, name: str, facts: object) -> None:
    with new_file(store, name) as file:
        file.write(json.dumps(facts, indent=2, ensure_ascii=False).encode() + b"\n")


@contextmanager
def written_beside(target: str) -> Iterator[LocalStore]:
    """A folder under another name; it is renamed, or removed if something goes wrong."""
    parent, name = LocalStore(os.path.dirname(target)), os.path.basename(target)
    beside = LocalStore(f"{target}{_BESIDE}")
    with _held(beside.root):
        for left in beside.entries():  # by an export that was killed
            beside.remove(left)
        try:
            yield beside
            # A folder that holds something cannot be replaced in one step. Between these two the place is empty.
            parent.remove(f"{name}{_BEFORE}")
            if os.path.isdir(target) and os.listdir(target):
                parent.publish({name: f"{name}{_BEFORE}"})
            parent.publish({f"{name}{_BESIDE}": name})
            parent.remove(f"{name}{_BEFORE}")
        finally:
            parent.remove(f"{name}{_BESIDE}")


@contextmanager
def _held(path: str) -> Iterator[None]:
    """Make a folder that nobody else may write to; the kernel lets go of it when this process ends."""
    try:
        if not os.path.isdir(path):
            os.mkdir(path)
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise file_error(error, "write", path) from error
    try:
        _lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.stat(path)):
            raise FileNotFoundError
    except (BlockingIOError, FileNotFoundError):  # held, or renamed a moment ago
        raise OutputError(
            "another export writes to the same place",
            where=path,
            next_step=f"wait for it, or give another {option('output', 'PATH')}",
        ) from None


def _leave_mark(store: LocalStore, facts: Mapping[str, object]) -> None:
    write_json(store, MARK, facts)


def finish(
    store: LocalStore,
    path: str,
    to: str,
    written: Mapping[str, Written],
    leave_mark: Callable[[LocalStore, Mapping[str, object]], None] = _leave_mark,
) -> Exported:
    """Hold what was written against the manifest, and leave our mark: the last file of an export."""
    source = open_store(path)
    _refuse_other_counts(read_manifest(source), written, source.root)
    name = dataset_id(source)
    splits = {split: asdict(each) for split, each in written.items()}
    leave_mark(store, {"dataset": name, "to": to, "splits": splits})
    return Exported(
        dataset=name,
        bytes=sum(store.size(file) for file in store.list()),
        files=sum(each.files for each in written.values()),
        rows={split: each.rows for split, each in written.items()},
        tokens={split: each.tokens for split, each in written.items() if each.tokens is not None},
    )


def _refuse_other_counts(manifest: Manifest, written: Mapping[str, Written], where: str) -> None:
    """Rows of each split; tokens of all together, where the dataset was packed and its account has them."""
    counted = [(f"rows of split {split!r}", each.rows, manifest.records(split)) for split, each in written.items()]
    if manifest.tokens and manifest.tokens[-1].step == "pack" and set(written) == set(manifest.splits):
        counted.append(("tokens", sum(each.tokens or 0 for each in written.values()), manifest.tokens[-1].given))
    for what, found, expected in counted:
        if found != expected:
            raise IntegrityError(
                f"{found:,} {what} were written, and the manifest's account has {expected:,}",
                where=where,
                next_step="penstock verify says what is damaged",
            )
