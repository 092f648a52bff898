"""Jit: how every kernel is compiled: strict arithmetic, no GIL, kept on disk for as long as its source is the same."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from penstock.base.fingerprint import digest

Function = TypeVar("Function", bound=Callable[..., Any])
_SOURCES = Path(__file__).parent.parent  # kernels take constants and parts from all over the loader
_STAMP = "penstock-sources"


def jit(function: Function) -> Function:
    """Compile a kernel. Without fastmath: the plain version must agree bit by bit."""
    return _compiled(function)


def jit_inline(function: Function) -> Function:
    """Compile a part of a kernel inline: a call would copy the forty numbers in tables, plan and scratch."""
    return _compiled(function, forceinline=True)


def _compiled(function: Function, **options: Any) -> Function:
    try:
        made = numba.njit(function, cache=True, nogil=True, error_model="numpy", **options)
    except RuntimeError as error:  # numba finds no folder to keep it in
        _warn_of_no_cache(str(error))
        return cast(Function, numba.njit(function, nogil=True, error_model="numpy", **options))
    _forget_older_kernels(made.stats.cache_path)
    return cast(Function, made)


@cache
def _warn_of_no_cache(reason: str) -> None:
    warnings.warn(
        f"kernels cannot be cached, so every process compiles them (about 20 s): {reason.splitlines()[0]}. "
        "Try: NUMBA_CACHE_DIR=a writable folder",
        RuntimeWarning,
        stacklevel=2,
    )


@cache
def _forget_older_kernels(folder: str) -> None:
    """numba looks at the file of a kernel alone, and not at those whose functions went into it: after an upgrade it
    would run old code, or fail to read its own index. What other sources left is removed before it is looked at."""
    place, stamp = Path(folder), _sources_stamp()
    with suppress(OSError):  # a cache that cannot be read or written is none: everything is compiled each time
        if place.is_dir() and (place / _STAMP).is_file() and (place / _STAMP).read_text() == stamp:
            return
        for kernel in [*place.glob("*.nbi"), *place.glob("*.nbc")]:
            kernel.unlink(missing_ok=True)
        place.mkdir(parents=True, exist_ok=True)
        (place / _STAMP).write_text(stamp)


def _sources_stamp() -> str:
    return digest(*(source.read_bytes() for source in sorted(_SOURCES.rglob("*.py"))))
