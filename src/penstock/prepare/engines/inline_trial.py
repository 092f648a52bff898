"""Inline trial: a little of the job is tried inside the driver, where its tasks will be done too."""

from __future__ import annotations

from penstock.prepare.passes.folds.trying.measure import measure
from penstock.prepare.survey.scouting import scout


class InlineTrial:
    """Nobody watches it."""

    scout = staticmethod(scout)
    measure = staticmethod(measure)

    def __enter__(self) -> InlineTrial:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def may_hold(self, limit: int) -> None: ...
