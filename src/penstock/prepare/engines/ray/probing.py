"""Probing: before any work, a task on each node reports what the node has. Unfit nodes are refused by name."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.sizes import counted
from penstock.prepare.engines.hired import WORKER_ENVIRONMENT
from penstock.prepare.engines.ray import probe
from penstock.prepare.engines.ray.arriving import message_of, version
from penstock.prepare.engines.ray.cluster import Cluster
from penstock.prepare.engines.ray.places import Node

_SECONDS = 120.0  # for all nodes together: starting a process on a busy node took 20 s
_FILES = 100  # files of the input that each node looks for: a million would take a while


@dataclass(frozen=True)
class Expected:
    """What each node must have. `code` has the identities of the user's code."""

    token: str
    words: str  # in the file `token`
    files: Sequence[str]
    code: Sequence[tuple[str, str]]


def refuse_unfit_nodes(cluster: Cluster, nodes: Sequence[Node], expected: Expected) -> None:
    """Ask all nodes at once. The error names each node that cannot do tasks, and why. Dead nodes are left out."""
    looked = _looked(cluster, nodes, expected)
    alive = {node.id for node in cluster.nodes()}
    problems = [
        f"{node.name}: {problem}"
        for node, found in looked.items()
        if node.id in alive
        for problem in _problems(found, expected)
    ]
    if problems:
        raise ConfigError(
            f"tasks cannot run on every node of the Ray cluster: {counted(len(problems), 'problem')}",
            where="; ".join(problems),
            next_step="every node needs the same penstock and Python, and sees the output and the input under the same "
            "paths; if a node has just died, run the same command again",
        )


def _looked(cluster: Cluster, nodes: Sequence[Node], expected: Expected) -> Mapping[Node, Mapping[str, Any]]:
    """The facts that each node found; or an `error` that says why it could not look."""
    ray = cluster.ray
    ray.cloudpickle.register_pickle_by_value(probe)
    try:
        look = ray.remote(num_cpus=0, max_retries=0)(probe.look_around)
        few = expected.files[:: max(1, -(-len(expected.files) // _FILES))]
        code = message_of(tuple(expected.code), "the user's code")
        asked = {
            node: look.options(**at_node(node.id)).remote(expected.token, few, code, sys.path, WORKER_ENVIRONMENT)
            for node in nodes
        }
    finally:
        ray.cloudpickle.unregister_pickle_by_value(probe)
    deadline = time.monotonic() + _SECONDS
    return {node: _answer(ray, reference, deadline) for node, reference in asked.items()}


def at_node(node: str) -> dict[str, Any]:
    """Options of a task: run on this node only, in a process with the variables of a worker."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    return {"scheduling_strategy": strategy, "runtime_env": {"env_vars": WORKER_ENVIRONMENT}}


def _answer(ray: Any, reference: Any, deadline: float) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = ray.get(reference, timeout=max(0.0, deadline - time.monotonic()))
    except ray.exceptions.GetTimeoutError:
        ray.cancel(reference, force=True)
        return {"error": f"it has not answered within {_SECONDS:g} s"}
    except ray.exceptions.RayError as error:
        return {"error": " ".join(str(error).split())}
    return found


def _problems(found: Mapping[str, Any], expected: Expected) -> Iterator[str]:
    if "error" in found:
        yield found["error"]
        return
    ours = "{}.{}.{}".format(*sys.version_info)
    if found["python"].split(".")[:2] != ours.split(".")[:2]:
        yield f"it has Python {found['python']}, and the driver {ours}"
    if not found["penstock"] or (found["penstock"] == version() and "import" in found):
        yield f"it cannot import penstock ({found['import']}): pip install 'penstock[ray]=={version()}' there"
    elif found["penstock"] != version():
        yield f"it has penstock {found['penstock']}, and the driver {version()}: install {version()} there"
    if found["token"] != expected.words:
        folder = os.path.dirname(expected.token)
        yield f"it does not see the output as the driver does ({folder}: {found['token']}): mount the same folder there"
    if found["missing"]:
        yield f"it cannot read {counted(len(found['missing']), 'file')} of the input, such as {found['missing'][0]}"
    if found["environment"]:
        yield f"processes there do not start with {', '.join(found['environment'])} as they are asked to"
    yield from found["code"]
