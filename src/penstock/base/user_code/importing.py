"""Importing: a user's module is imported from its source as it is now.

Python takes bytecode for current if the source has the size and the second that it had. An edit within a second of the
one before may change neither, and the old code would run under the identity of the new.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

_LIBRARIES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_PYTHON = (os.path.dirname(os.__file__), *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")))


def is_library_file(top: str, file: str | None) -> bool:
    """Whether a module lies where libraries do. A user's `profile.py` has the name of one of Python's own modules."""
    if file is None or not os.path.isabs(file):  # built into Python, or a folder without a file of its own
        return top in sys.stdlib_module_names
    own = any(file.startswith(os.path.join(place, "")) for place in _PYTHON)
    return any(each in file for each in _LIBRARIES) or (own and top in sys.stdlib_module_names)


def import_module(name: str) -> ModuleType:
    if name in sys.modules:
        return importlib.import_module(name)  # which waits, if a thread is importing it now
    with current_sources():
        return importlib.import_module(name)


@contextmanager
def current_sources() -> Iterator[None]:
    """Within it, no module of a user's is imported from bytecode that is older than its source."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """None, for other finders to go on, unless there is old bytecode."""
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or type(spec.loader) is not SourceFileLoader or not _is_old(spec.cached, spec.loader.path):
            return None
        if is_library_file(name.partition(".")[0], spec.origin):  # nobody edits those; a copy has times of its own
            return None
        spec.loader = _FromSource(name, spec.loader.path)
        return spec


class _FromSource(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _is_old(bytecode: str | None, source: str) -> bool:
    """Whether the source may have changed after its bytecode was written, whatever time it was given; a tie counts."""
    try:
        return bytecode is not None and os.stat(bytecode).st_mtime_ns <= os.stat(source).st_ctime_ns
    except OSError:  # there is none
        return False
