"""Rejected: the rows of a dataset that were set aside and kept -> where each stands in the input, and why."""

import io
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.errors import printable
from penstock.base.sizes import counted
from penstock.base.stores import open_store
from penstock.shards.manifest import Manifest, read_manifest
from penstock.show.contents.values import short
from penstock.show.tables import make_list, why

_HOW = (
    "line: number of the line in the file, from 1. position: in Parquet and Arrow files the number of the row, from 0. "
    "In CSV, JSON lines and text files the byte where the slice of the file starts, plus the number of the record in "
    "that slice, from 0; a compressed file is one slice."
)


def rejected_facts(path: str, most: int) -> dict[str, Any]:
    """The first lines of rejected/, and how many rows were set aside by reason, kept or not."""
    store = open_store(path)
    manifest = read_manifest(store)
    lines: list[dict[str, Any]] = []
    for file in manifest.rejected:
        with io.TextIOWrapper(store.open(file.file), encoding="utf-8") as text:
            lines += [json.loads(line) for line in islice(text, most - len(lines))]
        if len(lines) >= most:
            break
    sizes = {"slice_size": manifest.config["slice_size"], "files": manifest.input["files"]}
    return {"output": store.root, "set_aside": _reasons(manifest), **sizes, "first": lines}


def rejected_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    if not facts["set_aside"]:
        yield Text("No row was set aside.")
        return
    counts = ((each, counted(each["count"], each["unit"].removesuffix("s"))) for each in facts["set_aside"])
    yield make_list((each["step"], f"{count}: {each['words']}") for each, count in counts)
    for line in facts["first"]:
        place = ", whole file" if line["position"] is None else f", position {line['position']:,}"
        yield Text("\n" + printable(f"{line['file']}{place if facts['files'] else ''}"), style="bold")
        others = {name: value for name, value in line.items() if name not in ("file", "position", "source")}
        yield make_list((f"  {name}", short(value)) for name, value in others.items())
    if facts["first"] and facts["files"]:  # the name of an item is its number, and says all
        yield Text(f"\n{_HOW} Slices of this dataset have {facts['slice_size']:,} bytes.", style="dim")
    if any(each["step"] == "near_dedup" for each in facts["set_aside"]):
        shown = f"penstock inspect {facts['output']} --duplicates"
        yield Text(f"\nNear-duplicates are in duplicates/: `{shown}` shows them.", style="dim")
    elif not facts["first"]:
        yield Text("\nOnly their number was kept: `keep: true` of a stage writes the rows to rejected/.", style="dim")


def _reasons(manifest: Manifest) -> list[dict[str, Any]]:
    return [
        {"step": step.step, "unit": step.unit, "reason": reason, "count": count, "words": why(step.step, reason)}
        for step in (*manifest.account, *manifest.tokens)
        for reason, count in step.set_aside.items()
    ]
