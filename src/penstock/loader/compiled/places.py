"""Places: the arrays of a batch of tokens by address, and the segments, positions and sequences written there."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from penstock.loader.batches import TOKEN_ARRAYS, Array
from penstock.loader.compiled.jit import jit_inline
from penstock.loader.compiled.pointers import read_i4, shifted, write_i4
from penstock.loader.tables import address


class Places(NamedTuple):
    """Addresses of the six int32 arrays [rows, length]; of `cu_seqlens` too, where documents are asked for."""

    inputs: Any
    inputs_position: Any
    inputs_segmentation: Any
    targets: Any
    targets_position: Any
    targets_segmentation: Any
    cu_seqlens: Any  # 0: none. Otherwise numbers of sequences are in the place of the positions of targets
    room: int  # sequences that it has room for


def places_of(out: Mapping[str, Array]) -> Places:
    edges = out.get("cu_seqlens")
    arrays = (address(out[name]) for name in TOKEN_ARRAYS)
    return Places(*arrays, np.uint64(0), 0) if edges is None else Places(*arrays, address(edges), len(edges) - 1)


@jit_inline
def write_places(rows: Any, row: int, length: int, begin: int, end: int, segment: int) -> None:
    """The places of tokens `begin` to `end`: of one segment, or of the padding (segment 0).

    A row has one token more than `length`; that is a target only. A target counts where its input is in its segment.
    """
    segmentation = shifted(rows.inputs_segmentation, 4 * row * length)
    position = shifted(rows.inputs_position, 4 * row * length)
    target_segmentation = shifted(rows.targets_segmentation, 4 * row * length)
    target_position = shifted(rows.targets_position, 4 * row * length)
    counts = 1 if segment else 0
    shown = min(end, length)
    if rows.cu_seqlens:
        number = _begin_sequence(rows, row * length + begin, begin < shown)
        for i in range(begin, shown):
            write_i4(segmentation, i, segment)
            write_i4(target_segmentation, i, segment)
            write_i4(position, i, i - begin)
            write_i4(target_position, i, number)
        if segment and begin < end <= length:
            write_i4(target_segmentation, end - 1, 0)
        return
    for i in range(begin, shown):
        write_i4(segmentation, i, segment)
        write_i4(target_segmentation, i, segment)
        write_i4(position, i, (i - begin) * counts)
        write_i4(target_position, i, (i - begin + 1) * counts)
    if segment and begin < end <= length:
        write_i4(target_segmentation, end - 1, 0)
        write_i4(target_position, end - 1, 0)


@jit_inline
def _begin_sequence(rows: Any, token: int, is_one: bool) -> int:
    """Number of the sequence that begins at a token of the flattened batch: one more than that of the token before."""
    number = 0
    if is_one:
        number = read_i4(rows.targets_position, token - 1) + 1 if token else 0
        if number < rows.room:
            write_i4(rows.cu_seqlens, number, token)
    return number
