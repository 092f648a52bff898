"""Modules: the source of a user's module and of the modules it imports from the same place -> one hash."""

import ast
import importlib.util
import os
import sys
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from types import ModuleType
from typing import Any

from penstock.base.errors import PenstockError
from penstock.base.files import ReadFile
from penstock.base.fingerprint import digest
from penstock.base.user_code.importing import import_module, is_library_file

# When this process started. Elsewhere than on Linux it is not known, and every module counts as outdated.
_STARTED = os.stat("/proc/self").st_ctime if os.path.isdir("/proc/self") else 0.0
_remembered = lru_cache(maxsize=256)  # by source: the modules of a job are looked at a dozen times
_SEEN: dict[str, tuple[int, str]] = {}  # by name: the module that was seen last, and the digest of its source


def module_digest(module: ModuleType) -> str:
    """Hash of the sources of `module` and of its own modules."""
    files = {name: digest(_source(each)) for name, each in own_modules(module)}
    return digest(repr(sorted(files.items())).encode())


def is_library(name: str) -> bool:
    """Whether a module is installed, a part of Python or of penstock: not the user's own, and known by its name."""
    top = name.partition(".")[0]
    if top in ("builtins", "penstock"):
        return True
    return is_library_file(top, getattr(sys.modules.get(name), "__file__", None))


def imported(name: str) -> ModuleType | None:
    """The user's own module of that name; None for a library, and for what is no module.

    A function that imports it when it is called has its code, too. Libraries are not imported for that.
    """
    top = name.partition(".")[0]
    if name not in sys.modules:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError, AttributeError):
            return None
        if spec is None or is_library_file(top, spec.origin):
            return None
        try:
            import_module(name)
        except Exception:  # it is no module; or the function will say so when it is called
            return None
    return None if is_library(name) else sys.modules.get(name)


def is_outdated(module: ModuleType, folder: str | None) -> bool:
    """Whether a module is of another folder, if one is given, or its file may have changed since it was imported.

    A module that is seen for the first time has not, if its file is older than this process.
    """
    file = getattr(module, "__file__", None)
    if file is None:
        return False
    if not os.path.isfile(file):
        return folder is not None
    if folder is not None and not os.path.realpath(file).startswith(os.path.join(os.path.realpath(folder), "")):
        return True
    known, now = _SEEN.get(module.__name__), digest(_source(module))
    _SEEN[module.__name__] = (id(module), now)
    return now != known[1] if known and known[0] == id(module) else os.stat(file).st_mtime >= _STARTED


def own_modules(module: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    """The module and those that it imports from its package, or from its folder when it is a single file."""
    roots = _roots(module)
    pending, seen = [module], {module.__name__}
    while pending:
        each = pending.pop()
        yield each.__name__, each
        for name in _imports(each):
            found = sys.modules.get(name)
            if found and name not in seen and (getattr(found, "__file__", None) or "").startswith(roots):
                seen.add(name)
                pending.append(found)


def values_set_since(module: ModuleType) -> Iterator[tuple[str, str, Any, Any]]:
    """(module, name, value in its file, value now) of constants of own modules that were set after the import.

    Constants are names to which the file gives one plain value, once.
    """
    for name, each in own_modules(module):
        for constant, written in _constants(each).items():
            now = vars(each).get(constant, written)
            if (type(now), repr(now)) != (type(written), repr(written)):
                yield name, constant, written, now


def _constants(module: ModuleType) -> dict[str, Any]:
    """Numbers, texts, bytes, bools and None that a module's source gives a name at its top level, and never again."""
    return _constants_of(_readable(module))


@_remembered
def _constants_of(source: bytes) -> dict[str, Any]:
    tree = _tree(source)
    nodes = list(ast.walk(tree))
    stored = Counter(node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
    changing = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            found[ast.unparse(target)] = node.value.value
    return {name: value for name, value in found.items() if stored[name] == 1 and name not in changing}


def _source(module: ModuleType) -> bytes:
    assert module.__file__
    with ReadFile(module.__file__) as file:
        return file.read()


def _roots(module: ModuleType) -> tuple[str, ...]:
    """Folders of a module's own modules, or its file. A package without an `__init__.py` may have several folders."""
    top = sys.modules[module.__name__.partition(".")[0]]
    if not top.__file__:
        return tuple(os.path.join(each, "") for each in getattr(top, "__path__", ())) or (str(module.__file__),)
    folder = os.path.dirname(top.__file__)
    alone = not hasattr(top, "__path__") and "site-packages" in folder
    return (str(module.__file__) if alone else os.path.join(folder, ""),)


def _imports(module: ModuleType) -> tuple[str, ...]:
    """Full names that a module's source imports, wherever in it; a name may be a module or something inside one."""
    package = module.__spec__.parent if module.__spec__ else ""
    return _imports_of(_readable(module), package or None)


@_remembered
def _imports_of(source: bytes, package: str | None) -> tuple[str, ...]:
    found: list[str] = []
    for node in ast.walk(_tree(source)):
        if isinstance(node, ast.Import):
            found += (each for alias in node.names for each in accumulate(alias.name.split("."), "{}.{}".format))
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            found += (base, *(f"{base}.{alias.name}" for alias in node.names))
    return tuple(found)


def _readable(module: ModuleType) -> bytes:
    """Its source; none of an extension in C, whose bytes count, but which has no source to see."""
    if not str(module.__file__).endswith(".py"):
        return b""
    try:
        return _source(module)
    except PenstockError:  # it was removed since: importing it will say so
        return b""


def _tree(source: bytes) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError:  # it was edited since: importing it will say so
        return ast.Module([], [])
