"""Exported: a dataset and the name of a format -> a file of it, and how many rows and bytes that has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.sizes import format_count, format_size
from penstock.shards.hdf5 import export_hdf5
from penstock.show.tables import make_table

FORMATS = {"hdf5": export_hdf5}


def exported_facts(path: str, to: str, output: str, split: str | None, overwrite: bool) -> dict[str, Any]:
    if to not in FORMATS:
        raise ConfigError(
            f"there is no export to {to!r}.{did_you_mean(to, list(FORMATS))}",
            where="export --to",
            next_step=f"one of: {', '.join(FORMATS)}",
        )
    return {"path": path, "to": to, **asdict(FORMATS[to](path, output, split, overwrite))}


def exported_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    table = make_table("split", ">rows")
    for split, rows in facts["rows"].items():
        table.add_row(split, format_count(rows))
    yield table
    yield Text(f"\nwrote {facts['file']}, {format_size(facts['bytes'])}, of dataset {facts['dataset']}", style="green")
