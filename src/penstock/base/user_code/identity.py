"""Identity: a function and all that it uses -> a hash that is equal in every process. Used by carried.py.

The hash covers the compiled code of the function, the globals that this code and the code inside it name, captured
values and defaults, and the same for every function and class among them. Line numbers and file names do not count.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import enum
import functools
import importlib
import itertools
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.base.errors import ConfigError, TaskError, printable
from penstock.base.fingerprint import digest, fingerprint
from penstock.base.user_code.classes import (
    annotations_of,
    class_facts,
    dataclass_settings,
    field_settings,
    slots_of,
    written_doc,
)
from penstock.base.user_code.modules import imported, is_library, module_digest, values_set_since
from penstock.base.user_code.values import NoIdentity, in_order, is_in_one_order, is_in_one_order_by_seed, value_token

_SESSIONS = (None, "__main__", "__mp_main__")  # modules that no other process can import
_GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"))
_CONTAINERS = (dict, list, set, frozenset, tuple, str, bytes, bytearray, int, float, complex)


class Place(NamedTuple):
    """A name, and the function or class that uses it."""

    owner: str
    name: str


@dataclass(frozen=True)
class Identity:
    """`files` hold code that has no importable home; `modules` are the user's own that it imports, with their digests.

    `settings` are plain values of those modules that the code uses, each with its digest. `sets` are those whose order
    it may see, which depends on the hash seed.
    """

    digest: str
    files: frozenset[str]
    modules: dict[str, str]
    settings: dict[tuple[str, str], str]
    sets: tuple[Place, ...]


def identity_of(function: Any) -> Identity:
    """Hash of a function and everything it uses. Raises ConfigError for a value without a stable identity."""
    portrait = _Portrait()
    name = name_of(function)
    root = portrait.token(function, Place(name, name))
    while portrait.pending:
        portrait.describe(portrait.pending.pop(0))
    whole = fingerprint([root, portrait.described])
    return Identity(whole, frozenset(portrait.files), portrait.modules, portrait.settings, tuple(portrait.sets))


def refuse_other_modules(name: str, identity: Identity) -> None:
    """In a worker: raise TaskError if the user's modules, as they are imported here, differ from those of the plan."""
    for (module, setting), word in identity.settings.items():
        if plain_digest(getattr(importlib.import_module(module), setting, None)) != word:
            raise TaskError(
                f"{name} uses {module}.{setting}, which was set to another value since {module} was imported. Workers "
                f"import {module} themselves, and would use the value that its file gives",
                next_step=f"give the value to the function: as an argument, a default, or a name beside it; or set it "
                f"in {module}",
            )
    for module, word in identity.modules.items():
        if module_digest(importlib.import_module(module)) != word:
            raise TaskError(
                f"{module}, which {name} uses, was changed while the job was running",
                next_step="run the same command: what the old code wrote is noticed and redone",
            )


def plain_digest(value: Any) -> str:
    """Digest of a plain value, or of the home and name of a function or class; nothing for other objects."""
    if isinstance(value, types.FunctionType | type):
        return fingerprint([value.__module__, value.__qualname__])
    try:
        return fingerprint(_constant(value))
    except (NoIdentity, RecursionError):  # the latter of a list that contains itself
        return ""


def name_of(thing: Any) -> str:
    """Name of a function or class; of a partial that of its function, of an object that of its class."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    name = getattr(thing, "__name__", None) or type(thing).__name__
    return name if name.isidentifier() else "lambda"


def importable_name(thing: Any) -> str | None:
    """`module:name` by which every process finds a function or class; None for one that lives in this session only.

    A module may have been imported anew since: then it holds a later version of the function under that name.
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if module in _SESSIONS or not name.replace(".", "_").isidentifier():
        return None
    if module not in sys.modules and imported(module) is None:  # an earlier job of this process may have forgotten it
        return None
    found = find_in(module, name)
    return f"{module}:{name}" if found is thing or _is_version(found, thing) else None


def find_in(module: str, name: str) -> Any:
    """The object of that dotted name, or None."""
    return functools.reduce(lambda found, part: getattr(found, part, None), name.split("."), sys.modules.get(module))


def load_by_name(target: str) -> Any:
    """The object of `module:name`. Workers call it when they unpickle what was sent by name."""
    module, _, name = target.partition(":")
    importlib.import_module(module)
    return find_in(module, name)


def _is_version(found: Any, thing: Any) -> bool:
    """Whether `found` is the later version of `thing`: its module has been imported anew since."""
    if isinstance(found, types.FunctionType) and isinstance(thing, types.FunctionType):
        one, other = found.__code__, thing.__code__
        is_like_it = (one.co_filename, one.co_name) == (other.co_filename, other.co_name) and not thing.__closure__
        return is_like_it and _had_its_name(thing, thing.__globals__)
    if not (isinstance(found, type) and isinstance(thing, type)):
        return False
    homes = [each.__globals__ for each in vars(thing).values() if isinstance(each, types.FunctionType)]
    is_like_it = (found.__module__, found.__qualname__) == (thing.__module__, thing.__qualname__)
    return is_like_it and (not homes or _had_its_name(thing, homes[0]))


def _had_its_name(thing: Any, home: dict[str, Any]) -> bool:
    """Whether the name of a thing leads to it in the module that made it; it does not where another took the name."""
    first, *parts = thing.__qualname__.split(".")
    return functools.reduce(lambda found, part: getattr(found, part, None), parts, home.get(first)) is thing


@dataclass
class _Portrait:
    """Functions and classes, each described once and otherwise named by its number."""

    described: list[Any] = field(default_factory=list)
    pending: list[Any] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    modules: dict[str, str] = field(default_factory=dict)
    settings: dict[tuple[str, str], str] = field(default_factory=dict)
    sets: list[Place] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)
    _held: list[Any] = field(default_factory=list)  # so that no number of an object is given to another
    _around: list[int] = field(default_factory=list)  # values that are being described

    def token(self, value: Any, place: Place) -> Any:
        """Word for a value: equal for equal values, in every process."""
        if isinstance(value, types.FunctionType | type):
            return self._by_name(value) or self._number(value)
        if isinstance(value, types.ModuleType):
            if value.__name__ in _SESSIONS:
                raise _refusal(place, value, "is another program in each process", "name its values without it; ")
            return self._module(value.__name__)
        if id(value) in self._around:
            raise _refusal(place, value, "contains itself")
        self._around.append(id(value))
        try:
            return self._value(value, place)
        finally:
            self._around.pop()

    def _value(self, value: Any, place: Place) -> Any:
        if isinstance(value, types.MethodType):
            return ["method", self.token(value.__self__, place), self.token(value.__func__, place)]
        if isinstance(value, functools.partial):
            parts = (value.func, value.args, value.keywords, vars(value))
            return ["partial", *(self.token(each, place) for each in parts)]
        if isinstance(value, staticmethod | classmethod):
            return [type(value).__name__, self.token(value.__func__, place)]
        if isinstance(value, functools.cached_property):
            return ["cached", self.token(value.func, place)]
        if isinstance(value, property):
            return ["property", *(self.token(each, place) for each in (value.fget, value.fset, value.fdel))]
        if isinstance(value, functools._lru_cache_wrapper):
            return ["lru_cache", self.token(value.__wrapped__, place)]
        if isinstance(value, enum.Enum):
            return ["enum", self.token(type(value), place), value.name, self.token(value.value, place)]
        if dataclasses.is_dataclass(value):
            return self._dataclass(value, place)
        if type(value) in (set, frozenset):
            self._note_order(value, place)
        return self._plain(value, place)

    def _plain(self, value: Any, place: Place) -> Any:
        try:
            return value_token(value, lambda inner: self.token(inner, place))
        except NoIdentity as error:
            raise _refusal(place, value, str(error)) from None

    def _note_order(self, values: Iterable[Any], place: Place) -> None:
        for each in values:
            if not is_in_one_order_by_seed(each):
                why = f"holds {each!r}: values of type {type(each).__name__} have another order in each process"
                raise _refusal(place, values, why, "sort it into a tuple or a list; ")
        if not all(map(is_in_one_order, values)):
            self.sets.append(place)

    def _dataclass(self, value: Any, place: Place) -> Any:
        """Fields, and what was set besides them, in slots of other classes too; a cached property follows from both."""
        kind = type(value)
        if isinstance(value, _CONTAINERS):
            raise _refusal(place, value, "has an identity as a dataclass and another one as a container")
        names = [each.name for each in dataclasses.fields(value)]
        others = sorted({*getattr(value, "__dict__", {}), *slots_of(kind)}.difference(names))
        others = [name for name in others if not isinstance(getattr(kind, name, None), functools.cached_property)]
        known = [[name, getattr(value, name)] for name in (*names, *others) if hasattr(value, name)]
        return ["dataclass", self.token(kind, place), self.token(known, place)]

    def _by_name(self, thing: Any) -> Any:
        """Word for what other processes import; None for what is sent as a value."""
        if isinstance(thing, type) and thing.__module__ == "builtins":
            return ["builtin", thing.__qualname__]
        target = importable_name(thing)
        return target and [*self._module(thing.__module__), thing.__qualname__]

    def _module(self, name: str) -> list[Any]:
        module = sys.modules.get(name)
        if module is None or is_library(name) or not getattr(module, "__file__", None):
            return ["module", name]
        self.modules[name] = module_digest(module)
        changed = {(home, constant): plain_digest(now) for home, constant, _, now in values_set_since(module)}
        self.settings |= changed
        return ["module", name, self.modules[name], *([key, word] for key, word in changed.items())]

    def _module_used(self, module: types.ModuleType, names: set[str]) -> list[Any]:
        """Word for a module of which code uses these names: modules inside it count, and values that it holds now."""
        if is_library(module.__name__):
            return self._module(module.__name__)
        found = {name: getattr(module, name) for name in sorted(names & set(vars(module)))}
        inner = [self._module_used(each, names) for each in found.values() if _is_inside(each, module)]
        return [self._module(module.__name__), inner, self._settings(module, found)]

    def _settings(self, module: types.ModuleType, found: dict[str, Any]) -> list[Any]:
        """Values of a module. Workers import it: what a script has set there since would be lost on the way."""
        known = [(name, plain_digest(value)) for name, value in found.items()]
        self.settings |= {(module.__name__, name): word for name, word in known if word}
        ours = {name: value for name, value in found.items() if getattr(value, "__module__", "") in _SESSIONS[1:]}
        described = [[name, self.token(value, Place(module.__name__, name))] for name, value in ours.items()]
        return [*([name, word] for name, word in known if word), *described]

    def _import(self, name: str, place: Place) -> list[Any]:
        session = sys.modules.get(name.partition(".")[0])
        if session and session.__name__ in _SESSIONS:
            raise _refusal(place, session, "is another program in each process", "name its values without it; ")
        module = imported(name)
        return ["module", name] if module is None else self._module(module.__name__)

    def _number(self, thing: Any) -> list[Any]:
        if id(thing) not in self._numbers:
            self._numbers[id(thing)] = len(self._held)
            self._held.append(thing)
            self.described.append(None)
            self.pending.append(thing)
        return ["number", self._numbers[id(thing)]]

    def describe(self, thing: Any) -> None:
        facts = self._class(thing) if isinstance(thing, type) else self._function(thing)
        self.described[self._numbers[id(thing)]] = facts

    def _function(self, function: types.FunctionType) -> list[Any]:
        owner, code = name_of(function), function.__code__
        self.files.add(code.co_filename)
        self.sets += [Place(owner, word) for word in sorted(set(_orders_in(code)))]
        searched = _only_searched(code)
        used = [[name, self._global(function, name, searched)] for name in sorted(set(_globals_of(code)))]
        used += [["import", self._import(name, Place(owner, name))] for name in sorted(set(_imports_of(code)))]
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        captured = [[name, self._cell(cell, Place(owner, name), searched)] for name, cell in cells]
        given = [
            self.token(each, Place(owner, "a default")) for each in (function.__defaults__, function.__kwdefaults__)
        ]
        own = sorted(each for each in vars(function).items() if each[0] == "__wrapped__" or each[0][:2] != "__")
        attributes = [[name, self.token(value, Place(owner, f"{owner}.{name}"))] for name, value in own]
        words = annotations_of(function)
        return ["function", owner, _code_token(code), used, captured, given, attributes, words]

    def _global(self, function: types.FunctionType, name: str, searched: set[str]) -> Any:
        if name in function.__globals__:
            value = function.__globals__[name]
            if isinstance(value, types.ModuleType) and value.__name__ not in _SESSIONS:
                return self._module_used(value, set(_names_in(function.__code__)))
            return self._named(value, Place(name_of(function), name), searched)
        return ["builtin", name] if hasattr(builtins, name) else ["undefined", name]

    def _cell(self, cell: types.CellType, place: Place, searched: set[str]) -> Any:
        try:
            value = cell.cell_contents
        except ValueError:
            return ["unset"]
        return self._named(value, place, searched)

    def _named(self, value: Any, place: Place, searched: set[str]) -> Any:
        """Word for a value that code names. Of a set that it only searches, it does not see the order."""
        is_searched = type(value) in (set, frozenset) and place.name in searched
        return self._plain(value, place) if is_searched else self.token(value, place)

    def _class(self, kind: type) -> list[Any]:
        bases = [self.token(base, Place(kind.__name__, base.__name__)) for base in kind.__bases__]
        facts = [[name, self.token(value, Place(kind.__name__, name))] for name, value in class_facts(kind)]
        made_by = self.token(type(kind), Place(kind.__name__, "its metaclass"))
        words = [written_doc(kind), annotations_of(kind)]
        return ["class", kind.__name__, made_by, bases, facts, self._fields(kind), words]

    def _fields(self, kind: type) -> Any:
        """Fields of a dataclass, members of an enum."""
        if issubclass(kind, enum.Enum):
            members = kind.__members__.items()
            return [[name, self.token(each.value, Place(kind.__name__, name))] for name, each in members]
        if "__dataclass_fields__" not in vars(kind):
            return []
        fields = [self._field(kind, each) for each in vars(kind)["__dataclass_fields__"].values()]
        return [dataclass_settings(kind), *fields]

    def _field(self, kind: type, each: Any) -> list[Any]:
        place, given = Place(kind.__name__, each.name), [each.default, each.default_factory]
        values = [["none"] if value is dataclasses.MISSING else self.token(value, place) for value in given]
        return [*field_settings(each), *values, self.token(each.metadata, place)]


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """Names of globals that the code and the code inside it use; names of attributes are not among them."""
    for step in dis.get_instructions(code):
        if step.opname in _GLOBAL:
            yield step.argval
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _globals_of(each)


def _only_searched(code: types.CodeType) -> set[str]:
    """Names that the code and the code inside it use on the right of `in` only."""
    searched: set[str] = set()
    others: set[str] = set()
    pending = [code]
    while pending:
        steps = list(dis.get_instructions(pending[0]))
        for step, following in itertools.zip_longest(steps, steps[1:]):
            if isinstance(step.argval, str) and step.opname != "LOAD_CLOSURE":
                is_searched = step.opname.startswith("LOAD_") and following and following.opname == "CONTAINS_OP"
                (searched if is_searched else others).add(step.argval)
        pending += [each for each in pending.pop(0).co_consts if isinstance(each, types.CodeType)]
    return searched - others


def _orders_in(code: types.CodeType) -> Iterator[str]:
    """What the code and the code inside it do that follows the hash seed: `hash`, and a loop over a written set."""
    steps = list(dis.get_instructions(code))
    for step, following in itertools.pairwise(steps):
        if step.opname in _GLOBAL and step.argval == "hash":
            yield "hash"
        if isinstance(step.argval, frozenset) and following.opname == "GET_ITER":
            yield f"{{{', '.join(map(repr, in_order(step.argval)))}}}"
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _orders_in(each)


def _imports_of(code: types.CodeType) -> Iterator[str]:
    """Names that statements inside the code import; a name may be a module or something inside one."""
    base = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            base = step.argval
            yield base
        elif step.opname == "IMPORT_FROM":
            yield f"{base}.{step.argval}"
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _imports_of(each)


def _names_in(code: types.CodeType) -> Iterator[str]:
    """Names of globals and attributes in the code and the code inside it."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _names_in(each)


def _is_inside(value: Any, module: types.ModuleType) -> bool:
    return isinstance(value, types.ModuleType) and value.__name__.startswith(f"{module.__name__}.")


def _code_token(code: types.CodeType) -> list[Any]:
    """Token of the code itself, without file names and line numbers."""
    consts = [_code_token(each) if isinstance(each, types.CodeType) else _constant(each) for each in code.co_consts]
    counts = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    names = [list(code.co_names), list(code.co_varnames), list(code.co_freevars), list(code.co_cellvars)]
    return [digest(code.co_code, code.co_exceptiontable), code.co_name, counts, names, consts]


def _constant(value: Any) -> Any:
    return value_token(value, _constant)


def _refusal(place: Place, value: Any, why: str, or_else: str = "") -> ConfigError:
    kind = type(value)
    word = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return ConfigError(
        printable(f"{place.owner} uses {place.name!r}, a {word}, which {why}"),
        next_step=f"{or_else}make it inside the function, or let the function use plain values (numbers, text, numpy "
        "arrays, frozen dataclasses); or save the function in a module and give it as 'module:name'",
    )
