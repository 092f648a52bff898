"""MDS index: the index.json of a folder of MosaicML Streaming -> its shards in order, and what it says about each."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import xxhash

from penstock.base.errors import InputError
from penstock.base.files import ReadFile
from penstock.prepare.sources.registry import COMPRESSIONS, compression_of

INDEX = "index.json"
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class ShardFacts:
    """A shard, as the index has it: samples, bytes without compression, and of the file itself, bytes and hashes."""

    samples: int
    raw_bytes: int
    file_bytes: int
    hashes: Mapping[str, str]  # by algorithm, in hexadecimal

    def wrong_hash(self, location: str) -> str:
        """Fault in the content of the file; empty if all hashes equal those of the index."""
        if not self.hashes:
            return ""
        hashers = {name: _hasher(name) for name in self.hashes}
        with ReadFile(location) as file:
            while data := file.read(_AT_ONCE):
                for hasher in hashers.values():
                    hasher.update(data)
        for name, expected in self.hashes.items():
            if (found := hashers[name].hexdigest()) != expected:
                return f"its {name} is {found}, and {INDEX} has {expected}"
        return ""


def _hasher(name: str) -> Any:
    library = hashlib if name in hashlib.algorithms_guaranteed else xxhash
    return getattr(library, name)()


def is_mds(place: str) -> bool:
    """Whether this folder has an index of shards."""
    path = os.path.join(place, INDEX)
    if not os.path.isfile(path):
        return False
    try:
        facts = _parsed(path, *_version(path))
    except InputError:
        return False
    return isinstance(facts, dict) and isinstance(facts.get("shards"), list)


def refuse_without_shards(place: str) -> None:
    """Refuse a folder with shards whose index does not say which they are: the index is no data."""
    path = os.path.join(place, INDEX)
    if not os.path.isfile(path) or is_mds(place):
        return
    if found := min(filter(_is_shard, os.listdir(place)), default=""):
        _parsed(path, *_version(path))  # an index that is not JSON is refused as such
        raise InputError(
            f"this index has no list `shards`, and shards of MosaicML Streaming lie beside it, such as {found}",
            where=path,
            next_step="bring back the index of the dataset, or name the shards to read them without it: "
            f"{os.path.join(place, '*' + found[found.lower().rindex('.mds') :])}",
        )


def _is_shard(name: str) -> bool:
    return name.lower().endswith(tuple(f".mds{packed}" for packed in ("", *COMPRESSIONS)))


def shard_files(place: str) -> list[str]:
    """Its files in order: of a shard that is there with and without compression, the one without."""
    shards = _shards(os.path.join(place, INDEX))
    if not shards:
        raise InputError("this dataset has no shards", where=place, next_step="take it out of `input:`")
    return [_present(place, shard) for shard in shards]


def _present(place: str, shard: Mapping[str, Any]) -> str:
    raw, packed = (shard[key] and os.path.join(place, shard[key]["basename"]) for key in ("raw_data", "zip_data"))
    if not packed or os.path.exists(raw):
        return str(raw)
    if not compression_of(packed):
        raise InputError(
            f"this shard is compressed with {shard.get('compression')!r}, and zstd, gz and bz2 are read",
            where=packed,
            next_step="decompress its shards, or write the dataset again with compression='zstd'",
        )
    return str(packed)


def shard_facts(location: str) -> ShardFacts | None:
    """Facts about a shard, from the index of its folder or of one around it; None if no index has it."""
    folder = os.path.dirname(location)
    while True:
        if is_mds(folder):
            path = os.path.join(folder, INDEX)
            found = _by_name(path, *_version(path)).get(os.path.relpath(location, folder))
            if found:
                return found
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return None


def _version(path: str) -> tuple[int, int]:
    """Differs where the file was written anew."""
    facts = os.stat(path)
    return facts.st_mtime_ns, facts.st_size


@lru_cache(maxsize=4)  # a task reads few datasets
def _by_name(path: str, *version: int) -> dict[str, ShardFacts]:  # noqa: ARG001
    found = {}
    for shard in _shards(path):
        for key in ("raw_data", "zip_data"):
            if file := shard[key]:
                raw = shard["raw_data"]["bytes"]
                _refuse_hashes(file["hashes"], path)
                found[os.path.normpath(file["basename"])] = ShardFacts(
                    shard["samples"], raw, file["bytes"], dict(file["hashes"])
                )
    return found


def _refuse_hashes(hashes: Mapping[str, str], path: str) -> None:
    for name in hashes:
        is_known = name in hashlib.algorithms_guaranteed or name in xxhash.algorithms_available
        if not is_known or name.startswith("shake_"):
            raise InputError(
                f"its shards have hashes of the kind {name!r}, which are not known here, so nothing can be compared "
                "with them",
                where=path,
                next_step="write the dataset again with hashes=['xxh64'] or ['sha1']",
            )


def _shards(path: str) -> list[dict[str, Any]]:
    """Every shard, with the entries that are read here; anything else is no index, or of another kind."""
    try:
        shards: list[dict[str, Any]] = _parsed(path, *_version(path))["shards"]
        for number, shard in enumerate(shards):
            kind, version = shard.get("format"), shard.get("version")
            if (kind, version) != ("mds", 2):
                raise InputError(
                    f"shard {number:,} has format {kind!r} and version {version!r}, and 'mds' and 2 are read",
                    where=path,
                    next_step="write it with MDSWriter, or name its files with a format of penstock's own",
                )
            _ = shard["samples"] + shard["raw_data"]["bytes"]
            for key in ("raw_data", "zip_data"):
                if shard[key]:
                    _ = shard[key]["basename"] + "", dict(shard[key]["hashes"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"this index has not the entries of one that MDSWriter wrote: {type(error).__name__}: {error}"
        raise InputError(what, where=path, next_step="bring back the index of the dataset") from error
    return shards


@lru_cache(maxsize=2)  # one of a large dataset has tens of megabytes
def _parsed(path: str, *version: int) -> Any:  # noqa: ARG001
    try:
        with ReadFile(path) as file:
            return json.loads(file.read())
    except (ValueError, RecursionError) as error:
        what = f"this index is not JSON: {error}"
        raise InputError(what, where=path, next_step="bring back the index of the dataset") from error
