"""Packed: the summary that a text job leaves -> what became of its documents and tokens, and how full its rows are."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType

from penstock.base.sizes import counted, format_count
from penstock.base.stores.store import Store
from penstock.shards.manifest import Manifest, Step
from penstock.shards.packed import SUMMARY
from penstock.show.contents.artifact import read_artifact
from penstock.show.tables import filled, make_list, make_table

Facts = dict[str, Any]
_BAR = 30  # characters of the longest


def packed_facts(store: Store, manifest: Manifest, run: Mapping[str, Any]) -> Facts | None:
    """Facts about packed rows; None for other datasets. `run` is run.json, which alone names the sources."""
    data = read_artifact(store, manifest, SUMMARY)
    if data is None:
        return None
    summary = json.loads(data)
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
            counts = {"documents": each["documents"], "tokens": each["tokens"]}
            yield {
                "source": int(number),
                "name": name,
                "split": split,
                **counts,
                "share": each["tokens"] / max(1, total),
            }


def _lengths(histograms: Sequence[Sequence[int]]) -> list[Facts]:
    """By powers of two, from the shortest document to the longest."""
    counts = [sum(each) for each in zip(*histograms, strict=True)]
    used = [number for number, count in enumerate(counts) if count]
    return [
        {"least": 2**number // 2, "most": 2**number - 1, "documents": counts[number]}
        for number in (range(used[0], used[-1] + 1) if used else ())
    ]


# For people.


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


def _source_rows(facts: Facts) -> Iterator[tuple[str, ...]]:
    for each in facts["sources"]:
        counts = format_count(each["documents"]), format_count(each["tokens"])
        yield each["name"], each["split"], *counts, f"{each['share']:.1%}"


def _length_rows(lengths: Sequence[Facts]) -> Iterator[tuple[str, ...]]:
    largest = max(each["documents"] for each in lengths)
    for each in lengths:
        least, most = format_count(each["least"]), format_count(each["most"])
        bar = "█" * math.ceil(_BAR * each["documents"] / largest)
        yield least if least == most else f"{least} to {most}", format_count(each["documents"]), bar
