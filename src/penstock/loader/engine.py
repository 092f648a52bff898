"""Engine: whether rows are made by the compiled kernels or by the plain ones. Both give the same bytes."""

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
    """Log a notice if compilation takes long. Kernels are compiled once per machine, and cached."""
    notice = threading.Timer(_PATIENCE, log.warning, ["compiling kernels, once per machine: about 20 s"])
    notice.daemon = True
    notice.start()
    try:
        yield
    finally:
        notice.cancel()


@cache
def _has_numba() -> bool:
    try:
        import numba  # noqa: F401

        return True
    except Exception as error:  # not installed, or it does not go with this numpy: any error of its import
        reason = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"numba cannot be imported ({reason}): batches are made in plain Python, some hundred times slower. "
        "Try: pip install 'penstock[loader]'",
        RuntimeWarning,
        stacklevel=2,
    )
    return False
