"""Dataset inputs: an input that is a dataset already, of penstock or of another library -> files of a split.

Part of finding.py, with its rules against reading what a job writes.
"""

import os
from collections.abc import Iterable

from penstock.base.errors import InputError
from penstock.base.paths import local_path
from penstock.prepare.job.config import Config
from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.sources import File
from penstock.prepare.sources.datasets import prepared
from penstock.prepare.sources.datasets.mds_index import INDEX, is_mds, refuse_without_shards, shard_files
from penstock.prepare.sources.datasets.saved import UNNAMED, is_saved, saved_files, saved_name
from penstock.prepare.sources.row_range import RowRange
from penstock.prepare.survey import listing


def row_range(config: Config, source: SourceConfig) -> RowRange | None:
    """Some rows of the split. What was saved as `train[:10%]` is all of that."""
    if not source.row_range:
        return None
    place = local_path(source.patterns[0], config.folder)
    is_all = source.row_range and is_saved(place) and saved_name(place) == source.split
    return None if is_all else source.row_range


def prepared_split(config: Config, number: int, source: SourceConfig, place: str) -> tuple[str, str]:
    """(location, format) of the split of a dataset that penstock prepared."""
    where = f"input[{number}]: {place}"
    if source.function or source.format != "auto":
        option = "function" if source.function else "format"
        raise InputError(
            f"`{option}:` is an option for files, but this is a dataset that penstock prepared",
            where=where,
            next_step="leave it out: records are read as they are; `- module:function` in `stages:` changes them"
            if source.function
            else "leave it out: a dataset has its own types",
        )
    for own in written_by(config):
        if overlap(own, place):
            raise InputError(
                "the output must not be inside the input dataset, or contain it",
                where=f"{where}, and the job writes {own}",
                next_step="choose another `output:`, or `export: {path: ...}`",
            )
    return prepared.split_location(place, source.whole_split), prepared.FORMAT


def listed_files(number: int, source: SourceConfig, place: str) -> list[str] | None:
    """The files of a folder that says itself which they are: of the `datasets` library, or of MosaicML Streaming."""
    if is_saved(place):
        return saved_files(place, source.whole_split)
    if source.format in ("auto", "mds"):
        refuse_without_shards(place)
        if is_mds(place):
            refuse_split_of_files(number, source)
            return shard_files(place)
    return None


def refuse_inner_shards(folder: str, files: Iterable[str]) -> None:
    """Refuse a folder around datasets of MosaicML Streaming: which of its files are read, their own folders say."""
    for file in files:
        if os.path.basename(file) != INDEX:
            continue
        refuse_without_shards(os.path.dirname(file))
        if is_mds(os.path.dirname(file)):
            raise InputError(
                "a folder inside of this one is a dataset of MosaicML Streaming",
                where=f"{os.path.dirname(file)}, in {folder}",
                next_step="name that folder itself; for several, `path: [mds/a, mds/b]`",
            )


def refuse_split_of_files(number: int, source: SourceConfig) -> None:
    if source.whole_split not in (None, UNNAMED):
        raise InputError(
            f"files have no split {source.whole_split!r}: all their rows are `split: {UNNAMED}`",
            where=f"input[{number}]",
            next_step="name the files of that split, or a folder, in which the `datasets` library finds splits",
        )


def library_split(config: Config, number: int, source: SourceConfig, pattern: str) -> list[File]:
    from penstock.prepare.sources.hub import Split, hub_files

    assert source.whole_split
    if "+" in source.whole_split:
        each = " and ".join(f"`split: {part.strip()}`" for part in source.whole_split.split("+"))
        raise InputError(
            f"`split: {source.whole_split}` names several splits, but a source reads one",
            where=f"input[{number}]",
            next_step=f"make each a separate source in `input:`, with {each}",
        )
    place = local_path(pattern, config.folder)
    path = place if os.path.isdir(place) else pattern
    for own in written_by(config) if path == place else ():
        if overlap(own, place):
            raise InputError(
                "the job writes into the folder of this split, and the next run would read that",
                where=f"input[{number}]: {place}, and the job writes {own}",
                next_step="choose an `output:` or `export: {path: ...}` outside of that folder",
            )
    if path == place:
        _refuse_outputs(place)
    return hub_files(number, Split(path, source.whole_split, source.name, source.revision))


def _refuse_outputs(folder: str) -> None:
    """The `datasets` library takes every file of a folder, also what penstock wrote there."""
    refuse_dataset(folder, reads_batches=False)
    tally = listing.Tally()
    for _ in listing.files_below(folder, frozenset(), False, tally):
        pass
    for each in tally.unread():
        if each.is_output:
            raise InputError(
                f"the folder of this split holds a {each.what}, whose files the `datasets` library would read too",
                where=f"{each.first}, in {folder}",
                next_step="move it elsewhere, or name the files of the split: `path: 'folder/train-*.parquet'`",
            )


def refuse_dataset(folder: str, reads_batches: bool) -> None:
    if listing.written_by_penstock(folder) and not (reads_batches and listing.is_finished_batches(folder)):
        if reads_batches and listing.holds_unfinished_batches(folder):
            raise InputError(
                "the job that writes batch files to this folder is not finished",
                where=folder,
                next_step="finish it: run its job again",
            )
        if listing.is_finished_batches(folder):
            raise InputError(
                "this folder holds batch files, which `path:` does not read",
                where=folder,
                next_step="name it with `npz:`, or merge it with `penstock merge`",
            )
        raise InputError(
            "this dataset of penstock is not finished",
            where=folder,
            next_step="finish it: run its job again; then the dataset can be read",
        )


def written_by(config: Config) -> tuple[str, ...]:
    """The folders that the job itself fills: inside the input they must not feed it."""
    return tuple(filter(None, (config.output_path, config.export_path)))


def overlap(written: str, root: str) -> bool:
    return is_below(written, root) or is_below(os.path.join(root, "file"), written)


def is_below(path: str, folder: str) -> bool:
    return os.path.abspath(path).startswith(os.path.join(os.path.abspath(folder), ""))
