"""Trial: a worker tries a little of the job before there is a plan: what a function yields, what rows cost.

It is started when it is first needed. One that dies is followed by another, which takes less or leaves a file out.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from penstock.base.errors import PlanError, TaskError
from penstock.base.processes.nursery import Nursery
from penstock.base.sizes import format_size
from penstock.prepare import passes
from penstock.prepare.budget.costs import Measured
from penstock.prepare.budget.means import Settings
from penstock.prepare.engines.attempts import MEASURING, SCOUTING
from penstock.prepare.engines.events import ATTEMPTS, Give
from penstock.prepare.engines.trying.asking import HOLDING, LEAST_BYTES, Asking, GivenUp, Question
from penstock.prepare.sources import File, SourceOptions
from penstock.prepare.sources.slices import Segment, Slice
from penstock.prepare.survey.scouting import Scouted

_PREFIX, _OLD_SECONDS = "penstock-measure-", 3600


class Trial:
    """`limit` is what it may hold. With `passes_over_hangs`, a file in which a function hangs is left to its task."""

    def __init__(self, nursery: Nursery, timeout: float, limit: int, passes_over_hangs: bool) -> None:
        self._asking = Asking(nursery, timeout, limit, passes_over_hangs)
        self._tried: set[str] = set()  # files that it has come to the end of

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *exception: object) -> None:
        self._asking.end()

    def get_ready(self) -> None:
        """Let the process that workers come from import, while the driver goes on."""
        self._asking.nursery.begin()

    def may_hold(self, limit: int) -> None:
        """From now on: the driver has grown with what it knows of the input."""
        self._asking.limit = limit

    def scout(
        self, files: Sequence[File], options: SourceOptions, floats: str | None, missing: dict[str, Any]
    ) -> Scouted:
        """Call a user's function, to see what it yields. A file that ends its process is passed over here."""
        left = tuple(files)

        def facts(give: Give) -> tuple[Any, ...]:
            nonlocal left
            lost = {path for path, _, _ in give.lost}
            left = tuple(file for file in left if file.path not in lost) or left
            return left, options, floats, missing

        try:
            answer: Scouted = self._asking.ask(Question("scout", options.function_name, None, facts), SCOUTING)
        except GivenUp as death:
            raise self._given_up(options.function_name, str(death)) from None
        self._tried.update(answer.tried)
        return answer

    def _given_up(self, function: str, death: str) -> TaskError:
        """The error after all attempts. It names the memory if that was, or may have been, the reason."""
        asking = self._asking
        held, before = format_size(asking.held), format_size(asking.place_bytes)
        what = f"{function} ended its process {ATTEMPTS} times, the last time by {death}"
        next_step = "call it yourself on that file to see why, or allow more `memory:`"
        if not death.startswith(HOLDING):
            what += f"; it held {held} then, and {before} before this file"
        kept, grown = asking.place_bytes - asking.ready_bytes, asking.held - asking.ready_bytes
        if kept > max(grown / 2, LEAST_BYTES / 2):
            what = f"{function} keeps memory from one file to the next: its process held {before} before this file and "
            what += f"{held} in it, and ended {ATTEMPTS} times, the last time by {death}"
            next_step = "free what earlier files left in memory (caches, lists in the module), or allow more `memory:`"
        return TaskError(what, where=asking.place, next_step=next_step)

    def measure(
        self, trials: Sequence[passes.Trial], slices: tuple[Slice, ...], settings: Settings, room: int
    ) -> Measured:
        """Measure the first slices. Files that a user's function has not come through yet are left to their tasks."""
        slices = tuple(replace(piece, segments=self._known(piece)) for piece in slices if self._known(piece))
        where = str(slices[0]) if slices else None

        def facts(give: Give) -> tuple[Any, ...]:
            return trials, slices, replace(settings, batch_bytes=give.batch_bytes), room

        question = Question("measure", "the first rows of the input, which are measured,", where, facts)
        try:
            answer: Measured = self._asking.ask(question, replace(MEASURING, batch_bytes=settings.batch_bytes))
            return answer
        except GivenUp as ended:
            death = str(ended)
        if death.startswith(HOLDING):
            raise PlanError(
                f"even the smallest part of the job needs more memory: the worker that measured the first rows of the "
                f"input was stopped {ATTEMPTS} times, the last time {death}",
                where=where,
                next_step="a larger `memory:`; twice as much is a start",
            )
        raise TaskError(
            f"the worker that measured the first rows of the input died {ATTEMPTS} times, the last time by {death}",
            where=where,
            next_step="allow more memory, or run with `workers: 0` to see what happens inside one process",
        )

    def _known(self, piece: Slice) -> tuple[Segment, ...]:
        return tuple(segment for segment in piece.segments if not self._tried or segment.path in self._tried)


@contextmanager
def in_folder(trials: Sequence[passes.Trial]) -> Iterator[list[passes.Trial]]:
    """The trials, writing into a folder of the driver's, so that a measuring worker that is killed leaves nothing."""
    _sweep()
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-") as folder:
        yield [trial._replace(work=replace(trial.work, root=folder)) for trial in trials]


def _sweep() -> None:
    """Remove what planning left behind when it was killed, an hour ago or more."""
    for name in os.listdir(tempfile.gettempdir()):
        path = os.path.join(tempfile.gettempdir(), name)
        owner = name.removeprefix(_PREFIX).partition("-")[0]
        if name.startswith(_PREFIX) and owner.isdecimal() and not os.path.exists(f"/proc/{owner}"):
            with suppress(OSError):  # another's, or gone meanwhile
                if os.stat(path).st_mtime < time.time() - _OLD_SECONDS:
                    shutil.rmtree(path)
