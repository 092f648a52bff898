"""Planned nodes: a Plan and the nodes it is asked about -> facts about time, spill and network there."""

from dataclasses import asdict
from typing import Any

from penstock.base.machine import process_age
from penstock.prepare.plan.nodes import AskedNodes
from penstock.prepare.plan.plan import Plan
from penstock.prepare.plan.spread import COMPARED, extrapolated, one_node, spread


def nodes_facts(asked: AskedNodes | None, plan: Plan) -> dict[str, Any] | None:
    """None if nobody asks. `start_seconds` has what planning took in this very process: a run plans as well."""
    if asked is None:
        return None
    nodes, planning = asked.on(plan.config.memory, plan.means), process_age()
    found = spread(plan, nodes, planning)
    one = one_node(found, plan, planning)
    return {
        "nodes": nodes.count,
        "cores": nodes.cores,
        "memory_bytes": nodes.budget.allowed,
        "memory_by": nodes.budget.source,
        "network_bytes_per_second": nodes.bytes_per_second,
        "seconds": round(found.seconds, 3),
        "one_node_seconds": round(one.seconds, 3),
        "times_as_fast": round(one.seconds / found.seconds, 3),
        "start_seconds": round(found.start_seconds, 3),
        "finish_seconds": round(found.finish_seconds, 3),
        "spill_bytes": found.spill_bytes,
        "network_bytes": found.network_bytes,
        "passes": [asdict(each) for each in found.passes],
        "costs_are_assumed": plan.means.measured.assumed,
        "extrapolated": extrapolated(found, plan),
        "compared": COMPARED,
    }
