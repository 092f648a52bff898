"""Keys: the summary that `group` leaves -> how many events the keys have, from when to when, and the largest keys."""

import json
import math
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from penstock.base.sizes import counted, format_count
from penstock.base.stores.store import Store
from penstock.shards.manifest import Manifest
from penstock.show.contents.artifact import read_artifact
from penstock.show.contents.values import short
from penstock.show.tables import make_list, make_table

_SUMMARY = "artifacts/group.json"
_SHARES = (0.5, 0.9, 0.99)  # of the keys, whose sizes are told


def key_facts(store: Store, manifest: Manifest) -> dict[str, Any] | None:
    """The summary that `group` left; None if events were not grouped."""
    data = read_artifact(store, manifest, _SUMMARY)
    facts: dict[str, Any] | None = json.loads(data) if data is not None else None
    return facts


def key_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    yield make_list(_lines(facts))
    if facts["events"] is not None and facts["largest"]:
        yield ""
        table = make_table("largest keys", ">events", ">share")
        for each in facts["largest"]:
            share = each["events"] / max(1, facts["events"])
            table.add_row(_key(each["key"]), format_count(each["events"]), f"{share:.1%}")
        yield table


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Records of the key alone do not tell how many events they had: `events` is null then, and not shown."""
    keys, known = counted(facts["keys"], "key"), facts["events"] is not None
    events = f"{counted(facts['events'], 'event')} of " if known else ""
    by = f" ({', '.join(facts['by'])})" if facts["by"] else ""
    yield "keys", f"{events}{keys}{by}, in {counted(facts['records'], 'record')}"
    if facts["least"] is not None:
        yield facts["order"][0], f"{facts['least']} to {facts['greatest']}"
    if facts["keys"] and known:
        mean = facts["events"] / facts["keys"]
        yield "events a key", f"{mean:,.1f} on average; {_sizes(facts['keys_by_events'])}"


def _key(key: Any) -> str:
    return ", ".join(map(_key, key)) if isinstance(key, list) else "null" if key is None else short(key)


def _sizes(keys_by_events: dict[str, int]) -> str:
    """`59.4% of the keys have fewer than 8, 92.1% fewer than 32`: at the bounds that were counted, so exact."""
    levels = sorted((int(level), count) for level, count in keys_by_events.items())
    total = sum(count for _, count in levels)
    words: dict[str, None] = {}
    for wanted in _SHARES:
        below = 0
        for level, count in levels:
            below += count
            if below >= wanted * total:
                words[f"{_share(below, total)} fewer than {2 * level or 1:,}"] = None
                break
    first, *others = words
    share, _, bound = first.partition(" fewer")
    return ", ".join([f"{share} of the keys have fewer{bound}", *others])


def _share(part: int, whole: int) -> str:
    """Rounded down: what is not all of them does not read 100%."""
    return "all" if part == whole else f"{math.floor(1000 * part / whole) / 10:g}%"
