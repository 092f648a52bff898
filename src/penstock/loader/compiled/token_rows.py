"""Token rows: the six arrays of a batch, and where each token is: its segment, and its position in it."""

from typing import Any, NamedTuple

from penstock.loader.compiled.jit import jit_inline
from penstock.loader.compiled.pointers import shifted, write_i4


class Rows(NamedTuple):
    """Addresses of the six int32 arrays [rows, length]."""

    inputs: Any
    inputs_position: Any
    inputs_segmentation: Any
    targets: Any
    targets_position: Any
    targets_segmentation: Any


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
    for i in range(begin, shown):
        write_i4(segmentation, i, segment)
        write_i4(target_segmentation, i, segment)
        write_i4(position, i, (i - begin) * counts)
        write_i4(target_position, i, (i - begin + 1) * counts)
    if segment and begin < end <= length:
        write_i4(target_segmentation, end - 1, 0)
        write_i4(target_position, end - 1, 0)
