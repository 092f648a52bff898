"""Kept: the machine code of a kernel, one file per signature in the cache of this user. Used by jit.py.

numba's own cache lies beside the code, which may be read-only, and looks at the file of a kernel alone, not at those
whose functions went into it. Here the folder's name is the digest of everything that decides the code, so versions of
penstock and machines that share a home have folders of their own. A file appears whole or not at all, and is never
changed: any number of processes may start at once.
"""

import pickle
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.codegen import get_host_cpu_features
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from penstock.base.cache import KERNELS, VARIABLE, cache_folder, forget_unused, keep, mark_used, read_kept
from penstock.base.errors import FileError, file_error
from penstock.base.fingerprint import digest
from penstock.loader.engine import say_compiling

_SOURCES = Path(__file__).parent.parent  # kernels take constants and parts from all over the loader


class Kept:
    """Store of the code of one kernel, which numba uses in place of its own cache."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"

    @property
    def cache_path(self) -> str | None:
        folder = kernels_folder()
        return None if folder is None else str(folder)

    def load_overload(self, signature: Any, context: Any) -> Any:
        """The compiled kernel, or None: then numba compiles it.

        Numba's runtime is all that machine code needs. numba's own cache prepares for compiling at this place, which
        imports scipy and the extensions of other packages: half a second.
        """
        folder = kernels_folder()
        code = None if folder is None else read_kept(folder / self._file(signature))
        if code is None:
            say_compiling(self.cache_path)
            return None
        rtsys.initialize(context)
        return CompileResult._rebuild(context, *pickle.loads(code))

    def save_overload(self, signature: Any, result: Any) -> None:
        if (folder := kernels_folder()) is not None:
            *facts, environments = result._reduce()
            # One per part. Those without constants are never read, and would import the modules of numba's own parts.
            read = tuple(each for each in environments if each.consts)
            _write(folder / self._file(signature), dumps((*facts, read)))

    def flush(self) -> None:
        """Nothing waits to be written."""

    def _file(self, signature: Any) -> str:
        return f"{self._name}-{digest(str(signature).encode())[:16]}.code"


@cache
def kernels_folder() -> Path | None:
    """Folder of the kernels of this penstock on this machine; None, with a warning, if none can be used."""
    try:
        return required_folder()
    except FileError as error:
        reason = str(error).replace("\n", " ").strip()
        warnings.warn(
            f"kernels cannot be kept, and are compiled in every process: {reason}",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def required_folder() -> Path:
    """The folder of the kernels; a FileError says why none can be used."""
    above = _given_folder() or cache_folder(KERNELS)
    folder = above / _stamp()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise file_error(error, "make the folder of the kernels", str(folder)) from error
    mark_used(folder)
    forget_unused(above)
    return folder


def _given_folder() -> Path | None:
    """Folder that the user gave numba, made as numba would."""
    if not numba.config.CACHE_DIR:
        return None
    folder = Path(numba.config.CACHE_DIR) / "penstock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise file_error(error, "make the folder of the kernels", str(folder)) from error
    return folder


def _stamp() -> str:
    """Digest of what decides machine code: the sources, the compiler, Python, and the processor."""
    made_by = (numba.__version__, llvmlite.__version__, sys.version, numba.config.OPT, *_processor())
    sources = (source.read_bytes() for source in sorted(_SOURCES.rglob("*.py")))
    return digest(repr(made_by).encode(), *sources)


def _processor() -> tuple[Any, ...]:
    from llvmlite import binding

    chosen = (numba.config.CPU_NAME, numba.config.CPU_FEATURES)
    return (binding.get_process_triple(), binding.get_host_cpu_name(), get_host_cpu_features(), *chosen)


def _write(file: Path, code: bytes) -> None:
    try:
        keep(file, code)
    except FileError as error:
        _warn_of_not_kept(error.what, str(file.parent))


@cache
def _warn_of_not_kept(reason: str, folder: str) -> None:
    warnings.warn(
        f"kernels cannot be written to {folder} ({reason}), and are compiled again in the next process. "
        f"Try: {VARIABLE}=a folder of your own that can be written",
        RuntimeWarning,
        stacklevel=2,
    )
