"""Kept: a dataset -> the origins that it keeps, and the documents of its input, read again. Used by origins.py."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.sizes import counted
from penstock.base.stores import open_store
from penstock.base.stores.store import STATE
from penstock.shards.manifest import Manifest, read_artifact, read_manifest
from penstock.shards.origins import HASH, Origin, Origins, has_hashes, origin_list, read_origins
from penstock.shards.packed import TOKENIZER
from penstock.shards.record import Columns
from penstock.shards.rereading.documents import NO_HASH, Reread, reread
from penstock.shards.rereading.lines import Place

UNKNOWN = -1  # in place of an origin, which is never negative
Marks = list[tuple[int, int | None]]  # origins, and content hashes if the dataset keeps them
_NO_FOLDER = "its folder is not known: give the folder of each source (--input, in Python inputs=)"


@dataclass(frozen=True)
class Kept:
    """One dataset of a loader."""

    path: str
    inputs: Sequence[str] | None  # folders of its input that were given

    @cached_property
    def _manifest(self) -> Manifest:
        return read_manifest(open_store(self.path))

    @cached_property
    def origins(self) -> Origins | None:
        """None if its job kept none."""
        return read_origins(open_store(self.path), self._manifest)

    @property
    def table(self) -> Origins:
        """The origins, of a dataset that is known to have some."""
        assert self.origins
        return self.origins

    @property
    def sources(self) -> Sequence[Mapping[str, Any]]:
        """Options of each source of the input."""
        return self.table.sources or self._manifest.config["input"]

    @property
    def has_hashes(self) -> bool:
        return has_hashes(self._manifest.schema)

    def marks(self, columns: Columns, record: int) -> Marks:
        """Origin and content hash of each document of a record."""
        if self.origins is None:
            return [(UNKNOWN, None)]
        values = origin_list(columns, record)
        hashes = origin_list(columns, record, HASH) if self.has_hashes else [None] * len(values)
        return list(zip(values, hashes, strict=True))

    @cached_property
    def _decode(self) -> Callable[[list[int]], str] | None:
        data = read_artifact(open_store(self.path), self._manifest, TOKENIZER)
        try:
            from tokenizers import Tokenizer
        except ImportError:
            return None
        if data is None:
            return None
        tokenizer = Tokenizer.from_str(data.decode())
        return lambda tokens: str(tokenizer.decode(tokens, skip_special_tokens=False))

    def text(self, tokens: list[int]) -> str | None:
        return self._decode(tokens) if tokens and self._decode else None

    @cached_property
    def folders(self) -> Sequence[str | None]:
        """Folder of each source: those that are given, or those where the job found its input."""
        if self.inputs is None:
            return self._known_folders()
        if len(self.inputs) != len(self.sources):
            raise ConfigError(
                f"the documents of {self.path} come from {counted(len(self.sources), 'source')}, and "
                f"{counted(len(self.inputs), 'folder')} were given",
                where="input",
                next_step="give the folder of each source: those of the job's `input:` in their order, and in place of "
                "a dataset that knows its origins those of its own job",
            )
        return self.inputs

    def _known_folders(self) -> Sequence[str | None]:
        return self._run.get("folders") or [None] * len(self.sources)

    @property
    def patterns(self) -> Sequence[Sequence[str]]:
        """`input:` of the run that made the dataset; nothing if that is not known."""
        return self._run.get("input") or []

    @cached_property
    def _run(self) -> dict[str, Any]:
        store, name = open_store(self.path), f"{STATE}/run.json"
        try:
            run: dict[str, Any] = json.loads(store.read(name)) if store.exists(name) else {}
        except ValueError:
            return {}
        return run

    def documents(self, hashes: Mapping[Origin, int | None]) -> dict[Origin, Reread]:
        """Documents of the input, read again and checked by their content hashes. Every file is read once."""
        by_file: dict[tuple[int, str], dict[Place, int | None]] = {}
        for origin, each in hashes.items():
            place = Place(self.table.first_of(origin), origin.position)
            by_file.setdefault((origin.source, origin.file), {})[place] = each
        found: dict[Origin, Reread] = {}
        for (source, file), places in by_file.items():
            read = self._read(source, file, places)
            found |= {Origin(source, file, place.position): each for place, each in read.items()}
        return found

    def _read(self, source: int, file: str, hashes: Mapping[Place, int | None]) -> dict[Place, Reread]:
        folder = self.folders[source]
        if folder is None or (self.inputs is None and not self.has_hashes):
            return dict.fromkeys(hashes, Reread(None, None, _NO_FOLDER if folder is None else NO_HASH))
        return reread(os.path.join(folder, file), self.sources[source], hashes, counts=self.inputs is not None)
