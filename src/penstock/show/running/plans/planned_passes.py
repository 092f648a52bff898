"""Planned passes: the passes of a Plan, and the ledger of an earlier run -> facts about each pass."""

from dataclasses import asdict
from typing import Any

from penstock.base.sizes import format_size
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Projection
from penstock.prepare.ledger import files_are_there, read_rows
from penstock.prepare.passes import Facts
from penstock.prepare.plan.plan import Plan, Planned


def pass_facts(store: Store, plan: Plan) -> list[dict[str, Any]]:
    rows = read_rows(store) if store.exists("") else {}
    ledger = {name: row.fingerprint for name, row in rows.items() if files_are_there(store, row, spill_needed=False)}
    return [_one_pass(each, plan, ledger) for each in plan.passes]


def _one_pass(planned: Planned, plan: Plan, ledger: dict[str, str]) -> dict[str, Any]:
    facts = planned.pass_.facts()
    return {
        "number": planned.pass_.number,
        "kind": planned.pass_.kind,
        "stages": [plan.config.stage_names[number] for number in facts.stages],
        "exchange": dict(facts.exchange) or None,
        "reads": facts.reads,
        "writes": facts.writes,
        "tasks": len(planned.tasks),
        "tasks_done": sum(task.is_done_by(ledger.get(task.name, "")) for task in planned.tasks),
        **asdict(planned.projected),
        "workers": planned.settings.workers,
        "threads": planned.settings.threads,
        "batch_bytes": planned.settings.batch_bytes,
        "hold_bytes": planned.settings.hold_bytes,
        "words": _pass_words(facts, planned.projected),
    }


def _pass_words(facts: Facts, projected: Projection) -> dict[str, str]:
    """The pass for people: its input, its output, the disk that it needs meanwhile, and a reason."""
    spilled = format_size(projected.spill_bytes)
    size = spilled if facts.for_others else format_size(projected.output_bytes)
    wrote = facts.wrote.format(size=size) if facts.wrote else f"{size} of {facts.writes}"
    return {"reads": facts.origin, "writes": wrote, "scratch": "" if facts.for_others else spilled, "note": facts.note}
