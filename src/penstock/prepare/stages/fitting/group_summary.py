"""Group summary: how many keys, records and events there are, which keys are the largest, from when to when."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.prepare.rows.hashing import is_text
from penstock.prepare.rows.jsonable import jsonable
from penstock.prepare.rows.order import float_words

LARGEST = 10
_LEVELS = 48
_MOST_SHOWN = 200  # characters of a key


@dataclass(frozen=True)
class GroupSummary:
    """A reduction of records, exact in all it counts, so that it takes them in batches of any size.

    A key's records follow each other: only the last key of a batch is left open until the next one comes.
    `levels[n]` counts the keys of 2^n events and more, up to the next level.
    """

    by: tuple[str, ...]
    order: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.by, *self.order[:1])

    def block_rows(self, schema: pa.Schema) -> int:  # noqa: ARG002
        return 8192  # any number: it is exact

    def start(self) -> dict[str, Any]:
        none: dict[str, Any] = {"open": None, "least": None, "greatest": None}
        return {"keys": 0, "records": 0, "events": 0, "levels": [0] * _LEVELS, "largest": [], **none}

    def update(self, state: dict[str, Any], block: pa.RecordBatch) -> dict[str, Any]:
        if not block.num_rows:
            return state
        events = self._events(block)
        starts = _key_starts([block.column(name) for name in self.by])
        totals = np.add.reduceat(events, starts)
        counts = {"records": state["records"] + block.num_rows, "events": state["events"] + int(events.sum())}
        state, first = {**state, **counts}, self._key(block, 0)
        if state["open"] and state["open"][0] == first[0]:
            first = state["open"][:2]  # as its first record showed it
            totals[0] += state["open"][2]
        else:
            state = _closed(state)
        largest = np.argsort(-totals[:-1], kind="stable")[:LARGEST]
        keys = [self._key(block, int(starts[number])) if number else first for number in largest]
        state = _add(state, totals[:-1], [(key[1], int(totals[n])) for key, n in zip(keys, largest, strict=True)])
        last = self._key(block, int(starts[-1])) if len(starts) > 1 else first
        return {
            **state,
            "open": [*last, int(totals[-1])],
            "least": _end(min, state["least"], self._bound(block, "min")),
            "greatest": _end(max, state["greatest"], self._bound(block, "max")),
        }

    def _events(self, block: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """Events of each record, which any of its lists tells; none where there is no list."""
        lists = [name for name in block.schema.names if name not in self.by]
        if not lists:
            return np.zeros(block.num_rows, "i8")
        return np.asarray(pc.list_value_length(block.column(lists[0]))).astype("i8")

    def _key(self, block: pa.RecordBatch, row: int) -> list[Any]:
        """[what tells the key from others, how it is shown]."""
        scalars = [block.column(name)[row] for name in self.by]
        shown = [_shortened(jsonable(scalar)) for scalar in scalars]
        return [[_identity(scalar) for scalar in scalars], shown[0] if len(shown) == 1 else shown]

    def _bound(self, block: pa.RecordBatch, which: str) -> Any:
        """The least or greatest value of the order column, where it is a whole number or a time."""
        if not self.order:
            return None
        values = block.column(self.order[0]).flatten()
        kind, is_a = values.type, pa.types
        if not (is_a.is_timestamp(kind) or is_a.is_date(kind) or is_a.is_integer(kind)):
            return None
        bound = pc.min_max(values)[which]
        whole = bound if is_a.is_integer(kind) else bound.cast(pa.int64() if kind.bit_width == 64 else pa.int32())
        return None if not bound.is_valid else [whole.as_py(), jsonable(bound)]  # as number to compare, as text to show

    def pack(self, state: dict[str, Any]) -> dict[str, Any]:
        return state

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        """Merge two buckets, which share no key."""
        left, right = _closed(left), _closed(right)
        largest = [*left["largest"], *right["largest"]]
        return {
            **{name: left[name] + right[name] for name in ("keys", "records", "events")},
            "levels": [a + b for a, b in zip(left["levels"], right["levels"], strict=True)],
            "largest": sorted(largest, key=_fewest)[:LARGEST],
            "open": None,
            "least": _end(min, left["least"], right["least"]),
            "greatest": _end(max, left["greatest"], right["greatest"]),
        }

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        state = _closed(state)
        return {
            "by": list(self.by),
            "order": list(self.order),
            **{name: state[name] for name in ("keys", "records")},
            "events": state["events"] or (None if state["records"] else 0),  # records of nothing but a key do not tell
            **{name: state[name] and state[name][1] for name in ("least", "greatest")},
            "largest": [{"key": key, "events": events} for key, events in state["largest"] if events],
            "keys_by_events": {str(2**n): count for n, count in enumerate(state["levels"]) if count}
            if state["events"]
            else {},
        }


def _identity(scalar: pa.Scalar) -> Any:
    """Equal for equal keys: -0.0 is 0.0, all NaNs are one, and bytes are not their text."""
    if scalar.is_valid and pa.types.is_floating(scalar.type):
        return str(float(scalar.as_py()) + 0.0)
    text = scalar.is_valid and is_text(scalar.type)
    return scalar.cast(pa.large_binary()).as_py().hex() if text else jsonable(scalar)


def _shortened(value: Any) -> Any:
    return value[:_MOST_SHOWN] + "..." if isinstance(value, str) and len(value) > _MOST_SHOWN else value


def _key_starts(columns: list[pa.Array]) -> np.ndarray[Any, Any]:
    """The first record of each key, where a key's records follow each other."""
    changes = np.zeros(len(columns[0]), bool)
    changes[0] = True
    for column in columns:
        if pa.types.is_floating(column.type):
            column = pa.array(float_words(column), mask=np.asarray(column.is_null()))
        codes = np.asarray(column.dictionary_encode().indices.fill_null(-1))
        changes[1:] |= codes[1:] != codes[:-1]
    return np.flatnonzero(changes)


def _add(state: dict[str, Any], totals: np.ndarray[Any, Any], found: list[tuple[Any, int]]) -> dict[str, Any]:
    """The state with some keys more, whose events are all known."""
    levels = np.array(state["levels"])
    np.add.at(levels, np.maximum(np.frexp(totals.astype("f8"))[1] - 1, 0), 1)
    largest = sorted([*map(tuple, state["largest"]), *found], key=_fewest)
    return {
        **state,
        "keys": state["keys"] + len(totals),
        "levels": levels.tolist(),
        "largest": [list(pair) for pair in largest[:LARGEST]],
    }


def _fewest(pair: tuple[Any, int]) -> int:
    """Sorts the largest first; of equal ones the first in the dataset stays first."""
    return -pair[1]


def _closed(state: dict[str, Any]) -> dict[str, Any]:
    if not state["open"]:
        return state
    _, key, total = state["open"]
    return {**_add(state, np.array([total]), [(key, total)]), "open": None}


def _end(which: Any, left: Any, right: Any) -> Any:
    known = [each for each in (left, right) if each is not None]
    return which(known) if known else None
