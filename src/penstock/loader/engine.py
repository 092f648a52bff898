"""Engine: whether rows are made by the compiled kernels or by the plain ones. Both give the same bytes."""

from __future__ import annotations

import importlib.util
import os
import warnings
from functools import cache

PLAIN = "PENSTOCK_PLAIN"  # set to 1: do without the compiled kernels


def compiled() -> bool:
    return os.environ.get(PLAIN, "0") in ("", "0") and _has_numba()


@cache
def _has_numba() -> bool:
    if importlib.util.find_spec("numba"):
        return True
    warnings.warn(
        "numba is not installed: batches are made in plain Python, some thousand times slower. "
        "Try: pip install 'penstock[loader]'",
        RuntimeWarning,
        stacklevel=2,
    )
    return False
