"""Kind: rows become shards. Fits are done by folds of their own, or ride on one."""

from dataclasses import replace

from penstock.prepare.passes.folds.fold import Ending
from penstock.prepare.passes.folds.shards_ending import shards_ending
from penstock.prepare.passes.kinds import Kind, SoFar
from penstock.prepare.stages.interfaces import Applies, Fits


def _fitted(so_far: SoFar, number: int) -> SoFar:
    """A stage that needs its own artifact ends a fold of its own, unless a pass behind the last fold applies it. One
    that only leaves an artifact rides on the fold that runs it for good."""
    stage = so_far.job.stages[number]
    if isinstance(stage, Applies) and not so_far.ending.applies_artifacts:
        return so_far.fold("fit", number + 1, Ending(wrote="an artifact"), (number,))
    return replace(so_far, riding=(*so_far.riding, number)) if isinstance(stage, Fits) else so_far


def last_fold(so_far: SoFar) -> SoFar:
    kind = "gather" if so_far.reader.exchange else "map"
    ending = so_far.ending.behind(so_far.reader) if so_far.reader.exchange else so_far.ending
    return so_far.fold(kind, len(so_far.job.stages), ending, so_far.riding)


SHARDS = Kind(endings=(shards_ending,), before=_fitted)
