"""Feature names: what the values in a row of features are called. They travel in the metadata of an Arrow field.

Files of the array-batch scripts hold them beside the features; files whose features stand in another order are read in
the order of the first file. A finished dataset has them in its manifest and in `feature_cols.json`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.shards import arrow as pa

FEATURE_FILE = "feature_cols.json"
NAME_ARRAYS = {"strategic_features": "strategic_feature_names", "features": "feature_names"}  # by column
_KEY = b"penstock.feature_names"
_MOST_SHOWN = 3

FeatureNames = dict[str, list[str]]  # by column


def with_names(field: pa.Field, names: Sequence[str] | None) -> pa.Field:
    return field if names is None else field.with_metadata({_KEY: json.dumps(list(names)).encode()})


def names_of(field: pa.Field) -> list[str] | None:
    told = (field.metadata or {}).get(_KEY)
    return None if told is None else [str(name) for name in json.loads(told)]


def feature_names(schema: pa.Schema) -> FeatureNames:
    """The names of every column that has them."""
    return {field.name: names for field in schema if (names := names_of(field)) is not None}


def order_of(names: list[str] | None, first: list[str] | None) -> list[int] | None:
    """Positions of the first file's features in this file's rows; None if both have the same order."""
    assert not misaligned(names, first)
    if names is None or first is None or names == first:
        return None
    place = {name: number for number, name in enumerate(names)}
    return [place[name] for name in first]


def misaligned(names: list[str] | None, first: list[str] | None) -> str | None:
    """Why the features of a file cannot be put in the order of the first file's; None where they can."""
    if names is None and first is None:
        return None
    if names is None:
        return "its features have no names, and those of the first file have: their order cannot be told"
    if first is None:
        return "its features have names, and those of the first file have none: their order cannot be told"
    more, less = set(names) - set(first), set(first) - set(names)
    told = [f"it has {_listed(more)}, which the first file has not"] if more else []
    told += [f"it lacks {_listed(less)} of the first file"] if less else []
    return "; ".join(told) or None


def _listed(names: set[str]) -> str:
    shown = ", ".join(map(repr, sorted(names)[:_MOST_SHOWN]))
    more = f" and {len(names) - _MOST_SHOWN:,} more" if len(names) > _MOST_SHOWN else ""
    return f"{'feature' if len(names) == 1 else 'features'} {shown}{more}"
