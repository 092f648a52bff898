"""Summary: what `group`, `bins` and text jobs leave beside the shards -> facts about keys, bins, documents and rows."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from penstock.base.sizes import counted, format_count
from penstock.base.stores.store import Store
from penstock.shards.manifest import Manifest, Step, read_artifact, stage_artifacts
from penstock.shards.packed import SUMMARY
from penstock.show.contents.values import short
from penstock.show.tables import filled, make_list, make_table

Facts = dict[str, Any]
GROUP = "artifacts/group.json"  # SUMMARY is that of a text job
_SHARES = (0.5, 0.9, 0.99)  # of the keys, whose sizes are told
_BAR = 30  # characters of the longest


def read_summary(store: Store, manifest: Manifest, name: str) -> Facts | None:
    """A summary that the job left; None if it left none of that name."""
    data = read_artifact(store, manifest, name)
    facts: Facts | None = json.loads(data) if data is not None else None
    return facts


def key_tables(facts: Facts) -> Iterator[RenderableType]:
    yield make_list(_key_lines(facts))
    if facts["events"] is not None and facts["largest"]:
        yield ""
        table = make_table("largest keys", ">events", ">share")
        for each in facts["largest"]:
            share = each["events"] / max(1, facts["events"])
            table.add_row(_key(each["key"]), format_count(each["events"]), _small_percent(share))
        yield table


def _key_lines(facts: Facts) -> Iterator[tuple[str, str]]:
    """Records of the key alone do not tell how many events they had: `events` is null then, and not shown."""
    keys, known = counted(facts["keys"], "key"), facts["events"] is not None
    events = f"{counted(facts['events'], 'event')} of " if known else ""
    by = f" ({', '.join(facts['by'])})" if facts["by"] else ""
    yield "keys", f"{events}{keys}{by}, in {counted(facts['records'], 'record')}"
    if facts["least"] is not None:
        yield facts["order"][0], f"{facts['least']} to {facts['greatest']}"
    if facts["keys"] and known:
        mean = facts["events"] / facts["keys"]
        yield "events per key", f"{mean:,.1f} on average; {_sizes(facts['keys_by_events'])}"


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


# Bins.


def bin_facts(store: Store, manifest: Manifest) -> Facts:
    """Edges and counts that `bins` has fitted, by column."""
    return stage_artifacts(store, manifest, "bins")


def bin_tables(facts: Facts) -> Iterator[RenderableType]:
    """How many bins each column has: fewer than asked for if many rows have the same value."""
    table = make_table("bins of", ">asked for", ">bins", ">smallest", ">largest", "from", "to")
    for name, each in facts.items():
        shares = [count / each["count"] for count in each["counts"]]
        ends = [f"{edge:g}" for edge in (each["edges"][0], each["edges"][-1])] if shares else ["", ""]
        least, most = (_small_percent(which(shares)) if shares else "" for which in (min, max))
        table.add_row(short(name), format_count(each["asked"]), format_count(each["bins"]), least, most, *ends)
    yield table


# Packed rows.


def packed_facts(store: Store, manifest: Manifest, run: Mapping[str, Any]) -> Facts | None:
    """Facts about packed rows; None for other datasets. `run` is run.json, which alone names the sources."""
    summary = read_summary(store, manifest, SUMMARY)
    if summary is None:
        return None
    options = next(stage["pack"] for stage in manifest.config["stages"] if "pack" in stage)
    rows = sum(map(manifest.records, manifest.splits))
    tokens = _flow(manifest.tokens)
    return {
        "documents": _flow([step for step in manifest.account if step.unit == "documents"]),
        "tokens": tokens,
        "rows": {
            "count": rows,
            "length": options["length"],
            "method": options["method"],
            "fill": tokens["out"] / (rows * options["length"]) if rows else None,
        },
        "sources": list(_sources(summary, run.get("input", []))),
        "lengths": _lengths([each["lengths"] for sources in summary.values() for each in sources.values()]),
    }


def _flow(steps: Sequence[Step]) -> Facts:
    """Counts into the first step, out of the last, and set aside in any."""
    aside: dict[str, int] = {}
    for step in steps:
        for reason, count in step.set_aside.items():
            aside[reason] = aside.get(reason, 0) + count
    return {"in": steps[0].taken if steps else 0, "out": steps[-1].given if steps else 0, "set_aside": aside}


def _sources(summary: Mapping[str, Any], names: Sequence[Sequence[str]]) -> Iterator[Facts]:
    total = sum(each["tokens"] for sources in summary.values() for each in sources.values())
    for split, sources in summary.items():
        for number, each in sources.items():
            name = ", ".join(names[int(number)]) if int(number) < len(names) else f"input[{number}]"
            counts = {"documents": each["documents"], "tokens": each["tokens"], "share": each["tokens"] / max(1, total)}
            yield {"source": int(number), "name": name, "split": split, **counts}


def _lengths(histograms: Sequence[Sequence[int]]) -> list[Facts]:
    """By powers of two, from the shortest document to the longest."""
    counts = [sum(each) for each in zip(*histograms, strict=True)]
    used = [number for number, count in enumerate(counts) if count]
    return [
        {"least": 2**number // 2, "most": 2**number - 1, "documents": counts[number]}
        for number in (range(used[0], used[-1] + 1) if used else ())
    ]


def packed_tables(facts: Facts) -> Iterator[RenderableType]:
    yield make_list(_lines(facts))
    if facts["sources"]:
        yield ""
        yield from filled(make_table("source", "split", ">documents", ">tokens", ">share"), _source_rows(facts), "line")
    if facts["lengths"]:
        yield ""
        yield from filled(make_table(">tokens", ">documents", ""), _length_rows(facts["lengths"]), "line")


def _lines(facts: Facts) -> Iterator[tuple[str, str]]:
    for what in ("documents", "tokens"):
        flow = facts[what]
        aside = [f" + {count:,} ({reason})" for reason, count in flow["set_aside"].items()]
        yield what, f"{flow['in']:,} in = {flow['out']:,} out{''.join(aside)}"
    rows = facts["rows"]
    fill = "" if rows["fill"] is None else f", {_percent(rows['fill'])} full"
    yield "rows", f"{counted(rows['count'], 'row')} of {format_count(rows['length'])} tokens, {rows['method']}{fill}"


def _percent(share: float) -> str:
    """Rounded down: what is not all does not read 100%."""
    return f"{math.floor(10_000 * share) / 100:g}%"


def _small_percent(share: float) -> str:
    """One decimal; a share that is not nothing does not read 0.0%."""
    return "under 0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def _source_rows(facts: Facts) -> Iterator[tuple[str, ...]]:
    for each in facts["sources"]:
        counts = format_count(each["documents"]), format_count(each["tokens"])
        yield each["name"], each["split"], *counts, _small_percent(each["share"])


def _length_rows(lengths: Sequence[Facts]) -> Iterator[tuple[str, ...]]:
    largest = max(each["documents"] for each in lengths)
    for each in lengths:
        least, most = format_count(each["least"]), format_count(each["most"])
        bar = "█" * math.ceil(_BAR * each["documents"] / largest)
        yield least if least == most else f"{least} to {most}", format_count(each["documents"]), bar
