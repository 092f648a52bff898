"""Exported: how many rows, tokens and bytes an export has, as facts and tables."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, cast

from rich.console import RenderableType
from rich.text import Text

from penstock.base.sizes import format_count, format_size
from penstock.shards.foreign.exporting import Format, export
from penstock.show.tables import make_table


def exported_facts(
    path: str, to: str, output: str, split: str | None, overwrite: bool, shard_size: str | None
) -> dict[str, Any]:
    # `exported_place` has refused other words.
    exported = export(path, cast(Format, to), output, split, overwrite, shard_size)
    return {"path": path, "to": to, "output": output, **asdict(exported)}


def exported_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    tokens = facts["tokens"]
    table = make_table("split", ">rows", *([">tokens"] if tokens else []))
    for split, rows in facts["rows"].items():
        table.add_row(split, format_count(rows), *([format_count(tokens[split])] if tokens else []))
    yield table
    files = f"{facts['files']:,} files, " if facts["files"] > 1 else ""
    wrote = f"wrote {facts['output']}, {files}{format_size(facts['bytes'])}, of dataset {facts['dataset']}"
    yield Text(f"\n{wrote}", style="green")
