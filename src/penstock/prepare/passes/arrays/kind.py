"""Kind: samples become arrays, in batch files, in their places, or in parts that one more pass places."""

from penstock.prepare.passes.arrays.batches import batches_ending
from penstock.prepare.passes.arrays.ending import arrays_ending
from penstock.prepare.passes.arrays.place import Place
from penstock.prepare.passes.kinds import Kind, SoFar


def _placed(so_far: SoFar) -> SoFar:
    last = len(so_far.passes) - 1
    return so_far.also(Place(last + 1, "place", so_far.job, last)) if so_far.ending.applies_artifacts else so_far


ARRAYS = Kind(endings=(batches_ending, arrays_ending), behind=_placed)
