"""Kind: a stage that compares rows has their keys hashed, by a fold, and ranges of keys matched."""

from penstock.prepare.passes.kinds import Kind, SoFar
from penstock.prepare.stages.interfaces import Compares


def _compared(so_far: SoFar, number: int) -> SoFar:
    stage, hashed = so_far.job.stages[number], len(so_far.passes)
    if not isinstance(stage, Compares):
        return so_far
    from penstock.prepare.passes.match.hash import hash_ending
    from penstock.prepare.passes.match.match import Match

    so_far = so_far.fold("hash", number, hash_ending(hashed, number, stage.column))
    return so_far.also(Match(hashed + 1, "match", so_far.job, hashed, number))


MATCH = Kind(before=_compared)
