"""Copying: an object of this session <-> bytes that make the same copy of it in every process. Used by carried.py.

cloudpickle does the work. Its classes come with their attributes in alphabetical order, and its sets in the order that
they have in this process; here, classes keep the order of their definition, and sets have one order.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import io
import operator
import pickle
import types
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from penstock.base.user_code.identity import find_in, importable_name, load_by_name
from penstock.base.user_code.values import in_order

_SENTINELS = tuple(type(each) for each in vars(dataclasses).values() if type(each).__module__ == "dataclasses")
_PARTS_OF_A_CLASS = 6  # how to make it, with what, its state, nothing, nothing, how to set the state


def copied(thing: Any) -> bytes:
    """Bytes of a copy of `thing`, with all that it uses."""
    return _dumps(thing, _copying_pickler)


def copy_of(data: bytes) -> Any:
    return _Unpickler(io.BytesIO(data)).load()


def message_bytes(message: Any, named: Mapping[Any, str], load: Callable[[str], Any]) -> bytes:
    """Bytes of a message in which some classes are named; `load` finds them by their names. pickle.loads reads it."""
    return _dumps(message, lambda: _message_pickler(named, load))


def _dumps(thing: Any, make: Callable[[], Any]) -> bytes:
    with io.BytesIO() as file:
        make()(file, protocol=5).dump(thing)
        return file.getvalue()


@functools.cache
def _pickler() -> Any:
    import cloudpickle  # here: most jobs name their functions

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        """Pickles importable objects by name, even if their module was imported again since."""

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, types.FunctionType | type) and value.__module__ != "builtins":
                name = importable_name(value)
                if name and find_in(value.__module__, value.__qualname__) is not value:
                    return load_by_name, (name,)
            if isinstance(value, _SENTINELS):
                return operator.attrgetter(_sentinel_name(value)), (dataclasses,)
            if isinstance(value, functools._lru_cache_wrapper) and importable_name(value) is None:
                return _cached, (value.__wrapped__, value.cache_parameters())
            reduced = super().reducer_override(value)
            return self._class(value, *reduced) if _is_class_by_value(value, reduced) else reduced

        def _class(self, kind: type, make: Any, arguments: Any, state: Any, *others: Any) -> Any:
            attributes, slots = state
            attributes = _as_defined(kind, attributes)
            if issubclass(kind, enum.Enum):  # cloudpickle leaves out aliases, and flags of several bits
                bases, name, qualname, _, *more = arguments
                members = {member: each.value for member, each in kind.__members__.items()}
                arguments = (bases, name, qualname, members, *more)
                attributes = {name: each for name, each in attributes.items() if name not in members}
            return (make, arguments, (attributes, slots), *others)

    return Pickler


@functools.cache
def _copying_pickler() -> Any:
    class Pickler(_pickler()):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._sets: dict[int, tuple[int, Any]] = {}

        def persistent_id(self, value: Any) -> Any:
            """A set by its number, the first time with its kind and its values in order."""
            if type(value) not in (set, frozenset):
                return None
            if id(value) in self._sets:
                return (self._sets[id(value)][0],)
            number = len(self._sets)
            self._sets[id(value)] = (number, value)
            return number, type(value), in_order(value)

        def reducer_override(self, value: Any) -> Any:
            if not (hasattr(type(value), "_reduce_states") and hasattr(value, "py_func")):
                return super().reducer_override(value)
            # A function of numba, which would find itself in this process, compiled with the globals of another time.
            return _empty, (type(value),), value._reduce_states(), None, None, _fill_compiled

        def _class(self, kind: type, make: Any, arguments: Any, state: Any, *others: Any) -> Any:
            """A name of its own makes a copy in this process too, where cloudpickle would find the class itself."""
            *before, _, extra = arguments
            return super()._class(kind, make, (*before, uuid.uuid4().hex, extra), state, *others)

    return Pickler


def _message_pickler(named: Mapping[Any, str], load: Callable[[str], Any]) -> Any:
    class Pickler(_pickler()):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            name = named.get(value) if isinstance(value, type) else None
            return super().reducer_override(value) if name is None else (load, (name,))

    return Pickler


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._sets: dict[int, Any] = {}

    def persistent_load(self, known: Any) -> Any:
        number, *described = known
        if described:
            kind, values = described
            self._sets[number] = kind(values)
        return self._sets[number]


def _is_class_by_value(value: Any, reduced: Any) -> bool:
    """Whether cloudpickle sends a class with its attributes: others are a name, or a word for a built-in type."""
    return isinstance(value, type) and isinstance(reduced, tuple) and len(reduced) == _PARTS_OF_A_CLASS


def _as_defined(kind: type, attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes in the order of their definition, with those that were left out since a base has the same object."""
    bases = [vars(base) for base in kind.__bases__]
    found = {}
    for name, value in vars(kind).items():
        is_repeated = not name.startswith("__") and any(name in base and base[name] is value for base in bases)
        if name in attributes or is_repeated:
            found[name] = attributes.get(name, value)
    return {**found, **attributes}


def _empty(kind: Any) -> Any:
    return kind.__new__(kind)


def _fill_compiled(function: Any, state: dict[str, Any]) -> None:
    """Make what was empty a function of numba: only now, because it may call itself."""
    function.__init__(state["py_func"], state["locals"], state["targetoptions"])
    for signature in state["sigs"]:
        function.compile(signature)
    function._can_compile = state["can_compile"]


def _sentinel_name(value: Any) -> str:
    """Name of MISSING and the like, which code compares with `is`."""
    return next(name for name, each in vars(dataclasses).items() if each is value)


def _cached(function: Any, parameters: Mapping[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)
