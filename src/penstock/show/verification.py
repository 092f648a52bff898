"""Verification: what `verify` found -> how much was read, each problem by name, and labels that masks do not allow."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.errors import InputError, IntegrityError
from penstock.base.sizes import counted, format_count, format_size
from penstock.shards.verify import Verification
from penstock.show.tables import filled, make_table

_MOST_ROWS = 20
_MOST_CLASSES = 16


def verification_facts(path: str, found: Verification) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "dataset": found.dataset,
        "path": path,
        **vars(found),
        "problems": [{name: getattr(each, name) for name in ("what", "where", "next_step")} for each in found.problems],
        "violations": [dataclasses.asdict(each) for each in found.violations],
        "exit_code": _exit_code(found),
    }


def _exit_code(found: Verification) -> int:
    if found.problems:
        return IntegrityError.exit_code
    return InputError.exit_code if found.violation_count else 0


def verification_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    size = f"{counted(facts['files'], 'file')}, {format_size(facts['bytes'])}"
    read = f"{size}, {counted(facts['records'], 'record')}"
    if facts["problems"]:
        yield from _problem_table(facts["problems"], read)
    else:
        yield Text(f"ok: {read}, every block as it was written", style="green")
    if facts["violation_count"]:
        yield from _violation_table(facts)
    elif facts["heads"] and not facts["problems"]:
        heads = counted(len(facts["heads"]), "head")
        yield Text(f"ok: {counted(facts['labels'], 'label')} of {heads}, each allowed by its mask", style="green")
    if facts["unchecked"]:
        why = "labels are checked that are whole numbers, against masks of one list of classes"
        yield Text(f"not compared with their masks: {', '.join(facts['unchecked'])} ({why})", style="yellow")
    if not facts["problems"]:
        yield Text(f"dataset {facts['dataset']}")


def _problem_table(problems: list[dict[str, Any]], read: str) -> Iterator[RenderableType]:
    rows = [(each["where"] or "", each["what"]) for each in problems]
    yield from filled(make_table("where", "what is wrong"), rows, "problem")
    yield Text(f"\n{counted(len(problems), 'problem')} in {read}", style="bold red")
    for step in dict.fromkeys(each["next_step"] for each in problems if each["next_step"]):
        yield _try(step)


def _violation_table(facts: dict[str, Any]) -> Iterator[RenderableType]:
    table, count = make_table("split", ">row", "head", ">label", "allowed by its mask"), facts["violation_count"]
    for each in facts["violations"][:_MOST_ROWS]:
        row, label = format_count(each["row"]), str(each["label"])
        table.add_row(each["split"], row, each["head"], label, _classes(each["allowed"]))
    yield table
    if count > _MOST_ROWS:
        yield Text(f"... and {format_count(count - _MOST_ROWS)} more; --json lists the first 1,000", style="dim")
    yield Text(f"\n{format_count(count)} of {counted(facts['labels'], 'label')} not allowed by their masks", "bold red")
    yield _try("correct them where they are made (a row without a label has -1), and run the job again")


def _classes(allowed: list[int]) -> str:
    more = f", and {format_count(len(allowed) - _MOST_CLASSES)} more" if len(allowed) > _MOST_CLASSES else ""
    return ", ".join(map(str, allowed[:_MOST_CLASSES])) + more if allowed else "no class"


def _try(step: str) -> Text:
    return Text.assemble(("  try:", "bold green"), " ", step)
