"""Carried code: functions and classes that no other process can import, by a name, and as bytes to send them.

A function of a module is written `module:name` in a job. One of a script, a notebook or a closure is written
`name@digest`, and this table has it: in each process a copy, as it was when the job was planned.
"""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.base.errors import ConfigError, printable
from penstock.base.user_code.copying import copied, copy_of, message_bytes
from penstock.base.user_code.identity import Identity, identity_of, importable_name, name_of, refuse_other_modules

_TARGET = re.compile(r"[A-Za-z_]\w*@[0-9a-f]{12}")


@dataclass(frozen=True)
class Carried:
    """A copy of an object and all that it uses, as they were when the job was planned: the one that `data` makes.

    The driver calls a copy too, so that tasks without workers see what a worker would see.
    """

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
    if target not in _table:  # a copy may be at work already
        _table[target] = _copied(thing, identity)
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


def refuse_own_order(target: str) -> None:
    """In a driver that does the tasks: raise ConfigError if carried code may see the order that a set has here."""
    for owner, name in carried(target).identity.sets if is_carried(target) and sys.flags.hash_randomization else ():
        raise ConfigError(
            printable(
                f"{owner} uses {name}: the order of a set, and `hash`, differ between processes. Workers have one hash "
                "seed, but without workers the tasks are done in this process, which has another"
            ),
            next_step="sort it into a tuple (or dict.fromkeys(sorted(it)), in which `in` is as fast); or set "
            "`workers: 1`; or start Python with PYTHONHASHSEED=0, as workers are",
        )


def carried_files(target: str) -> frozenset[str]:
    """Files that carried code was written in; none for a target that is imported."""
    return carried(target).identity.files if is_carried(target) else frozenset()


# On the way to a worker.


def packed(message: Any) -> tuple[bytes, dict[str, Carried]]:
    """(the message as bytes, the carried code that it names). Classes of this session are among it."""
    classes = {each.thing: target for target, each in _table.items() if isinstance(each.thing, type)}
    data = message_bytes(message, classes, _thing) if classes else pickle.dumps(message, protocol=5)
    return data, {target: each for target, each in _table.items() if target.encode() in data}


def accept(table: Mapping[str, Carried]) -> None:
    """Register carried code, inside a worker."""
    _table.update(table)


def _thing(target: str) -> Any:
    return carried(target).thing


def _unpacked(identity: Identity, data: bytes) -> Carried:
    return Carried(copy_of(data), identity, data)


def _copied(thing: Any, identity: Identity) -> Carried:
    try:
        return _unpacked(identity, copied(thing))
    except Exception as error:
        raise ConfigError(
            printable(f"{name_of(thing)} cannot be sent to a worker: {type(error).__name__}: {error}"),
            next_step="make that object inside the function; or save the function in a module and give it as "
            "'module:name'",
        ) from error


def _plain(name: str) -> str:
    return name if name.isascii() else re.sub(r"\W", "_", name.encode("ascii", "replace").decode())
