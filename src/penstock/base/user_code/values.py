"""Values: a plain value that a function uses -> a word for it that is equal in every process. Used by identity.py."""

from __future__ import annotations

import collections
import datetime
import decimal
import fractions
import inspect
import logging
import operator
import pathlib
import re
import sys
import types
import typing
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from penstock.base.fingerprint import digest

Token = Callable[[Any], Any]  # gives the word of a value inside another
_EXACT: tuple[type, ...] = (
    type(None), bool, complex, type(...), type(NotImplemented), datetime.date, datetime.datetime, datetime.time,
    datetime.timedelta, datetime.timezone, decimal.Decimal, fractions.Fraction, uuid.UUID, range,
)  # fmt: skip
_SEQUENCES = (tuple, list)
_MAPPINGS = (dict, collections.OrderedDict, collections.Counter, collections.defaultdict, types.MappingProxyType)
_CALLERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_NAMED = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
_NUMBERS = (bool, int, float, complex, decimal.Decimal, fractions.Fraction)
_SEEDED = (str, bytes, datetime.date, datetime.datetime, datetime.time, datetime.timedelta, uuid.UUID)
_NO_IDENTITY = "has no identity that a later run could check"


class NoIdentity(Exception):
    """A value cannot be compared with that of another process. Its message is the end of a sentence about it."""


def value_token(value: Any, token: Token) -> Any:
    """Token of a plain value. Raises NoIdentity for any other."""
    kind = type(value)
    if kind is str:
        return ["str", ascii(value)]
    if kind is int:
        return ["int", hex(value)]
    if kind is float:
        return ["float", value.hex()]
    if kind in _EXACT:
        zone = getattr(value, "tzinfo", None)
        return [kind.__name__, repr(value), *([token(type(zone))] if zone else [])]  # a zone may be of the user's own
    if kind in (bytes, bytearray):
        return [kind.__name__, len(value), digest(value)]
    if kind in _SEQUENCES:
        return [kind.__name__, *map(token, value)]
    if kind is collections.deque:
        return ["deque", value.maxlen, *map(token, value)]
    if kind in (set, frozenset):
        return [kind.__name__, *sorted(map(token, value), key=repr)]
    if kind in _MAPPINGS:
        made_by = token(value.default_factory) if kind is collections.defaultdict else None
        return [kind.__name__, made_by, *([token(key), token(each)] for key, each in value.items())]
    return _python_token(value, token) or _library_token(value, token)


def in_order(values: Iterable[Any]) -> list[Any]:
    """Values of a set in one order, however they came into it; as they come, if they are no plain values."""
    try:
        return sorted(values, key=lambda each: repr(_plain_token(each)))
    except NoIdentity:
        return list(values)


def is_in_one_order(value: Any) -> bool:
    """Whether the hash of a value, and so the order of a set of such values, is equal in all processes."""
    if type(value) in (tuple, frozenset):
        return all(map(is_in_one_order, value))
    return type(value) in _NUMBERS and value == value


def is_in_one_order_by_seed(value: Any) -> bool:
    """Whether its hash is equal in all processes that have one PYTHONHASHSEED. Others are made of addresses."""
    if type(value) in (tuple, frozenset):
        return all(map(is_in_one_order_by_seed, value))
    return type(value) in _SEEDED or (value is None and sys.version_info >= (3, 12)) or is_in_one_order(value)


def _plain_token(value: Any) -> Any:
    return value_token(value, _plain_token)


def _python_token(value: Any, token: Token) -> Any:
    """Word for an object of Python's own library; None for any other."""
    kind = type(value)
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return ["namedtuple", token(kind), *map(token, value)]
    if kind is inspect.Signature and " at 0x" not in str(value):
        return ["signature", str(value)]
    if kind is slice:
        return ["slice", token(value.start), token(value.stop), token(value.step)]
    if kind is re.Pattern:
        return ["pattern", token(value.pattern), value.flags]
    if isinstance(value, pathlib.PurePath) and kind.__module__.startswith("pathlib"):
        return ["path", str(value), *([] if kind is type(pathlib.Path()) else [kind.__name__])]
    if isinstance(value, logging.Logger):  # pickled by its name; it decides no byte
        return ["logger", value.name]
    if kind in _CALLERS:
        return ["caller", kind.__name__, token(value.__reduce__()[1])]
    if isinstance(value, _NAMED):
        return _named_token(value, token)
    if typing.get_origin(value) is not None:
        inner = [each for each in typing.get_args(value) if isinstance(each, type) or typing.get_origin(each)]
        return ["type", repr(value), *map(token, inner)]
    return None


def _named_token(value: Any, token: Token) -> Any:
    bound = getattr(value, "__self__", None)
    if isinstance(value, types.BuiltinFunctionType) and bound is not None and not isinstance(bound, types.ModuleType):
        return ["method", token(bound), value.__name__]
    home = getattr(value, "__objclass__", None)
    return ["builtin", home.__name__ if home else value.__module__, value.__qualname__]


def _library_token(value: Any, token: Token) -> Any:
    library = type(value).__module__.partition(".")[0]
    known = {"numpy": _numpy_token, "pyarrow": _arrow_token, "numba": _numba_token}
    if library not in known or library not in sys.modules:
        raise NoIdentity(_NO_IDENTITY)
    return known[library](value, token)


def _numpy_token(value: Any, token: Token) -> Any:
    import numpy as np

    if isinstance(value, np.dtype):
        return ["dtype", repr(value)]  # `str` is '|V8' for every pair of 32-bit numbers
    if type(value) is np.ndarray:
        if value.dtype.hasobject:
            return ["array", str(value.dtype), list(value.shape), token(value.tolist())]
        if value.dtype.names:  # by field: bytes between fields may be anything
            return ["array", token(value.dtype), list(value.shape), *(token(value[name]) for name in value.dtype.names)]
        data = digest(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        # In another order of memory, sums go another way, and round otherwise.
        is_turned = value.flags.f_contiguous and not value.flags.c_contiguous
        return ["array", token(value.dtype), list(value.shape), data, *(["F"] if is_turned else [])]
    if isinstance(value, np.void) and value.dtype.names:
        return ["scalar", token(np.array(value))]
    if isinstance(value, np.generic):
        return ["scalar", token(value.dtype), digest(value.tobytes())]
    if isinstance(value, np.ufunc) and getattr(np, str(getattr(value, "__name__", "")), None) is value:
        return ["ufunc", str(value)]
    raise NoIdentity(_NO_IDENTITY)


def _arrow_token(value: Any, token: Token) -> Any:
    import pyarrow as pa

    if isinstance(value, pa.DataType):
        return ["arrow type", str(value)]
    if isinstance(value, pa.Field):
        return ["field", value.name, str(value.type), value.nullable, token(value.metadata)]
    if isinstance(value, pa.Schema):
        return ["schema", [token(each) for each in value], token(value.metadata)]
    if isinstance(value, pa.Scalar):
        return ["arrow scalar", str(value.type), token(_as_python(value, value.type))]
    if isinstance(value, pa.DictionaryArray):
        return ["arrow dictionary", str(value.type), token(value.indices), token(value.dictionary)]
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return ["arrow array", str(value.type), token(_as_python(value, value.type))]
    if isinstance(value, pa.RecordBatch | pa.Table):
        return ["table", token(value.schema), [token(each) for each in value.columns]]
    raise NoIdentity(_NO_IDENTITY)


def _as_python(value: Any, kind: Any) -> Any:
    """Values of an Arrow scalar or array, each exactly; times as whole numbers, since Python's are coarser."""
    import pyarrow as pa

    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        value = value.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif "[ns" in str(kind):  # inside of another type
        raise NoIdentity(_NO_IDENTITY)
    try:
        return value.as_py() if isinstance(value, pa.Scalar) else value.to_pylist()
    except (ValueError, OverflowError):  # text that is no UTF-8, two fields of one name, a year beyond 9999
        raise NoIdentity(_NO_IDENTITY) from None


def _numba_token(value: Any, token: Token) -> Any:
    if hasattr(value, "py_func") and hasattr(value, "targetoptions"):
        # Signatures that its author wrote.
        signatures = [] if value._can_compile else [str(each) for each in value.nopython_signatures]
        return ["numba", token(value.py_func), token(value.targetoptions), *signatures]
    raise NoIdentity(_NO_IDENTITY)
