"""Identity: a function and all that it uses -> a hash that is equal in every process. Used by carried.py.

The hash covers the compiled code of the function, the globals that this code and the code inside it name, the user's
own modules that it imports, captured values and defaults, and the same for every function and class among them. Line
numbers and file names do not count.
"""

from __future__ import annotations

import builtins
import dataclasses
import dis
import enum
import functools
import importlib
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.base.errors import ConfigError, printable
from penstock.base.fingerprint import digest, fingerprint
from penstock.base.user_code.modules import import_own, is_library, module_digest
from penstock.base.user_code.values import NoIdentity, value_token

_SESSIONS = (None, "__main__", "__mp_main__")  # modules that no other process can import
_GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"))
_GENERATED = "<string>"  # file of the methods that @dataclass writes
_CLASS_FACTS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
_ENUM_WORDS = frozenset(("_generate_next_value_", "_new_member_", "_use_args_", "_value_repr_", "_unhashable_values_"))


class Place(NamedTuple):
    """A name, and the function or class that uses it."""

    owner: str
    name: str


@dataclass(frozen=True)
class Identity:
    """`files` hold code that has no importable home; `modules` are the user's own that it imports."""

    digest: str
    files: frozenset[str]
    modules: tuple[str, ...]


def identity_of(function: Any) -> Identity:
    """Raises ConfigError for a value whose identity cannot be told."""
    portrait = _Portrait()
    name = name_of(function)
    root = portrait.token(function, Place(name, name))
    while portrait.pending:
        portrait.describe(portrait.pending.pop(0))
    whole = fingerprint([root, portrait.described])
    return Identity(whole, frozenset(portrait.files), tuple(sorted(portrait.modules)))


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
    if module in _SESSIONS or module not in sys.modules or not name.replace(".", "_").isidentifier():
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
    if isinstance(found, types.FunctionType) and isinstance(thing, types.FunctionType):
        one, other = found.__code__, thing.__code__
        is_same_name = (one.co_filename, one.co_name) == (other.co_filename, other.co_name)
        # One module may make several functions of that name, in a loop: those share their globals.
        return is_same_name and not thing.__closure__ and found.__globals__ is not thing.__globals__
    both_classes = isinstance(found, type) and isinstance(thing, type)
    return both_classes and (found.__module__, found.__qualname__) == (thing.__module__, thing.__qualname__)


@dataclass
class _Portrait:
    """Functions and classes, each described once and otherwise named by its number."""

    described: list[Any] = field(default_factory=list)
    pending: list[Any] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    _numbers: dict[int, int] = field(default_factory=dict)
    _held: list[Any] = field(default_factory=list)  # so that no number of an object is given to another
    _around: list[int] = field(default_factory=list)  # values that are being described

    def token(self, value: Any, place: Place) -> Any:
        """Word for a value: equal for equal values, in every process."""
        if isinstance(value, types.FunctionType | type):
            return self._by_name(value) or self._number(value)
        if isinstance(value, types.ModuleType):
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
            return ["partial", *(self.token(each, place) for each in (value.func, value.args, value.keywords))]
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
            fields = [[each.name, getattr(value, each.name)] for each in dataclasses.fields(value)]
            return ["dataclass", self.token(type(value), place), self.token(fields, place)]
        try:
            return value_token(value, lambda inner: self.token(inner, place))
        except NoIdentity as error:
            raise _refusal(place, value, str(error)) from None

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
        self.modules.add(name)
        return ["module", name, module_digest(module)]

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
        used = [[name, self._global(function, name)] for name in sorted(set(_globals_of(code)))]
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        captured = [[name, self._cell(cell, Place(owner, name))] for name, cell in cells]
        given = [
            self.token(each, Place(owner, "a default")) for each in (function.__defaults__, function.__kwdefaults__)
        ]
        own = {name: value for name, value in vars(function).items() if not name.startswith("__")}
        attributes = [[name, self.token(value, Place(owner, f"{owner}.{name}"))] for name, value in sorted(own.items())]
        imported = [self._module(name) for name in sorted(set(_imports_of(code))) if import_own(name)]
        return ["function", owner, _code_token(code), used, captured, given, attributes, *imported]

    def _global(self, function: types.FunctionType, name: str) -> Any:
        if name in function.__globals__:
            return self.token(function.__globals__[name], Place(name_of(function), name))
        return ["builtin", name] if hasattr(builtins, name) else ["undefined", name]

    def _cell(self, cell: types.CellType, place: Place) -> Any:
        try:
            value = cell.cell_contents
        except ValueError:
            return ["unset"]
        return self.token(value, place)

    def _class(self, kind: type) -> list[Any]:
        bases = [self.token(base, Place(kind.__name__, base.__name__)) for base in kind.__bases__]
        facts = [[name, self.token(value, Place(kind.__name__, name))] for name, value in sorted(_class_facts(kind))]
        return ["class", kind.__name__, bases, facts, self._fields(kind)]

    def _fields(self, kind: type) -> Any:
        """Fields of a dataclass, members of an enum."""
        if issubclass(kind, enum.Enum):
            members = kind.__members__.items()
            return [[name, self.token(each.value, Place(kind.__name__, name))] for name, each in members]
        if "__dataclass_fields__" not in vars(kind):
            return []
        return [self._field(kind, each) for each in vars(kind)["__dataclass_fields__"].values()]

    def _field(self, kind: type, each: Any) -> list[Any]:
        place, given = Place(kind.__name__, each.name), [each.default, each.default_factory]
        values = [["none"] if value is dataclasses.MISSING else self.token(value, place) for value in given]
        annotated = each.type if isinstance(each.type, str) else getattr(each.type, "__name__", repr(each.type))
        return [each.name, annotated, each.init, each.kw_only is True, *values]


def _class_facts(kind: type) -> Iterator[tuple[str, Any]]:
    """Methods and values that were written in the body of a class; not what Python and @dataclass add."""
    members = set(kind.__members__) if issubclass(kind, enum.Enum) else set()
    fields = set(vars(kind).get("__dataclass_fields__", ())) | set(getattr(kind, "_fields", ()))
    for name, value in vars(kind).items():
        is_special = name.startswith("__") and name.endswith("__")
        if name in members or name in fields or name in _ENUM_WORDS or name == "_abc_impl":
            continue
        if isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType) or _is_generated(value):
            continue
        if issubclass(kind, enum.Enum) and name.startswith("_") and not isinstance(value, _CLASS_FACTS):
            continue
        if hasattr(kind, "_field_defaults") and name in ("_fields", "_field_defaults", "_make", "_replace", "_asdict"):
            continue
        if not is_special or isinstance(value, _CLASS_FACTS):
            yield name, value


def _is_generated(value: Any) -> bool:
    """Whether nobody wrote the method: @dataclass and namedtuple compile theirs from a string."""
    function = getattr(value, "__wrapped__", value)
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    return (
        code.co_filename == _GENERATED
        or code.co_filename in (enum.__file__, dataclasses.__file__)
        or (code.co_filename.startswith("<") and "namedtuple" in code.co_filename)
    )


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """Names of globals that the code and the code inside it use; names of attributes are not among them."""
    for step in dis.get_instructions(code):
        if step.opname in _GLOBAL:
            yield step.argval
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _globals_of(each)


def _imports_of(code: types.CodeType) -> Iterator[str]:
    """Modules that the code and the code inside it import when it runs; a name may also be something inside one."""
    module = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            module = step.argval
            yield module
        elif step.opname == "IMPORT_FROM":
            yield f"{module}.{step.argval}"
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _imports_of(each)


def _code_token(code: types.CodeType) -> list[Any]:
    """What the code does: not where it was written."""
    consts = [_code_token(each) if isinstance(each, types.CodeType) else _constant(each) for each in code.co_consts]
    counts = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    names = [list(code.co_names), list(code.co_varnames), list(code.co_freevars), list(code.co_cellvars)]
    return [digest(code.co_code, code.co_exceptiontable), code.co_name, counts, names, consts]


def _constant(value: Any) -> Any:
    return value_token(value, _constant)


def _refusal(place: Place, value: Any, why: str) -> ConfigError:
    kind = type(value)
    word = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return ConfigError(
        printable(f"{place.owner} uses {place.name!r}, a {word}, which {why}"),
        next_step="make it inside the function, or let the function use plain values (numbers, text, numpy arrays, "
        "frozen dataclasses); or save the function in a module and give it as 'module:name'",
    )
