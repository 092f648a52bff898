"""Encoded: draws -> what a user's function makes of each window of a record. Next: maker.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, TaskError
from penstock.base.user_code.identity import identity_of, name_of
from penstock.loader.asked.opening import Asked
from penstock.loader.batches import Array, Batch, Layout, empty_batch
from penstock.loader.feeding.buffers import batch_bytes
from penstock.loader.feeding.stats import add
from penstock.loader.kinds.sequences.raw import LENGTHS, VALID, Raw, refuse_size
from penstock.loader.order.order import Draws, empty_draws
from penstock.loader.tables import Made

TOKENS = "tokens"
_NUMBERS = "biuf"  # kinds of dtypes that a batch holds
_MOST_ID = 2**31 - 1
_SHORT = 16
_WINDOW_BYTES = 2**20  # of windows that a thread holds at once, beside its batch


class Encoded:
    """Rows of a function of windows: a dict of arrays of constant shape, or token ids padded to `max_tokens`."""

    name, vocabulary = "encoded", None

    def __init__(self, raw: Raw, function: Any, max_tokens: int | None) -> None:
        self._raw, self._function, self._called = raw, function, f"encode={name_of(function)}"
        self._digest = _digest_of(function)
        self.streams, self.tables = raw.streams, raw.tables
        self.hold, self.holds = raw.hold, raw.holds
        self._rows_at_once = max(1, _WINDOW_BYTES // batch_bytes(raw.layout, 1))
        first = self._first_result()
        self._is_tokens = not isinstance(first, Mapping)
        self.unit = TOKENS if self._is_tokens else raw.unit
        if max_tokens is not None and not self._is_tokens:
            raise ConfigError(
                f"max_tokens={max_tokens} is an option for token ids, but {self._called} returns a dict",
                where="load(max_tokens=...)",
                next_step="leave max_tokens= out: the function decides the shapes of its arrays",
            )
        self._max_tokens = max_tokens or raw.length
        own = {VALID: raw.layout[VALID]} if VALID in raw.layout else {}
        self._made: Layout = self._layout_of(first)
        self.layout: Layout = {**self._made, **own}

    @classmethod
    def of(cls, asked: Asked) -> Encoded:
        function, options = asked.options["encode"], asked.options
        if options["layout"] is not None:
            raise ConfigError(
                f"layout={options['layout']!r} is an option for encode='raw', but {name_of(function)} makes the arrays",
                where="load(layout=...)",
                next_step="leave layout= out",
            )
        made = cls(Raw.of(asked), function, options["max_tokens"])
        refuse_size(made.layout, asked)
        return made

    def fill(self, draws: Draws, out: Batch) -> Made:
        made = Made()
        for first in range(0, len(draws.keys), self._rows_at_once):
            own = slice(first, first + self._rows_at_once)
            part = Draws(draws.shards[own], draws.records[own], draws.keys[own])
            add(made, self._fill_some(part, {name: array[own] for name, array in out.items()}))
        if self._is_tokens:
            made.tokens = made.filled = int(out[LENGTHS].sum())
            made.room = len(draws.keys) * self._max_tokens
        return made

    def _fill_some(self, draws: Draws, out: Batch) -> Made:
        windows = empty_batch(self._raw.layout, len(draws.keys))
        made = self._raw.fill(draws, windows)
        for name in self._made:
            out[name][:] = 0
        for row in np.flatnonzero(draws.shards[:, 0] >= 0).tolist():
            self._put(self._call(windows, row), row, out)
        if VALID in self.layout:
            out[VALID][:] = windows[VALID]
        return made

    def describe(self) -> dict[str, Any]:
        made = {name: [list(shape), dtype] for name, (shape, dtype) in self._made.items()}
        return {**self._raw.describe(), "encode": name_of(self._function), "encoder": self._digest, "encoded": made}

    def _call(self, windows: Batch, row: int) -> Any:
        """Result for one window, as arrays. What the function raises travels up, with the row."""
        window = self._raw.window_of(windows, row)
        try:
            result = self._function(window)
        except Exception as error:
            sizes = ", ".join(f"{name} {np.shape(array)}" for name, array in window.items())
            error.add_note(f"in {self._called}, given a window of {sizes}")
            raise
        return _as_arrays(result, self._called)

    def _put(self, result: Any, row: int, out: Batch) -> None:
        arrays = result if isinstance(result, Mapping) else {TOKENS: result}
        expected = {TOKENS: self._made[TOKENS]} if self._is_tokens else self._made
        if isinstance(result, Mapping) == self._is_tokens or set(arrays) != set(expected):
            raise self._refused(f"returned {', '.join(arrays)} for a window, and {', '.join(expected)} for the first")
        for name, array in arrays.items():
            shape, dtype = expected[name]
            is_nothing = self._is_tokens and not len(array)
            if (array.dtype != dtype and not is_nothing) or (array.shape != shape and not self._is_tokens):
                raise self._refused(
                    f"returned {name!r} as {array.dtype}{list(array.shape)} for a window, and as "
                    f"{np.dtype(dtype)}{list(shape)} for the first"
                )
            if self._is_tokens and len(array) > self._max_tokens:
                raise self._refused(
                    f"returned {len(array):,} tokens for a window, and a row has {self._max_tokens:,}",
                    f"max_tokens={len(array)} or more, or shorter windows (length=)",
                )
            if self._is_tokens:
                self._refuse_ids(array)
                out[TOKENS][row, : len(array)], out[LENGTHS][row] = array, len(array)
            else:
                out[name][row] = array

    def _refuse_ids(self, ids: Array) -> None:
        """Refuse ids that no table of embeddings has: a device would fail on them, or read elsewhere."""
        wrong = np.flatnonzero((ids < 0) | (ids > _MOST_ID))
        if len(wrong):
            raise self._refused(
                f"returned {int(ids[wrong[0]])} as token {int(wrong[0]):,} of a window, and {len(wrong):,} of its "
                f"{len(ids):,} ids are not from 0 to {_MOST_ID}",
                "return ids that int32 can hold, or a dict of arrays: {'name': array}",
            )

    def _first_result(self) -> Any:
        """Result for the first window of the data. Called twice, a function of the window alone returns the same."""
        draws = empty_draws(1, 1)
        records = [rows for stream in self.streams for rows in stream.shard_records]
        draws.shards[0, 0] = int(np.flatnonzero(records)[0])
        results = []
        for _ in range(2):
            windows = empty_batch(self._raw.layout, 1)
            self._raw.fill(draws, windows)
            results.append(self._call(windows, 0))
        one, two = results
        if _bytes(one) != _bytes(two):
            raise self._refused(
                "returned two results for one window",
                "its result must depend on the window alone: no random numbers, no counters, no time. "
                "window='random' draws positions that a resumed run repeats",
            )
        return one

    def _layout_of(self, first: Any) -> Layout:
        if not self._is_tokens:
            taken = [name for name in first if name == VALID and VALID in self._raw.layout]
            if taken or not first:
                raise self._refused(f"returned {taken[0]!r}, which remainder='pad' needs" if taken else "returned {}")
            return {name: (array.shape, array.dtype.str) for name, array in first.items()}
        if first.dtype.kind not in "iu":
            raise self._refused(f"returned a list of {first.dtype}, and token ids are whole numbers")
        return {TOKENS: ((self._max_tokens,), first.dtype.str), LENGTHS: ((), "i4")}

    def _refused(self, what: str, next_step: str = "") -> TaskError:
        usual = "return the same names, shapes and dtypes for every window: a dict of arrays, or one list of token ids"
        return TaskError(f"{self._called} {what}", where="load(encode=...)", next_step=next_step or usual)


def _digest_of(function: Any) -> str:
    """Identity of the function in the recipe. One that may see the order of a set is refused."""
    identity = identity_of(function)
    for owner, name in identity.sets if sys.flags.hash_randomization else ():
        raise ConfigError(
            f"{owner} uses {name}: the order of a set, and `hash`, differ between processes, so a resumed run would "
            "make other batches",
            where="load(encode=...)",
            next_step="sort it into a tuple, or into dict.fromkeys(sorted(it)), in which `in` is as fast",
        )
    return identity.digest[:_SHORT]


def _as_arrays(result: Any, called: str) -> Any:
    """A dict of arrays, or one array of one dimension."""
    if isinstance(result, Mapping):
        return {str(name): _as_array(value, f"{called}, {name!r}") for name, value in result.items()}
    array = np.empty(0, "i8") if isinstance(result, list | tuple) and not result else _as_array(result, called)
    if array.ndim != 1:
        raise TaskError(
            f"{called} returned an array of shape {array.shape}",
            where="load(encode=...)",
            next_step="return a dict of arrays, {'name': array}, or one list of token ids",
        )
    return array


def _as_array(value: Any, called: str) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in _NUMBERS:
        raise TaskError(
            f"{called} returned {type(value).__name__} of {array.dtype}, and a batch holds numbers",
            where="load(encode=...)",
            next_step="return arrays of numbers or bools",
        )
    return array


def _bytes(result: Any) -> Any:
    if isinstance(result, Mapping):
        return {name: _bytes(array) for name, array in result.items()}
    return result.dtype.str, result.shape, result.tobytes()
