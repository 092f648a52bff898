"""Origins: the rows that a batch has drawn -> file, position and text of each of its segments. Used by maker.py."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.stores import open_store
from penstock.base.stores.store import STATE
from penstock.loader.batches import Array, Inputs, SegmentOrigin
from penstock.loader.order.order import Draws, Stream
from penstock.shards.manifest import Manifest, read_artifact, read_manifest
from penstock.shards.origins import HASH, NO_ORIGINS, Origins, has_hashes, origin_list, read_origins
from penstock.shards.packed import TOKENIZER
from penstock.shards.rereading.documents import Reread, reread
from penstock.shards.rereading.lines import Place

_NO_FOLDER = "nobody knows where the input is: name its folder, inputs="


@dataclass(frozen=True)
class Kept:
    """Input files of one dataset, as it keeps them."""

    path: str

    @cached_property
    def _manifest(self) -> Manifest:
        return read_manifest(open_store(self.path))

    @cached_property
    def origins(self) -> Origins:
        found = read_origins(open_store(self.path), self._manifest)
        if found is None:
            raise ConfigError(
                "this dataset does not say where its rows came from: its job kept no origins",
                where=self.path,
                next_step=NO_ORIGINS,
            )
        return found

    @property
    def sources(self) -> Sequence[Mapping[str, Any]]:
        """Options of each source of the input."""
        return self.origins.sources or self._manifest.config["input"]

    @property
    def has_hashes(self) -> bool:
        return has_hashes(self._manifest.schema)

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
        return self._decode(tokens) if self._decode and tokens else None

    def folders(self, inputs: Inputs | None) -> Sequence[str | None]:
        """Folder of each source: those that are given, or those where the job found its input."""
        if inputs is None:
            return self._known_folders
        given = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
        if len(given) != len(self.sources):
            raise ConfigError(
                f"the job has {len(self.sources)} inputs, and {len(given)} folders were given",
                where="loader.origin(inputs=...)",
                next_step="give the folder of each input, in the order of the job",
            )
        return [os.fspath(each) for each in given]

    @cached_property
    def _known_folders(self) -> Sequence[str | None]:
        store, unknown = open_store(self.path), [None] * len(self.sources)
        try:
            run = json.loads(store.read(f"{STATE}/run.json")) if store.exists(f"{STATE}/run.json") else {}
        except ValueError:
            return unknown
        return run.get("folders") or unknown


def origins_of(
    draws: Draws,
    batch: Mapping[str, Array],
    shards: Sequence[Any],
    streams: Sequence[Stream],
    paths: Sequence[str],
    inputs: Inputs | None,
) -> Iterator[SegmentOrigin]:
    """`batch` was filled from the draws; `shards` are those of all datasets, one after the other."""
    datasets = [Kept(path) for path in paths]
    of = [each for each, stream in zip(datasets, streams, strict=True) for _ in stream.shard_records]
    found = list(_segments_of(draws, batch, shards, of))
    for kept in datasets:
        own = [each for each in found if each.kept is kept]
        documents = _documents(kept, own, inputs)
        for each in own:
            each.document = documents[each.value]
    for each in found:
        yield each.origin()


@dataclass
class _Segment:
    kept: Kept
    row: int
    number: int
    tokens: list[int]
    value: int
    hash: int | None
    document: Reread | None = None

    def origin(self) -> SegmentOrigin:
        assert self.document
        source, file, position = self.kept.origins.of(self.value)
        text, line, problem = self.document
        place = (self.row, self.number, self.kept.path, source, file, position, len(self.tokens))
        written = None if self.hash is None else f"{self.hash:016x}"
        return SegmentOrigin(*place, self.kept.text(self.tokens), line, written, text, problem)


def _segments_of(
    draws: Draws, batch: Mapping[str, Array], shards: Sequence[Any], of: Sequence[Kept]
) -> Iterator[_Segment]:
    for row, (shard, record) in enumerate(zip(draws.shards[:, 0].tolist(), draws.records[:, 0].tolist(), strict=True)):
        if shard < 0:
            continue
        kept = of[shard]
        assert kept.origins  # first: it refuses a dataset that has none
        values = origin_list(shards[shard], record)
        hashes = origin_list(shards[shard], record, HASH) if kept.has_hashes else [None] * len(values)
        for number, tokens in _segments(batch, row):
            place = max(0, number - 1)
            yield _Segment(kept, row, number, tokens, values[place], hashes[place])


def _documents(kept: Kept, segments: Sequence[_Segment], inputs: Inputs | None) -> dict[int, Reread]:
    """The document of each origin, read again from its file; every file is read once."""
    by_file: dict[tuple[int, str], dict[Place, tuple[int, int | None]]] = {}
    for each in segments:
        source, file, position = kept.origins.of(each.value)
        place = Place(kept.origins.piece_of(each.value).first, position)
        by_file.setdefault((source, file), {})[place] = each.value, each.hash
    found: dict[int, Reread] = {}
    for (source, file), places in by_file.items():
        folder = kept.folders(inputs)[source]
        hashes = {place: stored for place, (_, stored) in places.items()}
        if folder is None or (inputs is None and not kept.has_hashes):
            read = dict.fromkeys(places, Reread(None, None, _NO_FOLDER if folder is None else None))
        else:
            read = reread(os.path.join(folder, file), kept.sources[source], hashes, counts=inputs is not None)
        found |= {value: read[place] for place, (value, _) in places.items()}
    return found


def _segments(batch: Mapping[str, Array], row: int) -> list[tuple[int, list[int]]]:
    """Number and tokens of each segment of a row; rows of arrays are one, without tokens."""
    if "inputs_segmentation" not in batch:
        return [(0, [])]
    numbers, tokens = batch["inputs_segmentation"][row], batch["inputs"][row]
    return [(number, tokens[numbers == number].tolist()) for number in np.unique(numbers[numbers > 0]).tolist()]
