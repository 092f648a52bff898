"""Classes: a class -> what its author wrote in it, without what Python adds. Used by identity.py."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

_GENERATED = "__create_fn__.<locals>."  # @dataclass compiles its methods inside a function of this name
_METHODS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)
_ENUM_WORDS = frozenset(("_generate_next_value_", "_new_member_", "_use_args_", "_value_repr_", "_unhashable_values_"))
_NAMEDTUPLE_WORDS = frozenset(("__new__", "_make", "_replace", "_asdict", "__repr__", "__getnewargs__", "__replace__"))
_PYTHON_WORDS = frozenset((
    "__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__",
    "__annotate_func__", "__annotations_cache__", "__conditional_annotations__", "__static_attributes__",
    "__firstlineno__", "__orig_bases__", "__parameters__", "__type_params__", "__abstractmethods__", "_abc_impl",
    "__match_args__", "__dataclass_fields__", "__dataclass_params__", "__protocol_attrs__", "_is_protocol",
    "_is_runtime_protocol", "__non_callable_proto_members__", "__classcell__",
    "__slotnames__",  # pickling an object adds it to its class
))  # fmt: skip


def class_facts(kind: type) -> Iterator[tuple[str, Any]]:
    """Methods and values of a class, as they are now: a value may have been set after the class was made."""
    is_tuple = issubclass(kind, tuple) and "_field_defaults" in vars(kind)
    for name, value in vars(kind).items():
        if name in _PYTHON_WORDS or _is_descriptor(value) or (name == "__hash__" and value is None):
            continue
        if issubclass(kind, enum.Enum) and _is_of_enum(kind, name, value):
            continue
        if is_tuple and (name in vars(kind)["_fields"] or _is_of_namedtuple(name, value)):
            continue
        if not _is_generated(value):
            yield name, value


def written_doc(kind: type) -> str | None:
    """The docstring of a class, which code may read. That of @dataclass follows from the fields."""
    return None if "__dataclass_fields__" in vars(kind) else vars(kind).get("__doc__")


def dataclass_settings(kind: type) -> str:
    """Arguments of @dataclass: they decide how its objects are compared and ordered."""
    return repr(vars(kind)["__dataclass_params__"])


def slots_of(kind: type) -> Iterator[str]:
    """Names of all slots of a class and its bases."""
    for base in kind.__mro__:
        yield from (name for name, value in vars(base).items() if isinstance(value, types.MemberDescriptorType))


def annotations_of(thing: Any) -> list[list[str]]:
    """Annotations of a function or class, as words: code may read them."""
    try:
        found = inspect.get_annotations(thing)
    except Exception:  # newer Pythons evaluate them now, and a name may be missing
        return []
    return [[name, _word(each)] for name, each in found.items()]


def _word(annotation: Any) -> str:
    """An annotation as text, without the address of an object in it."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__qualname__", None) or repr(annotation)
    return type(annotation).__name__ if " at 0x" in text else str(text)


def field_settings(each: dataclasses.Field[Any]) -> list[Any]:
    """Settings of a dataclass field, without its default."""
    annotated = each.type if isinstance(each.type, str) else getattr(each.type, "__name__", repr(each.type))
    kind = each._field_type.name  # type: ignore[attr-defined]  # a field, or a value of the class
    return [each.name, annotated, kind, each.init, each.kw_only is True, each.compare, each.hash, each.repr]


def _is_of_enum(kind: type[enum.Enum], name: str, value: Any) -> bool:
    """Whether it is a member of an enum, which is described with its value, or something that enum adds."""
    is_added = name.startswith("_") and not isinstance(value, _METHODS)
    return name in kind.__members__ or name in _ENUM_WORDS or is_added or _file_of(value) == enum.__file__


def _is_of_namedtuple(name: str, value: Any) -> bool:
    """Whether it is a method that namedtuple adds. Its author may write an own `__repr__`."""
    return name in _NAMEDTUPLE_WORDS and (name != "__repr__" or _file_of(value) == collections.__file__)


def _is_descriptor(value: Any) -> bool:
    return isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)


def _is_generated(value: Any) -> bool:
    """Whether @dataclass wrote the method. Code of `python -c` has the same file name, `<string>`."""
    code = _code_of(value)
    return code is not None and (code.co_qualname.startswith(_GENERATED) or code.co_filename == dataclasses.__file__)


def _file_of(value: Any) -> str | None:
    code = _code_of(value)
    return code.co_filename if code else None


def _code_of(value: Any) -> types.CodeType | None:
    function = getattr(value, "__func__", value)
    return getattr(function, "__code__", None)
