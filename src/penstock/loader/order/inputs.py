"""Inputs: inputs= of loader.origin(k) -> the folders of the input of each dataset. Used by origins.py."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.paths import dataset_path, normal_path
from penstock.loader.batches import Inputs

_WHERE = "loader.origin(inputs=...)"


def inputs_by_dataset(given: Inputs | None, paths: Sequence[str]) -> dict[str, list[str] | None]:
    """Folders that were given, by the path of the dataset; None where none were. Several datasets must be named."""
    found: dict[str, list[str] | None] = dict.fromkeys(paths)
    if given is None:
        return found
    if not isinstance(given, Mapping):
        if len(found) > 1:
            raise ConfigError(
                f"inputs= does not say which of {len(found)} datasets it is of: {', '.join(found)}",
                where=_WHERE,
                next_step=f"name them: inputs={{{', '.join(f'{path!r}: folder' for path in found)}}}. What is left out "
                "is read from where its job found it",
            )
        given = {paths[0]: given}
    for name, folders in given.items():
        path = _dataset_called(name, list(found))
        if found[path] is not None:
            raise ConfigError(f"inputs= names the dataset {path} twice", where=_WHERE, next_step="name it once")
        found[path] = _folders(folders)
    return found


def _dataset_called(name: Any, paths: Sequence[str]) -> str:
    """The dataset of this path, or with a folder of this name."""
    written = os.fspath(name) if isinstance(name, os.PathLike) else str(name)
    own = [path for path in paths if normal_path(path) == normal_path(dataset_path(written))]
    own = own or [path for path in paths if os.path.basename(normal_path(path)) == written]
    if len(own) != 1:
        what = (
            f"inputs= names a dataset {written!r}, which is none of these" if not own else f"{written!r} may be several"
        )
        raise ConfigError(
            f"{what}: {', '.join(own or paths)}", where=_WHERE, next_step="name it by its path, as load() has it"
        )
    return own[0]


def _folders(given: Any) -> list[str]:
    folders = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(folders, Sequence) or not all(isinstance(each, str | os.PathLike) for each in folders):
        raise ConfigError(
            f"inputs={given!r} is no folder", where=_WHERE, next_step="give a folder, or a list of one per input"
        )
    return [os.fspath(each) for each in folders]
