"""A Ray cluster whose nodes are raylets of this machine, for tests. Needs the library ray."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

# A token under HOME, reports of usage and Ray's own watch of the whole machine's memory are not for tests.
SETTINGS = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_memory_monitor_refresh_ms": "0"}
_STORE_BYTES = 80 << 20
_NODE_BYTES = 2_000_000_000


class Nodes:
    """`environment` is that of a driver, which is on the head. The head does no tasks unless it has CPUs."""

    def __init__(self, home: Path, head_cpus: int) -> None:
        self.environment = {"HOME": str(home), **SETTINGS}
        with _variables(self.environment):
            arguments = {"num_cpus": head_cpus, "memory": _NODE_BYTES, "object_store_memory": _STORE_BYTES}
            self._cluster = Cluster(initialize_head=True, head_node_args=arguments)
        self.address: str = self._cluster.address

    def add(self, cpus: int = 1, memory: int = _NODE_BYTES, environment: Mapping[str, str] | None = None) -> Any:
        with _variables({**self.environment, **(environment or {})}):
            return self._cluster.add_node(num_cpus=cpus, memory=memory, object_store_memory=_STORE_BYTES)

    def kill(self, node: Any) -> None:
        """As a power cut does."""
        self._cluster.remove_node(node, allow_graceful=False)

    @property
    def engine(self) -> dict[str, Any]:
        """The engine of a job that is done here."""
        return {"ray": {"address": self.address}}


@contextmanager
def ray_nodes(home: Path, head_cpus: int = 0) -> Iterator[Nodes]:
    home.mkdir(parents=True, exist_ok=True)
    nodes = Nodes(home, head_cpus)
    try:
        yield nodes
    finally:
        with _variables(nodes.environment):
            nodes._cluster.shutdown()


@contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
