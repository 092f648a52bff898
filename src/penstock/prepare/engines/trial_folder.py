"""Trial folder: the driver's, so that a measuring worker that is killed leaves nothing behind."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from penstock.prepare.passes import Trial

_PREFIX, _OLD_SECONDS = "penstock-measure-", 3600


@contextmanager
def in_folder(trials: Sequence[Trial]) -> Iterator[list[Trial]]:
    """The trials, writing into a folder that is thrown away."""
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
