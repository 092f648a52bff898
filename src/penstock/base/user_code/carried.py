"""Carried code: functions and classes that no other process can import, by a name, and as bytes to send them.

A function of a module is written `module:name` in a job. One of a script, a notebook or a closure is written
`name@digest`, and this table has it: in the driver the function itself, in a worker the copy that it was sent.
"""

from __future__ import annotations

import functools
import io
import pickle
import re
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import ConfigError, printable
from penstock.base.user_code.identity import (
    Identity,
    find_in,
    identity_of,
    importable_name,
    load_by_name,
    name_of,
    refuse_other_modules,
)

_TARGET = re.compile(r"[A-Za-z_]\w*@[0-9a-f]{12}")


@dataclass(frozen=True)
class Carried:
    """An object that is sent as `data`: itself, as it was when the job was planned, with all that it uses."""

    thing: Any = field(repr=False)
    identity: Identity
    data: bytes = field(repr=False)

    def __reduce__(self) -> Any:
        return (_unpacked, (self.identity, self.data))


_table: dict[str, Carried] = {}


def is_carried(target: str) -> bool:
    return _TARGET.fullmatch(target) is not None


def shown_name(target: str) -> str:
    """Name of a target for people: that of a carried function is without its digest."""
    return target.partition("@")[0] if is_carried(target) else target


def target_of(thing: Any) -> str:
    """The name of a function, class or other callable in a job. If it cannot be imported, its code is carried.

    Raises ConfigError for one that uses a value without identity, or that cannot be sent.
    """
    known = importable_name(thing)
    if known and "." not in known.partition(":")[2]:
        return known
    identity = identity_of(thing)
    target = f"{_plain(name_of(thing))}@{identity.digest[:12]}"
    _table[target] = Carried(thing, identity, _pickled(thing))
    return target


def known_target(kind: type) -> str:
    """The name of a class that a job has named before; also inside a worker."""
    found = next((target for target, each in _table.items() if each.thing is kind), None)
    return found or importable_name(kind) or f"{kind.__module__}:{kind.__qualname__}"


def carried(target: str) -> Carried:
    if target not in _table:
        raise ConfigError(
            f"{target} is a function of another session, and is unknown here",
            next_step="give the function itself, in Python, or save it in a module and write module:name",
        )
    return _table[target]


def carried_identity(target: str) -> str:
    """Identity of carried code. It includes the Python version, because bytecode differs between versions."""
    version = ".".join(map(str, sys.version_info[:2]))
    return f"{shown_name(target)}-{carried(target).identity.digest}, Python {version}"


def refuse_other_values(target: str) -> None:
    """In a worker: raise TaskError if carried code would use other modules, or other values of them, than planned."""
    if is_carried(target):
        refuse_other_modules(shown_name(target), carried(target).identity)


def refuse_changed(target: str) -> None:
    """In the driver: raise ConfigError if carried code, or a value that it uses, was changed since it was named."""
    if is_carried(target) and identity_of(carried(target).thing).digest != carried(target).identity.digest:
        raise ConfigError(
            f"{shown_name(target)}, or a value that it uses, was changed since the job was planned. Without workers "
            "the changed one would be called",
            next_step="plan the job again, or give penstock.run the job itself",
        )


def carried_files(target: str) -> frozenset[str]:
    """Files that carried code was written in; none for a target that is imported."""
    return carried(target).identity.files if is_carried(target) else frozenset()


# On the way to a worker.


def packed(message: Any) -> tuple[bytes, dict[str, Carried]]:
    """(the message as bytes, the carried code that it names). Classes of this session go with it as values."""
    classes = any(isinstance(each.thing, type) for each in _table.values())
    data = _dumps(message) if classes else pickle.dumps(message, protocol=5)
    return data, {target: each for target, each in _table.items() if target.encode() in data}


def accept(table: Mapping[str, Carried]) -> None:
    """Register carried code, inside a worker."""
    _table.update(table)


def _unpacked(identity: Identity, data: bytes) -> Carried:
    return Carried(pickle.loads(data), identity, data)


def _pickled(thing: Any) -> bytes:
    try:
        return _dumps(thing)
    except Exception as error:
        raise ConfigError(
            printable(f"{name_of(thing)} cannot be sent to a worker: {type(error).__name__}: {error}"),
            next_step="make that object inside the function; or save the function in a module and give it as "
            "'module:name'",
        ) from error


def _dumps(thing: Any) -> bytes:
    import cloudpickle  # here: most jobs name their functions

    class Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]
        """Pickles importable objects by name, even if their module was imported again since."""

        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, types.FunctionType | type) and value.__module__ != "builtins":
                name = importable_name(value)
                if name and find_in(value.__module__, value.__qualname__) is not value:
                    return load_by_name, (name,)
            if isinstance(value, functools._lru_cache_wrapper) and importable_name(value) is None:
                return _cached, (value.__wrapped__, value.cache_parameters())
            return super().reducer_override(value)

    with io.BytesIO() as file:
        Pickler(file, protocol=5).dump(thing)
        return file.getvalue()


def _cached(function: Any, parameters: Mapping[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _plain(name: str) -> str:
    return name if name.isascii() else re.sub(r"\W", "_", name.encode("ascii", "replace").decode())
