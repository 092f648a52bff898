"""Kind: samples become arrays, in batch files, in their places, or in parts that one more pass places."""

from penstock.prepare.passes.folds.fold import Ending
from penstock.prepare.passes.job import Job
from penstock.prepare.passes.kinds import Kind, SoFar


def _batches(job: Job) -> Ending | None:
    if job.config.format != "npz":
        return None
    from penstock.prepare.passes.arrays.batches import batches_ending

    return batches_ending(job)


def _arrays(job: Job) -> Ending | None:
    if job.config.format != "arrays":
        return None
    from penstock.prepare.passes.arrays.ending import arrays_ending

    return arrays_ending(job)


def _placed(so_far: SoFar) -> SoFar:
    if not so_far.ending.applies_artifacts:
        return so_far
    from penstock.prepare.passes.arrays.place import Place

    last = len(so_far.passes) - 1
    return so_far.also(Place(last + 1, "place", so_far.job, last))


ARRAYS = Kind(endings=(_batches, _arrays), behind=_placed)
