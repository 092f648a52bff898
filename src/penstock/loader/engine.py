"""Engine: whether rows are made by the compiled kernels or by the plain ones. Both give the same bytes."""

import logging
import os
import warnings
from functools import cache

log = logging.getLogger("penstock")
PLAIN = "PENSTOCK_PLAIN"  # set to 1: do without the compiled kernels


def compiled() -> bool:
    return os.environ.get(PLAIN, "0") in ("", "0") and _has_numba()


@cache
def say_compiling(kept_in: str | None) -> None:
    """Say once why a process waits: a kernel that it needs is not there, and is compiled."""
    place = f"kept in {kept_in}" if kept_in else "for this process alone"
    log.warning("compiling kernels, %s: about 3 s for rows and arrays, 9 s for events", place)


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
