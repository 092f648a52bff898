"""User code: find, call and identify what `module:name` in a job stands for; or `name@digest`, see carried.py."""

import importlib
import importlib.util
import inspect
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.base.errors import ConfigError, PenstockError, TaskError, did_you_mean, printable
from penstock.base.user_code.carried import accept as accept
from penstock.base.user_code.carried import carried, carried_files, carried_identity, is_carried, shown_name
from penstock.base.user_code.carried import refuse_other_values as refuse_other_values
from penstock.base.user_code.importing import current_sources as current_sources
from penstock.base.user_code.importing import import_module
from penstock.base.user_code.modules import is_library, is_outdated, module_digest, own_modules, values_set_since

_MODULE_AND_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def is_target(text: str) -> bool:
    """Whether a text stands for an object of the user's own."""
    return _MODULE_AND_NAME.fullmatch(text) is not None or is_carried(text)


def load_object(target: str) -> Any:
    if is_carried(target):
        return carried(target).thing
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def load_user_object(target: str) -> Any:
    """The object that a target stands for; a ConfigError if there is none."""
    if is_carried(target):
        return carried(target).thing
    module, _, attribute = target.partition(":")
    if module == "__main__":
        raise _no_module(attribute)
    if module in _under_way():
        raise _StartsItself(_line_in(module))
    _under_way().add(module)
    try:
        loaded = import_module(module)
    except _StartsItself as error:
        raise ConfigError(
            f"importing {module}, to find its functions, starts the job that imports {module}: it would never end",
            where=error.args[0],
            next_step="put the work of the script below `if __name__ == '__main__':`, or its functions in another "
            "module",
        ) from None
    except ModuleNotFoundError as error:
        own = module.partition(".")[0] == str(error.name).partition(".")[0]
        beside = f"put {module.partition('.')[0]}.py beside the job file, or " if own else ""
        raise ConfigError(
            f"there is no module {error.name!r}" + ("" if own else f", which {module} imports"),
            next_step=f"{beside}install the package that has it",
        ) from error
    except Exception as error:
        raise ConfigError(
            f"importing {module} raised {type(error).__name__}: {error}", where=_place(error, f"{module}:")
        ) from error
    finally:
        _under_way().discard(module)
    if not hasattr(loaded, attribute):
        names = [name for name in vars(loaded) if not name.startswith("_")]
        raise ConfigError(f"module {module!r} has no {attribute!r}.{did_you_mean(attribute, names)}")
    return getattr(loaded, attribute)


class _StartsItself(Exception):
    """A module starts the job that imports it. The argument is the line."""


_importing = threading.local()


def _under_way() -> set[str]:
    """Modules that this thread is importing."""
    found: set[str] = _importing.__dict__.setdefault("modules", set())
    return found


def _line_in(module: str) -> str:
    """The innermost line of a module that is being run."""
    frame = inspect.currentframe()
    while frame and frame.f_globals.get("__name__") != module:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}" if frame else module


def _no_module(attribute: str) -> ConfigError:
    """A worker is a process of its own, whose __main__ is penstock's."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    next_step = f"save the function in a file, such as features.py beside this session, and write features:{attribute}"
    if script and os.path.isfile(script):  # code from standard input has the name <stdin>
        name = os.path.splitext(os.path.basename(script))[0]
        next_step = f"write {name}:{attribute}, and put the work of the script below `if __name__ == '__main__':`"
    return ConfigError(
        f"__main__:{attribute}: workers cannot import __main__, which is another program in each process",
        next_step=f"give the function itself, {attribute}, in place of its name; or {next_step}",
    )


def forget_modules(folder: str, targets: Iterable[str]) -> None:
    """Let modules of `module:name` be imported anew if they may have changed, with those they import from their place.

    Two jobs of one process may each have a `mine.py`, and a notebook's user edits it between two runs. Modules that are
    what they were stay: others may hold their functions, which could not be sent to a process any more.
    """
    importlib.invalidate_caches()
    for module in {target.partition(":")[0] for target in targets} - {"__main__"}:
        top = module.partition(".")[0]
        files = (f"{top}.py", f"{top}/__init__.py", f"{module.replace('.', '/')}.py")  # the last without __init__.py
        if any(os.path.exists(os.path.join(folder, file)) for file in files):
            loaded = [each for each in sys.modules if each == top or each.startswith(f"{top}.")]
            _forget(folder, {*loaded, *(name for each in loaded for name in _own(each))})
        elif module in sys.modules and not is_library(module):
            _forget(None, _own(module))


def _own(module: str) -> set[str]:
    """Names of a module's own modules."""
    found = sys.modules[module]
    return {name for name, _ in own_modules(found)} if getattr(found, "__file__", None) else set()


def _forget(folder: str | None, names: set[str]) -> None:
    """Forget these modules if one of them is outdated."""
    if not any(is_outdated(sys.modules[name], folder) for name in names if name in sys.modules):
        return
    for name in names:
        forgotten, (package, _, own) = sys.modules.pop(name, None), name.rpartition(".")
        parent = sys.modules.get(package)
        if forgotten and parent and vars(parent).get(own) is forgotten:
            delattr(parent, own)  # `from package import own` would still find it there


def refuse_set_values(target: str) -> None:
    """Refuse a module of which a constant was set since it was imported: workers would use the value of its file."""
    module = sys.modules.get(target.partition(":")[0])
    if module is None or is_library(module.__name__) or not getattr(module, "__file__", None):
        return
    for name, constant, written, now in values_set_since(module):
        raise ConfigError(
            printable(
                f"{name}.{constant} is {now!r}, and was {written!r} when {name} was imported. Workers import {name} "
                f"themselves, and {target} would use {written!r} there"
            ),
            next_step=f"give the value to the function, with functools.partial or as an option; or set it in {name}",
        )


def _place(error: BaseException, target: str) -> str:
    """The last line of the user's own code that the error passed; a library's line would say less."""
    frames = traceback.extract_tb(error.__traceback__)
    files = _files_of(target)
    own = [frame for frame in frames if frame.filename in files]
    frame = (own or frames)[-1]
    line = f": {frame.line}" if frame.line else ""  # that of a notebook's cell is known to its kernel only
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}{line}"


def _files_of(target: str) -> frozenset[str]:
    """Files of the user's code behind a target."""
    if is_carried(target):
        return carried_files(target)
    spec = importlib.util.find_spec(target.partition(":")[0])
    return frozenset([spec.origin] if spec and spec.origin else ())


def call_user(target: str, *arguments: Any, **options: Any) -> Any:
    with telling(target):
        return load_object(target)(*arguments, **options)


@contextmanager
def telling(*targets: str) -> Iterator[None]:
    """Turn an error of the user's code into a TaskError that names its line. Without a target, do nothing."""
    process = os.getpid()
    try:
        yield
    except (PenstockError, MemoryError):  # a worker without memory is tried again with half the batch
        raise
    except (Exception, SystemExit) as error:  # sys.exit(0) in the driver would look like success
        if not targets:
            raise
        told = TaskError(
            f"{shown_name(targets[0])} raised {type(error).__name__}: {error}",
            where=_place(error, targets[0]),
            next_step="fix it and run the same command; tasks of changed code are done again",
        )
        told.add_note("".join(traceback.format_exception(error)))  # the cause itself does not cross processes
        raise told from error
    finally:
        if os.getpid() != process:  # a child that it forked came back: the parent goes on, and must do so alone
            os._exit(1)


def code_identity(target: str) -> str:
    """Hash of the module behind `module:name` and of the modules it imports from the same place; or of carried code.

    That is its package, or its folder when it is a single file beside the job; installed libraries do not count.
    """
    if is_carried(target):
        return carried_identity(target)
    module = importlib.import_module(target.partition(":")[0])
    return f"{target}-{module_digest(module)}" if module.__file__ else target
