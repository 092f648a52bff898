"""A Ray cluster whose nodes are raylets of this machine, for tests. Needs the library ray."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

# A token under HOME, reports of usage and Ray's own watch of the whole machine's memory are not for tests.
SETTINGS = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_agent_register_timeout_ms": "180000",
}
_STORE_BYTES = 80 << 20
_NODE_BYTES = 2_000_000_000


def _ports() -> dict[str, int]:
    """Ports that nobody uses. A node that must wait until its agents have found some gives up on a busy machine."""
    names = ("metrics_agent_port", "runtime_env_agent_port", "dashboard_agent_listen_port", "metrics_export_port")
    sockets = [socket.socket() for _ in names]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return {name: each.getsockname()[1] for name, each in zip(names, sockets, strict=True)}
    finally:
        for each in sockets:
            each.close()


class Nodes:
    """`environment` is that of a driver, which is on the head. The head does no tasks unless it has CPUs."""

    def __init__(self, home: Path, head_cpus: int) -> None:
        self.environment = {"HOME": str(home), **SETTINGS}
        with _variables(self.environment):
            arguments = {"num_cpus": head_cpus, "memory": _NODE_BYTES, "object_store_memory": _STORE_BYTES, **_ports()}
            self._cluster = Cluster(initialize_head=True, head_node_args=arguments)
        self.address: str = self._cluster.address

    def add(self, cpus: int = 1, memory: int = _NODE_BYTES, environment: Mapping[str, str] | None = None) -> Any:
        with _variables({**self.environment, **(environment or {})}):
            return self._cluster.add_node(num_cpus=cpus, memory=memory, object_store_memory=_STORE_BYTES, **_ports())

    def end(self, node: Any) -> None:
        """Let it say goodbye: the cluster knows at once that it is gone."""
        self._cluster.remove_node(node, allow_graceful=True)

    def kill(self, node: Any) -> None:
        """As a power cut does: for some seconds, the cluster takes it to be alive."""
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


def processes_of(home: Path) -> list[str]:
    """Commands of the processes, whosever children they are, that were started with this HOME."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={home}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " ")[:200])
        except OSError:  # it has ended
            continue
    return found


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
