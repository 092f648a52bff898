"""Origins: the rows that a batch has drawn -> file, position and text of each of its segments. Used by maker.py."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.stores import open_store
from penstock.loader.batches import Array, Inputs, SegmentOrigin
from penstock.loader.order.order import Draws, Stream
from penstock.shards.lines import line_of
from penstock.shards.manifest import Manifest, read_artifact, read_manifest
from penstock.shards.origins import Origins, origin_list, read_origins
from penstock.shards.packed import TOKENIZER


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
                "this dataset does not say where its rows came from: its job has no `provenance: true`",
                where=self.path,
                next_step="prepare it again with `provenance: true`",
            )
        return found

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

    def line(self, value: int, inputs: Sequence[str]) -> int | None:
        origin = self.origins.of(value)
        described = self._manifest.config["input"][origin.source]
        if described.get("encoding") or described.get("function"):  # positions are no bytes of the file, or no lines
            return None
        if origin.source >= len(inputs):
            raise ConfigError(
                f"the job has {len(self._manifest.config['input'])} inputs, and {len(inputs)} folders were given",
                where="loader.origin(inputs=...)",
                next_step="give the folder of each input, in the order of the job",
            )
        first = self.origins.first_of(origin)
        return line_of(os.path.join(inputs[origin.source], origin.file), first, origin.position)


def origins_of(
    draws: Draws,
    batch: Mapping[str, Array],
    shards: Sequence[Any],
    streams: Sequence[Stream],
    paths: Sequence[str],
    inputs: Inputs | None,
) -> Iterator[SegmentOrigin]:
    """`batch` was filled from the draws; `shards` are those of all datasets, one after the other."""
    kept = [
        each for path, stream in zip(paths, streams, strict=True) for each in [Kept(path)] * len(stream.shard_records)
    ]
    folders = [inputs] if isinstance(inputs, str | os.PathLike) else inputs or ()
    for row, (shard, record) in enumerate(zip(draws.shards[:, 0].tolist(), draws.records[:, 0].tolist(), strict=True)):
        if shard < 0:
            continue
        own = kept[shard]
        table = own.origins  # first: it refuses a dataset that has none
        values = origin_list(shards[shard], record)
        for segment, tokens in _segments(batch, row):
            value = values[max(0, segment - 1)]
            line = own.line(value, [os.fspath(each) for each in folders]) if folders else None
            source, file, position = table.of(value)
            text = own.text(tokens)
            yield SegmentOrigin(row, segment, own.path, source, file, position, len(tokens), text, line)


def _segments(batch: Mapping[str, Array], row: int) -> list[tuple[int, list[int]]]:
    """Number and tokens of each segment of a row; rows of arrays are one, without tokens."""
    if "inputs_segmentation" not in batch:
        return [(0, [])]
    numbers, tokens = batch["inputs_segmentation"][row], batch["inputs"][row]
    return [(number, tokens[numbers == number].tolist()) for number in np.unique(numbers[numbers > 0]).tolist()]
