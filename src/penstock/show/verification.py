"""Verification: what `verify` found -> how much was read, and each problem by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.errors import IntegrityError
from penstock.base.sizes import format_size
from penstock.shards.verify import Verification
from penstock.show.tables import counted, filled, make_table


def verification_facts(path: str, found: Verification) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "dataset": found.dataset,
        "path": path,
        "files": found.files,
        "bytes": found.bytes,
        "records": found.records,
        "problems": [_problem(each) for each in found.problems],
        "exit_code": 0 if found.ok else IntegrityError.exit_code,
    }


def _problem(error: IntegrityError) -> dict[str, Any]:
    return {"what": error.what, "where": error.where, "next_step": error.next_step}


def verification_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    size = f"{counted(facts['files'], 'file')}, {format_size(facts['bytes'])}"
    read = f"{size}, {counted(facts['records'], 'record')}"
    if facts["ok"]:
        yield Text(f"ok: {read}, every block as it was written", style="green")
        yield Text(f"dataset {facts['dataset']}")
        return
    problems = facts["problems"]
    rows = [(each["where"] or "", each["what"]) for each in problems]
    yield from filled(make_table("where", "what is wrong"), rows, "problem")
    yield Text(f"\n{counted(len(problems), 'problem')} in {read}", style="bold red")
    for step in dict.fromkeys(each["next_step"] for each in problems if each["next_step"]):
        yield Text.assemble(("  try:", "bold green"), " ", step)
