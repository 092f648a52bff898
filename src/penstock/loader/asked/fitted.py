"""Fitted: fields whose bins a job has fitted -> fields with their edges, from the datasets. Used by kinds/events.py."""

from collections.abc import Mapping
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.stores import open_store
from penstock.loader.asked.opening import Asked, Opened
from penstock.loader.tokens.kinds.bins import Bins
from penstock.shards.manifest import stage_artifacts


def with_edges(fields: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    """`{"rtt": "bins"}` -> `{"rtt": {"bins": [edges]}}`. Datasets that are mixed must have the same edges."""
    return {name: {Bins.name: _edges(name, asked)} if each == Bins.name else each for name, each in fields.items()}


def _edges(column: str, asked: Asked) -> list[float]:
    first, *others = asked.opened
    edges = _edges_in(column, first)
    for other in others:
        if (found := _edges_in(column, other)) != edges:
            raise ConfigError(
                f"{other.path} and {first.path} cannot be mixed: their bins of {column!r} differ "
                f"({len(found) - 1:,} from {found[0]:g} to {found[-1]:g}, and {len(edges) - 1:,} from {edges[0]:g} to "
                f"{edges[-1]:g})",
                where=f"load(fields={{{column!r}: 'bins'}})",
                next_step="use the edges of one dataset for both: fields=penstock.load(one, ...).vocabulary",
            )
    return edges


def _edges_in(column: str, opened: Opened) -> list[float]:
    found = _fitted(opened)
    if column not in found:
        has = f"it has bins of {', '.join(found)}" if found else "it has none"
        raise ConfigError(
            f"no bins of column {column!r} were fitted for this dataset: {has}",
            where=opened.path,
            next_step=f"prepare it with the stage `bins: {{{column}: 256}}`, or give edges: "
            f"fields={{{column!r}: {{'bins': [0, 1.5, 3]}}}}",
        )
    edges: list[float] = found[column]["edges"]
    if not edges:
        raise ConfigError(
            f"the bins of column {column!r} have no edges: no training row had a finite value",
            where=opened.path,
            next_step=f"leave it out of fields=, or give edges: fields={{{column!r}: {{'bins': [0, 1.5, 3]}}}}",
        )
    return edges


def _fitted(opened: Opened) -> dict[str, Any]:
    manifest = opened.manifest or (opened.old and opened.old.manifest)
    return stage_artifacts(open_store(opened.path), manifest, Bins.name) if manifest else {}
