"""Exporting: a dataset -> files for another library, by the name of a format. The registry of exports."""

import os
from collections.abc import Callable
from typing import Any, Literal

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.paths import dataset_path, local_path, normal_path
from penstock.shards.foreign.export import SHARD_OPTION, Exported
from penstock.shards.foreign.hdf5 import export_hdf5
from penstock.shards.foreign.hf_dataset import export_hf
from penstock.shards.foreign.maxtext import export_maxtext
from penstock.shards.foreign.megatron import export_megatron
from penstock.shards.foreign.zarr import export_zarr

SHARDED: dict[str, Callable[..., Exported]] = {"hf": export_hf, "maxtext": export_maxtext, "zarr": export_zarr}
FORMATS: dict[str, Callable[..., Exported]] = {"hdf5": export_hdf5, "megatron": export_megatron, **SHARDED}
Format = Literal["hf", "maxtext", "megatron", "zarr", "hdf5"]
_ENDINGS = {"hdf5": ".h5", "hf": "-hf", "maxtext": "-maxtext", "megatron": "-megatron", "zarr": ".zarr"}
_FILES = {"hdf5": "one file", "megatron": "one .bin and one .idx file per split"}


def export(
    path: str | os.PathLike[str],
    to: Format,
    output: str | os.PathLike[str] | None = None,
    split: str | None = None,
    overwrite: bool = False,
    shard_size: str | int | None = None,
) -> Exported:
    """Write a dataset in another format, whole or not at all.

    Args:
        path: Folder that `penstock.run` wrote.
        to: Format: "hf" (a folder for `datasets.load_from_disk`), "maxtext" (ArrayRecord of tf.train.Example),
            "megatron" (.bin and .idx files of documents), "zarr" (a group of arrays, format 3) or "hdf5" (one file).
        output: Folder or file to write. Default: beside the dataset, named like it, with the format's name added.
        split: Only this split. Default: all splits.
        overwrite: Replace an export that is there. Default: False, it is refused.
        shard_size: Size of one file in a folder of several: "200MB" or bytes. Default: 200 MB, for Zarr 16 MB.

    Returns:
        Counts of bytes, files, rows and tokens.
    """
    source, place = dataset_path(path), exported_place(path, to, output)
    options: dict[str, Any] = {} if shard_size is None else {"shard_size": shard_size}
    if options and to not in SHARDED:
        raise ConfigError(
            f"{to} is {_FILES[to]}, whatever its size",
            where=SHARD_OPTION,
            next_step=f"leave it out; {', '.join(SHARDED)} have it",
        )
    return FORMATS[to](source, place, split, overwrite, **options)


def exported_place(path: str | os.PathLike[str], to: str, output: str | os.PathLike[str] | None) -> str:
    """The place to write to: `output`, or beside the dataset, named like it, with the format's name added."""
    if to not in FORMATS:
        raise ConfigError(
            f"there is no export to {to!r}.{did_you_mean(to, list(FORMATS))}",
            where="penstock export --to, or penstock.export(to=)",
            next_step=f"one of: {', '.join(FORMATS)}",
        )
    beside = f"{normal_path(dataset_path(path, os.getcwd()))}{_ENDINGS[to]}"
    return os.path.abspath(local_path(output or beside, is_output=True))
