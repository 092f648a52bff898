"""Projection: a Plan and some Nodes -> facts about time, spill and network there, for people and for JSON."""

from dataclasses import asdict
from typing import Any

from penstock.prepare.plan.nodes import Nodes
from penstock.prepare.plan.plan import Plan
from penstock.prepare.plan.spread import COMPARED, extrapolated, one_node, spread


def projection(plan: Plan, nodes: Nodes, planning_seconds: float) -> dict[str, Any]:
    """`planning_seconds`: how long planning took here. Raises PlanError if a node is too small for a task."""
    found = spread(plan, nodes, planning_seconds)
    one = one_node(found, plan, planning_seconds)
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
