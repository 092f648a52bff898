"""Planned nodes: a Plan and the nodes that a command asks about -> the projection there."""

from typing import Any

from penstock.base.machine import process_age
from penstock.prepare.plan.nodes import AskedNodes
from penstock.prepare.plan.plan import Plan
from penstock.prepare.plan.projection import projection


def nodes_facts(asked: AskedNodes | None, plan: Plan) -> dict[str, Any] | None:
    """None if no nodes are asked about. `start_seconds` includes what planning took here: a run plans as well."""
    return None if asked is None else projection(plan, asked.on(plan.config.memory, plan.means), process_age())
