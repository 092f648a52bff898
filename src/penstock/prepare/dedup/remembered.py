"""Remembered: the keys that earlier jobs have had, in a folder of sorted runs. One file a dataset, in their order.

A job is held against the datasets that were there before its own, and replaces what it remembered itself; so doing a
job again, now or after others, gives what it gave.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import InputError, IntegrityError
from penstock.base.files import TEMPORARY, Folder
from penstock.base.fingerprint import digest
from penstock.prepare.dedup.keys import HASH, KEY, Array
from penstock.prepare.dedup.runs import RunsFile, RunsWriter, open_runs, read_facts

VERSION = 1
_NAME = re.compile(r"(\d{5})-([0-9a-f]{16})\.keys")
_MD5_FOLDER, _MD5 = re.compile(r"[0-9a-f]{2}"), re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Remembered:
    """What a job finds in the folder: the runs that stand before its own, and the name of its own."""

    root: str
    runs: tuple[tuple[str, int, str], ...]  # file, bytes, digest of its index
    own: str
    meaning: dict[str, Any]  # what a key is the hash of

    def open(self) -> list[RunsFile]:
        try:
            return [open_runs(os.path.join(self.root, name), size, written) for name, size, written in self.runs]
        except IntegrityError as error:
            error.next_step = "put the file back, or run the job that made it again with --redo, or remember elsewhere"
            raise

    def describe(self) -> list[str]:
        """Of the runs, for a fingerprint: what they hold, and not where."""
        return [written for _, _, written in self.runs]

    def save(self, new: Iterable[Array]) -> None:
        """Put down the keys that are new, which ascend; whole or not at all."""
        folder = Folder(self.root)
        for left in folder.list(TEMPORARY):  # by this very job, when it was killed here
            if left.endswith(self.own):
                folder.remove(left)
        with ExitStack() as stack:
            writer = RunsWriter(folder, self.own, stack, KEY, outlasts=True)
            count = 0
            for keys in new:
                writer.write(keys)
                count += len(keys)
            writer.finish({"format": "penstock keys", "version": VERSION, "meaning": self.meaning, "keys": count})


def look_up(root: str, output: str, meaning: dict[str, Any]) -> Remembered:
    """Raises InputError for a folder that holds something else, or keys that mean something else."""
    meaning = {"hash": HASH, **meaning}
    if os.path.exists(root) and not os.path.isdir(root):
        raise InputError("`remember:` names a folder, and this is a file", where=root, next_step="name another")
    names = sorted(os.listdir(root), key=os.fsencode) if os.path.isdir(root) else []
    names = [name for name in names if not name.startswith(".")]
    _refuse_foreign(root, names)
    tag = digest(os.path.abspath(output).encode())[:16]
    own = next((name for name in names if name.endswith(f"-{tag}.keys")), f"{_next_number(names):05d}-{tag}.keys")
    before = [name for name in names if int(name[:5]) < int(own[:5])]
    return Remembered(root, tuple(_checked(root, name, meaning) for name in before), own, meaning)


def _next_number(names: list[str]) -> int:
    return 1 + max((int(name[:5]) for name in names), default=0)


def _checked(root: str, name: str, meaning: dict[str, Any]) -> tuple[str, int, str]:
    path = os.path.join(root, name)
    size = os.path.getsize(path)
    facts, written = read_facts(path, size)
    if facts.get("version") != VERSION:
        raise InputError(
            f"these keys have version {facts.get('version')}, this penstock reads version {VERSION}",
            where=path,
            next_step="choose another folder for `remember:`, or remove this one and run the earlier jobs again",
        )
    if facts["meaning"] != meaning:
        raise InputError(
            f"these keys are hashes of something else: of {facts['meaning']}; this job's are of {meaning}",
            where=path,
            next_step="clean as that job did, or choose another folder for `remember:`",
        )
    return name, size, written


def _refuse_foreign(root: str, names: list[str]) -> None:
    if names and all(_MD5_FOLDER.fullmatch(name) for name in names):
        folders = [path for name in names[:3] if os.path.isdir(path := os.path.join(root, name))]
        files = [file for path in folders for file in os.listdir(path)[:3]]
        if files and all(map(_MD5.fullmatch, files)):
            raise InputError(
                "this is a cache of MD5 hashes, one empty file each, as other preprocessors keep them; penstock's keys "
                f"are {HASH} of the text, and neither can be made from the other",
                where=root,
                next_step="choose an empty folder for `remember:` and run the earlier data once through penstock",
            )
    foreign = [name for name in names if not _NAME.fullmatch(name)]
    if foreign:
        raise InputError(
            f"a folder of remembered keys holds files named like 00001-0123456789abcdef.keys, and not {foreign[0]!r}",
            where=root,
            next_step="choose an empty folder for `remember:`",
        )
