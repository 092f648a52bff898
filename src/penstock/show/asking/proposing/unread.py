"""Unread: files that penstock does not read by itself -> one sentence, and the function that would make samples."""

import os
import shlex
from collections import Counter
from collections.abc import Sequence

from penstock.base.errors import ConfigError, InputError, printable
from penstock.prepare.sources.registry import SOURCES, known_endings
from penstock.show.asking.proposing.quoting import quoted

_MOST_KINDS = 4
_MOST_NAMED = 3
_SKELETON = '''\
features.py, beside the job file:

    def samples(path):
        """Yield one dict per sample of the file: numbers, and arrays of one shape."""
        with open(path, "rb") as file:
            data = file.read()
        yield {{"size": len(data)}}

job.yaml:

    input:
      files: {files}
      function: features:samples
    output: prepared
    stages:
      - split: {{test: 0.1}}
'''


def refuse_other_files(paths: Sequence[str], kinds: Counter[str], folder: str) -> None:
    """Raise if the files are of no format that penstock reads, or of several."""
    if not kinds:
        _refuse_nothing(paths)
    known = [kind for kind in kinds if kind in SOURCES]
    if not known:
        _refuse_unknown(paths, kinds, folder)
    if len(kinds) > 1:
        raise InputError(
            f"these files have several formats: {_listed(kinds)}",
            where=_where(paths),
            next_step=f"name the files of one format: penstock init {_of_one_format(paths, known[0])}; a job can read "
            "several formats if their columns are equal: give each as an entry of `input:`",
        )


def _of_one_format(paths: Sequence[str], kind: str) -> str:
    """Words of a command line that name the files of one format only."""
    if os.path.isdir(paths[0]):
        return shlex.quote(_pattern(paths[0], _ending(kind)))
    named = [path for path in paths if path.lower().endswith(SOURCES[kind].endings)]
    return " ".join(map(shlex.quote, named[:_MOST_NAMED])) or shlex.quote(_pattern(paths[0], _ending(kind)))


def _refuse_nothing(paths: Sequence[str]) -> None:
    is_folder = len(paths) == 1 and os.path.isdir(paths[0])
    raise InputError(
        "there is no file in this folder" if is_folder else "there is no such file, and the pattern matches no file",
        where=_where(paths),
        next_step="name files, a folder or a pattern between quotes: penstock init 'data/*.parquet'",
    )


def _refuse_unknown(paths: Sequence[str], kinds: Counter[str], folder: str) -> None:
    error = ConfigError(
        f"penstock does not read these files by itself: {_listed(kinds)}",
        where=_where(paths),
        next_step="write a function that yields the samples of one file; below is one to start from. Files that are "
        f"read without a function end in {' '.join(known_endings())} or .npz",
    )
    pattern = _pattern(paths[0], kinds.most_common(1)[0][0]) if os.path.isdir(paths[0]) else paths[0]
    files = pattern if os.path.isabs(pattern) else os.path.relpath(pattern, folder)
    error.add_note(_SKELETON.format(files=quoted(files)))
    raise error


def _ending(kind: str) -> str:
    return ".npz" if kind == "npz" else SOURCES[kind].endings[0]


def _pattern(path: str, ending: str) -> str:
    return os.path.join(path if os.path.isdir(path) else os.path.dirname(path), "**", f"*{ending}")


def _listed(kinds: Counter[str]) -> str:
    shown = [f"{count:,} {printable(kind)}" for kind, count in kinds.most_common(_MOST_KINDS)]
    more = [f"{len(kinds) - _MOST_KINDS} more kinds"] if len(kinds) > _MOST_KINDS else []
    return ", ".join([*shown, *more])


def _where(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1:,} more" if paths[1:] else ""
    return f"{printable(paths[0])}{more}"
