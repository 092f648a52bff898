"""engine: ray on one node, and what is refused before any work."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import ConfigError
from penstock.base.memory import Budget
from penstock.prepare.engines.ray.cluster import join_cluster
from tests.clusters.ray_nodes import SETTINGS, Nodes, processes_of, ray_nodes
from tests.promises import workshop
from tests.promises.killing import assert_no_leftovers

OWN = """
import os
import pyarrow.compute as pc

FACTOR = 2

def larger(rows):
    with open({seen!r}, "a") as file:
        file.write(os.path.dirname(__file__) + os.linesep)
    return rows.append_column("double", pc.multiply(rows["rtt"], FACTOR))
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workshop.make_event_input(tmp_path_factory.mktemp("events"))


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with ray_nodes(tmp_path_factory.mktemp("home")) as nodes:
        yield nodes


def refused(job: Path, environment: dict[str, str]) -> dict[str, Any]:
    """What the command says, which has written nothing that counts."""
    done = workshop.run(job, environment=environment)
    assert done.returncode, done.stdout
    assert workshop.ledger_rows(job.parent / "out") == 0
    error: dict[str, Any] = json.loads(done.stdout)
    return error


def test_a_started_cluster_writes_the_bytes_of_local_workers_and_is_ended(tmp_path, data):
    written = {}
    for name, keys in {"local": {}, "inline": {"workers": 0}, "ray": {"engine": "ray"}}.items():
        job = workshop.write_events_job(tmp_path / name / "job.yaml", data, **keys)
        environment = {**SETTINGS, "HOME": str(tmp_path)}
        written[name] = workshop.run_well(job, environment=environment)["dataset"]
        assert processes_of(tmp_path) == []
        assert_no_leftovers(tmp_path / name / "out")
    assert set(written.values()) == {written["local"]}
    assert len(workshop.events_named(tmp_path / "ray" / "out", "task")) == workshop.ledger_rows(
        tmp_path / "ray" / "out"
    )


def test_a_node_without_memory_for_a_task_is_refused_with_the_numbers(tmp_path, data, nodes):
    small = nodes.add(memory=20_000_000)
    try:
        error = refused(workshop.write_events_job(tmp_path / "job.yaml", data, engine=nodes.engine), nodes.environment)
    finally:
        nodes.end(small)
    assert "a task needs" in error["what"]
    assert "1 CPUs and 20 MB" in error["where"]


def test_a_node_with_another_version_is_named_before_any_work(tmp_path, data, nodes):
    package = Path(penstock.__file__).parent
    shutil.copytree(package, tmp_path / "other" / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    door = tmp_path / "other" / "penstock" / "__init__.py"
    door.write_text(door.read_text().replace(f'__version__ = "{penstock.__version__}"', '__version__ = "9.9.9"'))
    other = nodes.add(environment={"PYTHONPATH": str(tmp_path / "other")})
    try:
        error = refused(workshop.write_events_job(tmp_path / "job.yaml", data, engine=nodes.engine), nodes.environment)
    finally:
        nodes.end(other)
    assert f"it has penstock 9.9.9, and the driver {penstock.__version__}" in error["where"]


@pytest.mark.parametrize("listens", [False, True])
def test_an_address_without_a_cluster_is_named_at_once(tmp_path, data, listens):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listens:
            server.listen()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        job = workshop.write_events_job(tmp_path / "job.yaml", data, engine={"ray": {"address": address}})
        error = refused(job, {**SETTINGS, "HOME": str(tmp_path)})
    assert f"no Ray cluster answers at {address}" in error["what"]


def test_the_users_code_travels_to_a_node(tmp_path, data, nodes):
    """Ray brings a copy of the module, and workers import that."""
    seen, node, told = tmp_path / "seen", nodes.add(), {}
    (tmp_path / "own_stages.py").write_text(OWN.format(seen=str(seen)))
    try:
        for name, engine in {"local": "local", "ray": nodes.engine}.items():
            seen.write_text("")
            keys = {"output": name, "engine": engine, "stages": ["own_stages:larger", {"statistics": ["double"]}]}
            job = workshop.write_job(tmp_path / f"{name}.yaml", data, **keys)
            told[name] = workshop.run_well(job, environment=nodes.environment)["dataset"]
    finally:
        nodes.kill(node)
    assert told["ray"] == told["local"]
    assert any("working_dir" in place for place in seen.read_text().splitlines())


def test_items_need_no_file_on_the_nodes(tmp_path, nodes):
    node, told = nodes.add(), {}
    (tmp_path / "own_items.py").write_text("def words(item):\n    yield {'said': repr(item)}\n")
    try:
        for name, engine in {"local": "local", "ray": nodes.engine}.items():
            keys = {"input": {"items": ["a", 2, None], "function": "own_items:words"}, "output": name, "stages": []}
            (tmp_path / f"{name}.yaml").write_text(json.dumps({**keys, "engine": engine, "memory": "1GB"}))
            told[name] = workshop.run_well(tmp_path / f"{name}.yaml", environment=nodes.environment)["dataset"]
    finally:
        nodes.end(node)
    assert told["ray"] == told["local"]


def test_ctrl_c_leaves_no_process_and_the_run_resumes(tmp_path, data):
    job = workshop.write_events_job(tmp_path / "job.yaml", data, engine="ray", slice_size="20kB")
    environment = {**os.environ, **SETTINGS, "HOME": str(tmp_path)}
    run = subprocess.Popen(workshop.command(job), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    workshop.wait_for(lambda: workshop.ledger_rows(tmp_path / "out") > 0, seconds=120)
    run.send_signal(2)
    assert run.wait(60) == 130
    assert processes_of(tmp_path) == []
    done = workshop.ledger_rows(tmp_path / "out")
    assert done > 0
    local = workshop.write_events_job(tmp_path / "job.yaml", data, slice_size="20kB")
    workshop.run_well(local)
    assert workshop.events_named(tmp_path / "out", "start")[-1]["tasks_kept"] == done


@pytest.mark.parametrize("address", ["ray://head:10001", "head", "head:port"])
def test_an_address_that_is_no_host_and_port_is_refused(address):
    with pytest.raises(ConfigError, match="is not auto and not HOST:PORT"):
        join_cluster(address, Budget(10**9, "memory: 1GB"), 1, ())
