"""Proving: compares the engines of a job with what defines them, on its own documents, while its tasks run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.base.errors import TaskError
from penstock.prepare.stages.interfaces import unproved
from penstock.prepare.survey.survey import Survey


class EngineDiffers(BaseException):
    """An engine was found wrong about a document of the job; the message says which, and what was found. It ends a run
    that has not failed: the job is planned again, and resumed."""


class Proving:
    def __init__(self, survey: Survey) -> None:
        self._comparisons = unproved(survey.stages, survey.sample)

    def end(self) -> None:
        for each in self._comparisons:
            each.end()

    def check(self, waits: bool = False) -> None:
        """Raise EngineDiffers if an engine is known to be wrong; where it `waits`, all are known."""
        for each in self._comparisons:
            if trouble := each.trouble(waits):
                raise EngineDiffers(trouble)

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Where a task cannot be done: an engine that is wrong may have ended its workers."""
        try:
            yield
        except TaskError:
            self.check(waits=True)
            raise


@contextmanager
def blaming_engines(survey: Survey) -> Iterator[None]:
    """Where work cannot be tried: compare the engines then."""
    try:
        yield
    except TaskError:
        proving = Proving(survey)
        try:
            proving.check(waits=True)
        finally:
            proving.end()
        raise
