"""Named files: a job file -> the files that its run reads, as paths relative to the job's folder.

On another machine, this folder has another path. So everything that the job names must lie in it.
"""

import glob
import os
from collections.abc import Iterator
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.paths import local_path
from penstock.base.stores import is_served
from penstock.prepare.job.config import Config


def named_files(job: str, config: Config) -> list[str]:
    """The job file, its input, modules beside it, and files that its stages name. A folder stands for all its files."""
    folder = os.path.dirname(os.path.abspath(job))
    written = {"output": config.output_path, "intermediate_dir": config.batches_path, "export": config.export_path}
    for key, path in written.items():
        if path:
            inside(folder, path, key)
    found = {os.path.basename(job): None}
    for key, path in _input_paths(config):
        relative = inside(folder, local_path(path, folder), key)
        found[_without_pattern(relative, os.path.join(folder, relative), key)] = None
    found |= dict.fromkeys(_modules(folder, config))
    for stage in config.stages:
        for name, options in stage.items():
            for text in _texts(options):
                if os.path.lexists(path := os.path.join(folder, os.path.expanduser(text))):
                    found[inside(folder, path, f"stage {name}")] = None
    return _without_nested([*found])


def _modules(folder: str, config: Config) -> list[str]:
    """Modules beside the job file, and packages there that hold its functions."""
    targets = [source.function or "" for source in config.input] + [str(source.format) for source in config.input]
    targets += [name for stage in config.stages for name in stage]
    packages = {target.partition(":")[0].partition(".")[0] for target in targets if ":" in target}
    entries = sorted(os.listdir(folder))
    return [name for name in entries if name.endswith(".py") or name in packages]


def inside(folder: str, path: str, key: str) -> str:
    """The path relative to the folder. Refuses a path outside of it, and one that is not local."""
    if is_served(path):
        raise ConfigError(
            f"{key}: {path} is not in the folder of the job file",
            where=folder,
            next_step="name a folder beside the job file: the app writes to a Volume",
        )
    relative = os.path.relpath(os.path.normpath(path), folder)
    if relative == os.pardir or relative.startswith(os.pardir + os.sep):
        raise ConfigError(
            f"{key}: {path} is not in the folder of the job file, so it cannot be found in the container",
            where=folder,
            next_step="move the job file above everything that it names, and write its paths from there",
        )
    if relative == os.curdir:
        raise ConfigError(
            f"{key}: {path} is the folder of the job file itself",
            where=folder,
            next_step="put it in a folder of its own beside the job file",
        )
    return relative


def _input_paths(config: Config) -> Iterator[tuple[str, str]]:
    """Local paths of the input, with their keys; no names of datasets on a hub."""
    for number, source in enumerate(config.input):
        for key in ("path", "files", "npz"):
            for path in getattr(source, key) or ():
                if key != "path" or not _is_of_hub(config.folder, path, source):
                    yield f"input[{number}].{key}", path


def _is_of_hub(folder: str, path: str, source: Any) -> bool:
    is_asked = bool(source.split or source.name or source.revision)
    return is_asked and not os.path.lexists(local_path(path, folder))


def _without_pattern(relative: str, path: str, key: str) -> str:
    """The folder before the first part with a pattern; a path without a pattern stays as it is."""
    if os.path.lexists(path) or not glob.has_magic(relative):
        return relative
    parts = relative.split(os.sep)
    fixed = parts[: next(number for number, part in enumerate(parts) if glob.has_magic(part))]
    if not fixed:
        raise ConfigError(
            f"{key}: {relative} is a pattern in the folder of the job file itself, which holds more than the input",
            where=os.path.dirname(path),
            next_step="put the files of the input in a folder of their own beside the job file",
        )
    return os.path.join(*fixed)


def _texts(options: Any) -> Iterator[str]:
    if isinstance(options, str):
        yield options
    elif isinstance(options, dict):
        for value in options.values():
            yield from _texts(value)
    elif isinstance(options, list | tuple):
        for value in options:
            yield from _texts(value)


def _without_nested(paths: list[str]) -> list[str]:
    """The paths that no other one contains."""
    return [
        path for path in paths if not any(path != other and path.startswith(os.path.join(other, "")) for other in paths)
    ]
