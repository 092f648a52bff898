"""Cluster: join a Ray cluster, or start one on this machine for one run and end it afterwards."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, cast

from penstock.base.errors import ConfigError
from penstock.base.memory import Budget
from penstock.prepare.engines.ray.places import Node
from penstock.prepare.engines.ray.travelling import copy_modules

_ANY = "auto"
_STORE_BYTES = 80 << 20  # of the object store of a cluster that is started here: about the least that Ray takes
_CONNECT_SECONDS = 5.0
# Ray's memory monitor counts all programs of the node, and kills; ours counts our tasks. Usage reports are off, too.
_STARTED_WITH = {
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_agent_register_timeout_ms": "180000",  # on a busy machine, Ray gave up after 30 s, and ended our process too
}
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"  # of gRPC, and empty settings
_SETTINGS = 4  # the kind of frame with which a gRPC server answers


class Cluster:
    """A connection to a cluster. `ray` is the module."""

    def __init__(self, ray: ModuleType, is_joined_here: bool) -> None:
        self.ray, self._is_joined_here = ray, is_joined_here

    @property
    def own_node(self) -> str:
        """Id of the node that the driver is on."""
        return str(self.ray.get_runtime_context().get_node_id())

    def nodes(self) -> list[Node]:
        """The nodes that are alive, in the order of their names."""
        found = (Node.of(facts) for facts in self.ray.nodes() if facts["Alive"])
        return sorted(found, key=lambda node: (node.name, node.id))

    def leave(self) -> None:
        """Disconnect. A cluster that was started here ends with all its processes."""
        if self._is_joined_here:
            self._is_joined_here = False
            with _signals_kept():
                self.ray.shutdown()


def join_cluster(address: str | None, budget: Budget, cores: int, code: Sequence[str]) -> Cluster:
    """Connect to the cluster, or start one on this machine. Its nodes get the modules of `code`."""
    ray = _imported()
    if ray.is_initialized():  # by the program that runs the job, which has chosen the cluster
        return Cluster(ray, is_joined_here=False)
    options: dict[str, Any] = {"address": address or "local"}
    if address:
        _refuse_unreachable(address)
    else:
        options |= {"num_cpus": cores, "_memory": budget.allowed, "object_store_memory": _STORE_BYTES}
        options |= {"include_dashboard": False}
    with tempfile.TemporaryDirectory(prefix="penstock-code-") as folder, _signals_kept(), _environment(_STARTED_WITH):
        if copy_modules(code, folder):
            options["runtime_env"] = {"working_dir": folder}
        try:
            ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:
            raise _unjoined(address, error) from error
    return Cluster(ray, is_joined_here=True)


def _imported() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise ConfigError(
            f"engine: ray needs the library ray, which cannot be imported: {error}",
            next_step="pip install 'penstock[ray]', on this machine and on every node of the cluster",
        ) from error
    return cast(ModuleType, ray)


def _refuse_unreachable(address: str) -> None:
    """Refuse an address where no cluster answers. Ray would try for two minutes, and then end this process."""
    named = os.environ.get("RAY_ADDRESS", "") if address == _ANY else address
    if named in ("", _ANY):
        return  # Ray looks for a cluster on this machine, and knows at once
    host, colon, port = named.rpartition(":")
    if "://" in named or not colon or not port.isdecimal():
        raise ConfigError(
            f"engine: ray.address: {named!r} is not auto and not HOST:PORT",
            next_step="run the job on a node of the cluster, with `address: auto`, or name its head as HOST:6379",
        )
    if problem := _why_unreachable(host.strip("[]"), int(port)):
        raise ConfigError(
            f"no Ray cluster answers at {named}: {problem}",
            where="engine: ray.address" + (", auto: from RAY_ADDRESS" if address == _ANY else ""),
            next_step="start its head there (ray start --head --port=6379), or leave `address:` out: the run then "
            "starts a cluster on this machine",
        )


def _why_unreachable(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return ""
            connection.settimeout(_CONNECT_SECONDS)
            connection.sendall(_HELLO)
            answer = connection.recv(9)
            return "" if answer[3:4] == bytes([_SETTINGS]) else "something else than Ray listens there"
    except TimeoutError:
        return f"no answer within {_CONNECT_SECONDS:g} s"
    except OSError as error:
        return str(error.strerror or error)


def _unjoined(address: str | None, error: Exception) -> ConfigError:
    if not address:
        return ConfigError(f"Ray cannot start a cluster on this machine: {error}", next_step="see `ray start --head`")
    lines = " ".join(str(error).split())
    return ConfigError(
        f"Ray cannot join the cluster at {address}: {lines}",
        next_step="start a cluster (ray start --head) with the same versions of Ray and Python as here; or "
        "leave `address:` out: the run then starts one on this machine",
    )


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep our signal handlers. Ray replaces that for SIGTERM; ours treats it as Ctrl-C, which cleans up."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            with suppress(ValueError):  # not in the main thread, where Ray sets none either
                signal.signal(number, handler)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for the processes that are started meanwhile. Those that the user has set stay."""
    new = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)
