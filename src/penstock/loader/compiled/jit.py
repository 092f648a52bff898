"""Jit: how every kernel is compiled: strict arithmetic, no GIL, cached on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def jit(function: Function) -> Function:
    """No fastmath: the plain version has to agree bit by bit."""
    return cast(Function, numba.njit(function, cache=True, nogil=True, error_model="numpy"))


def jit_inline(function: Function) -> Function:
    """For a part of a kernel: a call would copy the forty numbers that tables, plan and scratch are made of."""
    return cast(Function, numba.njit(function, cache=True, nogil=True, error_model="numpy", forceinline=True))
