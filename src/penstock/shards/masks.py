"""Masks: columns `labels_X` and `masks_X` of the same X -> the rows whose label its mask does not allow.

X is a head: one whole number per row says which class, a fixed list of numbers or bools which classes were allowed.
Used by verify.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.shards.columns import Column
from penstock.shards.schema import Schema, Type

LABELS, MASKS = "labels_", "masks_"
NO_LABEL = -1
MOST_LISTED = 1000
_CHUNK = 2**16  # rows looked at together, so that memory does not grow with the shard


@dataclass(frozen=True)
class MaskViolation:
    """A label that its mask does not allow. `row` counts from the beginning of the split."""

    split: str
    row: int
    head: str
    label: int
    allowed: tuple[int, ...]


@dataclass(frozen=True)
class MaskFindings:
    """Counts of labels that were held against their masks, and of those not allowed, with the first of these."""

    labels: int = 0
    violation_count: int = 0
    violations: tuple[MaskViolation, ...] = ()

    def __add__(self, other: MaskFindings) -> MaskFindings:
        violations = (*self.violations, *other.violations)[:MOST_LISTED]
        return MaskFindings(self.labels + other.labels, self.violation_count + other.violation_count, violations)


def masked_heads(schema: Schema) -> tuple[str, ...]:
    """The heads that have both columns, each of its type, in the order of their labels."""
    types = {field.name: field.parsed for field in schema}
    heads = [name.removeprefix(LABELS) for name, kind in types.items() if name.startswith(LABELS) and _is_label(kind)]
    return tuple(head for head in heads if MASKS + head in types and _is_mask(types[MASKS + head]))


def unchecked_heads(schema: Schema) -> tuple[str, ...]:
    """Heads that have both columns, of types that do not say which class is allowed."""
    names = {field.name for field in schema}
    heads = [name.removeprefix(LABELS) for name in names if name.startswith(LABELS)]
    return tuple(sorted(head for head in heads if MASKS + head in names and head not in masked_heads(schema)))


def _is_label(kind: Type) -> bool:
    return kind.name.startswith(("int", "uint"))


def _is_mask(kind: Type) -> bool:
    return kind.is_fixed_list and len(kind.shape) == 1 and kind.number.name.startswith(("int", "uint", "float", "bool"))


def mask_violations(
    columns: Mapping[str, Column], heads: Sequence[str], split: str, first_row: int = 0
) -> MaskFindings:
    """Hold the labels of one shard against their masks; `first_row` is the number of its first row in the split.

    -1 and null are no label. A null mask allows no class.
    """
    found = MaskFindings()
    rows = len(columns[LABELS + heads[0]]) if heads else 0
    for start in range(0, rows, _CHUNK):
        for_each = [_in_chunk(columns, head, split, first_row, start, min(rows, start + _CHUNK)) for head in heads]
        listed = sorted((each for part in for_each for each in part.violations), key=lambda each: each.row)
        found += replace(sum(for_each, MaskFindings()), violations=tuple(listed))
    return found


def _in_chunk(
    columns: Mapping[str, Column], head: str, split: str, first_row: int, start: int, stop: int
) -> MaskFindings:
    labels, masks = columns[LABELS + head].read(start, stop), columns[MASKS + head].read(start, stop)
    is_label = labels != NO_LABEL
    if f"{LABELS}{head}/valid" in columns:
        is_label &= columns[f"{LABELS}{head}/valid"].read(start, stop) != 0
    is_class = (labels >= 0) & (labels < masks.shape[1])
    place = np.where(is_class, labels, 0).astype("i8")
    is_allowed = is_class & (masks[np.arange(len(masks)), place] != 0)
    wrong = np.flatnonzero(is_label & ~is_allowed)
    violations = tuple(
        MaskViolation(
            split, first_row + start + row, head, int(labels[row]), tuple(np.flatnonzero(masks[row]).tolist())
        )
        for row in wrong[:MOST_LISTED].tolist()
    )
    return MaskFindings(int(np.count_nonzero(is_label)), len(wrong), violations)
