"""Sendable: a user's function -> its name, and the Job by which a process finds it. Next: processes.py."""

from __future__ import annotations

import functools
import os
import pickle
import re
import reprlib
import sys
import threading
from multiprocessing import current_process
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ConfigError
from penstock.base.numbers import is_positive, is_whole
from penstock.loader.feeding.served import Job

if TYPE_CHECKING:
    from penstock.loader.batches import Function

_MOST = 1024  # processes
_MOST_CHARACTERS = 80  # of the arguments in a name: it goes into every state


def name_of(function: Any) -> str:
    """`module.function`, of a callable object that of its class; of a functools.partial with what it has frozen."""
    frozen = []
    if isinstance(function, functools.partial):
        frozen = [_ARGUMENTS.repr(each) for each in function.args]
        frozen += [f"{name}={_ARGUMENTS.repr(value)}" for name, value in function.keywords.items()]
    arguments = f"({_shortened(', '.join(frozen), _MOST_CHARACTERS)})" if frozen else ""
    return _plain_name(function) + arguments


def check_sendable(function: Function) -> None:
    """Refuse a function that no process would find. Nothing is started."""
    if not _is_imported_by_a_process():  # which may make a loader, but starts none
        _pickle(function)


def check_count(processes: int, timeout: float, least: int = 0) -> None:
    """Refuse impossible numbers of map()."""
    if not is_whole(processes, least, _MOST) or not is_positive(timeout) or timeout > threading.TIMEOUT_MAX:
        threads = " (or 0: the loader's threads)" if least == 0 else ""
        raise ConfigError(
            f"map: {processes!r} processes with timeout={timeout!r} is not possible",
            where="loader.map",
            next_step=f"processes=1 or more{threads}, and timeout= in seconds, above 0: processes=4, timeout=4.0",
        )


def make_job(function: Function, timeout: float) -> Job:
    name, place = _plain_name(function), place_of(function)
    if _is_imported_by_a_process():
        raise ConfigError(
            f"map({name}): each process imports the script that starts it, which would start processes again",
            where=place,
            next_step="put the work of the script below `if __name__ == '__main__':`, or the function in a module",
        )
    pickled, main = _pickle(function)
    path = [os.path.abspath(folder) for folder in sys.path]
    return Job(name, place, pickled, main, path, list(sys.argv), timeout)


def _is_imported_by_a_process() -> bool:
    return getattr(current_process(), "_inheriting", False)  # multiprocessing's word for: the script is being imported


def _pickle(function: Function) -> tuple[bytes, dict[str, str]]:
    """The function by its name, and how to import the script if it is defined there."""
    name, place = _plain_name(function), place_of(function)
    try:
        pickled = pickle.dumps(function, protocol=5)
    except Exception as error:
        raise ConfigError(
            f"map({name}): this function cannot be sent to a process: processes import functions by name ({error})",
            where=place,
            next_step="move it to the top level of a module, or run map in threads",
        ) from error
    in_script = b"__main__" in pickled or b"__mp_main__" in pickled
    main = _main_script() if in_script else {}
    if in_script and not main:
        raise ConfigError(
            f"map({name}): this function is defined in an interactive session, which a process cannot import",
            where=place,
            next_step="move it to a module (a .py file), or run map in threads",
        )
    return pickled, main


def _main_script() -> dict[str, str]:
    """Arguments with which a process imports the user's script: its name if it runs as `python -m`, else its path."""
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):
        return {"init_main_from_name": spec.name}
    file = getattr(main, "__file__", None)
    return {"init_main_from_path": os.path.abspath(file)} if file and os.path.exists(file) else {}


def _wrapped(function: Any) -> Any:
    function = getattr(function, "func", function)  # the one that a chain of them is named for
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _plain_name(function: Any) -> str:
    named = _wrapped(function)
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return ".".join(filter(None, [getattr(named, "__module__", None), named.__qualname__]))


def place_of(function: Any) -> str | None:
    code = getattr(_wrapped(function), "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code else None


class _Arguments(reprlib.Repr):
    """Names arguments equally in every process: without memory addresses, and with sets and dicts sorted."""

    def repr1(self, x: Any, level: int) -> str:
        return name_of(x) if callable(x) else super().repr1(x, level)

    def repr_instance(self, x: Any, level: int) -> str:  # noqa: ARG002
        return _shortened(re.sub(r" at 0x[0-9a-fA-F]+", "", repr(x)), self.maxother)


_ARGUMENTS = _Arguments()


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-(most // 2) :]}"
