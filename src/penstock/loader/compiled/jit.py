"""Jit: how every kernel is compiled: strict arithmetic, no GIL, cached on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """No fastmath: the plain version has to agree bit by bit."""
    return cast(Function, numba.njit(function, cache=True, nogil=True, error_model="numpy"))
