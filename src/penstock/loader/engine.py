"""Engine: whether rows are made by the compiled kernels or by the plain ones. Both give the same bytes."""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

log = logging.getLogger("penstock")
_PATIENCE = 3.0  # seconds; loading kernels that are there takes 0.3
PLAIN = "PENSTOCK_PLAIN"  # set to 1: do without the compiled kernels


def compiled() -> bool:
    return os.environ.get(PLAIN, "0") in ("", "0") and _has_numba()


@contextmanager
def noticing_compilation() -> Iterator[None]:
    """Say why it takes so long, where it does: kernels are compiled once a machine, and kept."""
    notice = threading.Timer(_PATIENCE, log.warning, ["compiling the kernels for this machine, once: about 20 s"])
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()


@cache
def _has_numba() -> bool:
    if importlib.util.find_spec("numba"):
        return True
    warnings.warn(
        "numba is not installed: batches are made in plain Python, some hundred times slower. "
        "Try: pip install 'penstock[loader]'",
        RuntimeWarning,
        stacklevel=2,
    )
    return False
