"""Opening: join a cluster and check every node, before any work. Next: engine.py."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.base.stores.local import TEMPORARY
from penstock.base.stores.store import Store
from penstock.base.user_code import code_identity
from penstock.prepare.engines import Opening
from penstock.prepare.engines.ray.cluster import Cluster, join_cluster
from penstock.prepare.engines.ray.engine import RayEngine
from penstock.prepare.engines.ray.places import Node, refuse_small_nodes
from penstock.prepare.engines.ray.probing import Expected, refuse_unfit_nodes
from penstock.prepare.job.engine_config import RayOptions
from penstock.prepare.passes.job import user_code
from penstock.prepare.plan.plan import Plan
from penstock.prepare.survey.survey import Survey


def open_engine(opening: Opening) -> RayEngine:
    plan = opening.plan
    options, code = plan.config.engine.options, user_code(plan.survey)
    assert isinstance(options, RayOptions)
    cluster = join_cluster(options.address, plan.means.budget, plan.means.cores, code)
    try:
        nodes = _fit_nodes(cluster, plan, opening.store)
        opening.nursery.close()  # no local worker is needed
        return RayEngine(opening, cluster, nodes)
    except BaseException:
        cluster.leave()
        raise


def _fit_nodes(cluster: Cluster, plan: Plan, store: Store) -> list[Node]:
    """The nodes that will do tasks. A node without CPUs, often the head, does none."""
    nodes, code = cluster.nodes(), user_code(plan.survey)
    for each in plan.passes:
        refuse_small_nodes(nodes, f"{each.pass_.number} ({each.pass_.kind})", each.settings, plan.means.budget)
    own = cluster.own_node
    with _token(store) as (token, words):
        expected = Expected(
            token, words, _files_read(plan.survey), [(target, code_identity(target)) for target in code]
        )
        refuse_unfit_nodes(cluster, [node for node in nodes if node.cpus or node.id == own], expected)
    alive = {node.id for node in cluster.nodes()}
    return [node for node in nodes if node.cpus and node.id in alive]


def _files_read(survey: Survey) -> list[str]:
    """Files of the input; `items:` has none."""
    segments = (segment for piece in survey.slices for segment in piece.segments)
    return sorted({each.location for each in segments if survey.kinds[each.source].reads_files})


@contextmanager
def _token(store: Store) -> Iterator[tuple[str, str]]:
    """A file in the output, and its contents. Only a node that sees the same folder can read it."""
    words = secrets.token_hex(8)
    name = f"{TEMPORARY}/token-{words}"
    store.commit_bytes(name, words.encode())
    try:
        yield os.path.abspath(store.local_path(name)), words
    finally:
        store.remove(name)
