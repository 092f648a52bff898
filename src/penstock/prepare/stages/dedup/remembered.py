"""Remembered: the keys that earlier jobs have had, in a folder of sorted runs. One file per dataset, in their order.

A job is held against the datasets that were there before its own, and replaces what it remembered itself; so doing a
job again, now or after others, gives what it gave. Which file is its own goes by the output's path. Where no output
is left there, and the file was made from other input, its dataset was moved away: it stays, the job gets a new one.
"""

import json
import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import InputError, IntegrityError
from penstock.base.fingerprint import digest, fingerprint
from penstock.base.stores import open_store
from penstock.base.stores.store import STATE, Store
from penstock.prepare.stages.dedup.runs import HASH, KEY, Array, RunsFile, RunsWriter, keep_runs, read_index
from penstock.shards.columns import FileFacts

VERSION = 2
_NAME = re.compile(r"(\d{5})-([0-9a-f]{16})\.keys")
_JOB = f"{STATE}/job.json"  # which resume.py writes before a run's first task
_MD5_FOLDER, _MD5 = re.compile(r"[0-9a-f]{2}"), re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class KeysFile:
    """The keys of one dataset, and what its index says of them."""

    name: str
    bytes: int
    index: str  # its digest
    holds: str  # a digest of the same, but for the input: other input may bring the same keys
    facts: dict[str, Any]


@dataclass(frozen=True)
class Remembered:
    """Content of the folder for one job: the runs that stand before its own, and the name of its own."""

    root: str
    runs: tuple[KeysFile, ...]
    own: str
    meaning: dict[str, Any]  # what a key is the hash of
    made_from: str  # a digest of the job's input

    @property
    def _store(self) -> Store:
        return open_store(self.root)

    def open(self) -> list[RunsFile]:
        try:
            return [keep_runs(self._store, FileFacts(each.name, each.bytes, each.index)) for each in self.runs]
        except IntegrityError as error:
            error.next_step = "put the file back, or run the job that made it again with --redo, or remember elsewhere"
            raise

    def refuse_changed(self) -> None:
        """Refuse a folder that another job has added to, or that one has changed, since this job was planned."""
        names = _names(self._store)
        before = tuple(_read(self._store, name) for name in names if int(name[:5]) < int(self.own[:5]))
        if before != self.runs or any(name[:5] == self.own[:5] and name != self.own for name in names):
            raise InputError(
                "another job has changed what is remembered here since this one was planned",
                where=self.root,
                next_step="run the same command: it is planned again with the current keys",
            )

    def describe(self) -> list[str]:
        """Content of the runs for a fingerprint, wherever they lie."""
        return [each.holds for each in self.runs]

    def save(self, new: Iterable[Array]) -> None:
        """Write the keys that are new, which ascend; whole or not at all."""
        self._store.sweep()
        with ExitStack() as stack:
            writer = RunsWriter(self._store, self.own, stack, KEY, lasting=True)
            count = 0
            for keys in new:
                writer.write(keys)
                count += len(keys)
            facts = {"format": "penstock keys", "version": VERSION, "meaning": self.meaning, "keys": count}
            writer.finish({**facts, "made_from": self.made_from})


def look_up(root: str, output: str, meaning: dict[str, Any], made_from: str) -> Remembered:
    """Raises InputError for a folder that holds something else, or keys that mean something else."""
    meaning = {"hash": HASH, **meaning}
    if os.path.exists(root) and not os.path.isdir(root):
        raise InputError("`remember:` must be a folder, but this is a file", where=root, next_step="name another")
    store = open_store(root)
    names = _names(store)
    _refuse_foreign(store, names)
    tag = digest(os.path.realpath(output).encode())[:16]
    of_path = [_read(store, name) for name in names if name.endswith(f"-{tag}.keys")]
    last = max((int(name[:5]) for name in names), default=0)
    own = _own(of_path, output, made_from) or f"{last + 1:05d}-{tag}.keys"
    before = [_read(store, name) for name in names if int(name[:5]) < int(own[:5])]
    for each in before:
        _refuse_unlike(store, each, meaning)
    return Remembered(root, tuple(before), own, meaning, made_from)


def _names(store: Store) -> list[str]:
    return [name.rstrip("/") for name in store.entries() if not name.startswith(".")]


def _own(of_path: list[KeysFile], output: str, made_from: str) -> str | None:
    """The file of this path that the job replaces. None: all are of datasets that lie elsewhere now.

    An output that is there, if only begun, says what its keys were held against, and its own file was not among that.
    Without an output, or before it has a file, only equal input tells that one is to be made again.
    """
    known = _held_against(output)
    of_output = [each for each in of_path if known is not None and each.holds not in known]
    made_again = [each for each in of_path if each.facts["made_from"] == made_from]
    return next((each.name for each in (*of_output, *made_again)), None)


def _held_against(output: str) -> set[str] | None:
    """Content that the last job in this output found remembered; None if no job was there, or none that remembers."""
    store = open_store(output)
    try:
        stages = json.loads(store.read(_JOB))["config"]["stages"] if store.exists(_JOB) else []
    except (ValueError, KeyError, TypeError):
        return None  # damaged, or not written by this version: as if nothing were there
    described = [options for stage in stages for options in stage.values() if isinstance(options, dict)]
    found = [options["remembered"] for options in described if "remembered" in options]
    return {each for several in found for each in several} if found else None


def _read(store: Store, name: str) -> KeysFile:
    index = read_index(store, name)
    facts = index.facts
    if facts.get("version") != VERSION:
        raise InputError(
            f"these keys have version {facts.get('version')}, this penstock reads version {VERSION}",
            where=store.where(name),
            next_step="choose another folder for `remember:`, or remove this one and run the earlier jobs again",
        )
    held = {fact: value for fact, value in facts.items() if fact != "made_from"}
    return KeysFile(name, index.source.size, index.digest, fingerprint(held), facts)


def _refuse_unlike(store: Store, file: KeysFile, meaning: dict[str, Any]) -> None:
    if file.facts["meaning"] != meaning:
        raise InputError(
            f"these keys are hashes of {file.facts['meaning']}; this job compares {meaning}",
            where=store.where(file.name),
            next_step="clean as that job did, or choose another folder for `remember:`",
        )


def _refuse_foreign(store: Store, names: list[str]) -> None:
    if names and all(_MD5_FOLDER.fullmatch(name) for name in names):
        files = [os.path.basename(file) for name in names[:3] for file in store.entries(name)[:3]]
        if files and all(map(_MD5.fullmatch, files)):
            raise InputError(
                "this is a cache of MD5 hashes, one empty file each, as other preprocessors keep them; penstock's keys "
                f"are {HASH} of the text, and neither can be converted to the other",
                where=store.root,
                next_step="choose an empty folder for `remember:` and run the earlier data once through penstock",
            )
    foreign = [name for name in names if not _NAME.fullmatch(name)]
    if foreign:
        raise InputError(
            f"a folder of remembered keys holds files named like 00001-0123456789abcdef.keys, not {foreign[0]!r}",
            where=store.root,
            next_step="choose an empty folder for `remember:`",
        )
