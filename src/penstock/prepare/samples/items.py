"""Items: input of a function without files: a range, a list, or an array of numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.fingerprint import digest, fingerprint
from penstock.base.user_code.values import NoIdentity, value_token

_PLAIN = {type(None), bool, int, float, str}
_RUN = 4096  # items whose words are hashed together


@dataclass(frozen=True)
class Items:
    """`values` are never copied: a range of a billion numbers takes no memory."""

    values: Sequence[Any] | np.ndarray[Any, Any] = field(repr=False, compare=False)
    digest: str

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, number: int) -> Any:
        """An item of its own: the function may change it in place, and may be called on it again."""
        item = self.values[number]
        return item if type(item) in _PLAIN else copy.deepcopy(item)

    def refuse_changed(self) -> None:
        """Raise ConfigError if a list or an array was changed since its digest was made."""
        if _digest(self.values) != self.digest:
            raise ConfigError(
                "items: they were changed since the job was planned",
                next_step="plan the job again, or give penstock.run the job itself",
            )

    @property
    def written(self) -> Any:
        """The items as a job names them: those from 0 on by their number."""
        is_count = isinstance(self.values, range) and self.values == range(len(self))
        return len(self) if is_count else self.values


def items_of(written: Any) -> Items:
    """The items that a job names. Raises ConfigError for those that cannot be counted, named or compared."""
    if isinstance(written, Items):
        return written
    values = _sequence(written)
    if not len(values):
        raise ConfigError(
            "items: the list is empty, but a job needs at least one item", next_step="items: 1000, or a list"
        )
    return Items(values, _digest(values))


def _sequence(written: Any) -> Any:
    if isinstance(written, int) and not isinstance(written, bool):
        return range(written)
    if isinstance(written, range | list | tuple):
        return written
    if isinstance(written, np.ndarray):
        if written.ndim != 1:
            raise ConfigError(
                f"items: an array of {written.ndim} dimensions, but items need one dimension",
                next_step="items: list(array) gives the function one row at a time",
            )
        return written
    if isinstance(written, str | bytes | Mapping | Set) or not hasattr(written, "__getitem__"):
        raise ConfigError(
            f"items: a {type(written).__name__} cannot be read by position",
            next_step="items: 1000 (0 to 999), a range, a list or an array; of others write list(...)",
        )
    if not hasattr(written, "__len__"):
        raise ConfigError(f"items: a {type(written).__name__} has no length", next_step="items: list(...)")
    return [written[number] for number in range(len(written))]


def _digest(values: Any) -> str:
    if isinstance(values, range):
        return fingerprint(["range", values.start, values.stop, values.step])
    if isinstance(values, np.ndarray) and not values.dtype.hasobject:
        return fingerprint(value_token(values, _inner(0)))
    if set(map(type, values)) <= _PLAIN:
        runs = range(0, len(values), _RUN)
        return digest(*(repr(list(values[start : start + _RUN])).encode("utf-8", "backslashreplace") for start in runs))
    return fingerprint([_inner(number)(value) for number, value in enumerate(values)])


def _inner(number: int) -> Callable[[Any], Any]:
    def token(value: Any) -> Any:
        if isinstance(value, set | frozenset):
            raise ConfigError(
                f"items: item {number:,} has a {type(value).__name__}, whose order is another one in each process",
                next_step="give the function a sorted list",
            )
        try:
            return value_token(value, token)
        except NoIdentity as error:
            raise ConfigError(
                f"items: item {number:,} has a {type(value).__name__}, which {error}",
                next_step="give plain values (numbers, text, lists, mappings), and make other objects in the function",
            ) from None

    return token
