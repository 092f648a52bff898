"""Columns: the schema of a dataset as a table, with the zones of its times."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.errors import printable
from penstock.shards.schema import short_type
from penstock.show.tables import filled, make_table

_ZONE = re.compile(r"timestamp\[\w+, ([^\]]+)\]")


def column_tables(schema: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    fields = [(printable(field["name"]), short_type(field["type"])) for field in schema]
    yield from filled(make_table("column", "type"), fields, "column")
    if zoned := _zoned(schema):
        yield Text(f"Times of {', '.join(zoned)} are stored and shown in UTC.", style="dim")


def _zoned(schema: Sequence[dict[str, Any]]) -> list[str]:
    """Columns of times with a time zone, each with the zone: `at (Europe/Berlin)`."""
    zones = {field["name"]: _ZONE.search(field["type"]) for field in schema}
    return [printable(f"{name} ({zone.group(1)})") for name, zone in zones.items() if zone]
