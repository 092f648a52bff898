"""Documents: rows of tokens -> the same rows, with their documents as kernels of attention take them. Next: maker.py.

A batch of `rows` rows has, beside `inputs`, `targets`, the segmentation of both and kept columns:

- `cu_seqlens`, int32 [rows * (max_documents + 1) + 1]: where each sequence begins in the flattened batch of this rank.
  The end of the batch follows, repeated to the end of the array: sequences of no tokens.
- `position_ids`, int32 [rows, length]: the place of each token in its sequence.
- `seq_idx`, int32 [rows, length]: the number of its sequence, from 0 in each batch.

A sequence is a document, or as much of it as the row holds. The padding of a row is a sequence of its own, so the
lengths add up to the tokens of the batch, and no document sees padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.loader.batches import Array, Edges, Layout
from penstock.loader.engine import compiled
from penstock.loader.kind import Kind
from penstock.loader.order.order import Draws
from penstock.loader.tables import Made


class Documents:
    """Rows of another kind with their documents; `most` of them in a row."""

    def __init__(self, kind: Kind, most: int) -> None:
        self._kind, self._most = kind, most
        self.name, self.unit, self.vocabulary = kind.name, kind.unit, kind.vocabulary
        self.streams, self.tables = kind.streams, kind.tables
        self.hold, self.holds = kind.hold, kind.holds
        places = dict(kind.layout)
        position_ids, seq_idx = places.pop("inputs_position"), places.pop("targets_position")
        self.layout: Layout = {
            **places,
            "position_ids": position_ids,
            "seq_idx": seq_idx,
            "cu_seqlens": Edges((most + 1,), "i4"),  # one more: the padding
        }

    def fill(self, draws: Draws, out: Mapping[str, Array]) -> Made:
        numbers, edges = out["seq_idx"], out["cu_seqlens"]
        # Nobody asks for the positions of targets: numbers of sequences take their place.
        given = {**out, "inputs_position": out["position_ids"], "targets_position": numbers}
        arrays = [*self._kind.layout, *(["cu_seqlens"] if compiled() else [])]  # which the kernels fill themselves
        made = self._kind.fill(draws, {name: given[name] for name in arrays})
        if not compiled():
            _number_plainly(out)
        sequences = int(numbers[-1, -1]) + 1
        edges[sequences:] = numbers.size
        if sequences >= len(edges):
            raise ConfigError(
                f"a batch has {sequences:,} sequences (documents and padding), but max_documents={self._most} allows "
                f"{len(edges) - 1:,}",
                where="load(documents='varlen')",
                next_step="a larger max_documents=",
            )
        return made

    def describe(self) -> dict[str, Any]:
        return {**self._kind.describe(), "documents": "varlen", "max_documents": self._most}


def _number_plainly(out: Mapping[str, Array]) -> None:
    """In plain numpy: what the kernels do (compiled/places.py)."""
    segments, edges = out["inputs_segmentation"], out["cu_seqlens"]
    begins = np.ones(segments.shape, bool)
    begins[:, 1:] = segments[:, 1:] != segments[:, :-1]
    starts, numbers = np.flatnonzero(begins), np.cumsum(begins) - 1
    out["seq_idx"][:] = numbers.reshape(segments.shape)
    out["position_ids"][:] = (np.arange(segments.size) - starts[numbers]).reshape(segments.shape)
    edges[: len(starts)] = starts[: len(edges)]
