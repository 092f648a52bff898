"""Other folder: one beside the output that a job holds while it runs. A stage or a source names it; run.py holds it."""

from collections.abc import Callable
from dataclasses import dataclass


def _nothing() -> None: ...


@dataclass(frozen=True)
class OtherFolder:
    root: str
    what: str  # in the refusal, should another run hold it
    key: str  # of the job that names it
    shared: bool = False  # whether others may read it meanwhile
    refuse_changed: Callable[[], None] = _nothing  # called when it is held
