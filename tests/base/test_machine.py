"""The machine's limits: what kills inside a container is the cgroup's, not what the host shows."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.base import machine
from penstock.base.machine import Limit, cgroup_folders, cpu_limits, memory_limits

V1_TABLE = "5:cpu,cpuacct:/job/step\n4:memory:/job/step\n3:name=systemd:/\n"
V2_TABLE = "0::/job/step\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_every_v2_limit_from_the_own_cgroup_to_the_root_counts(tmp_path):
    write(tmp_path / "job/step/memory.max", "max")
    write(tmp_path / "job/memory.max", "2000000000")
    write(tmp_path / "memory.max", "8000000000")
    limits = memory_limits(cgroup_folders("memory", tmp_path, V2_TABLE))
    assert limits == [
        Limit(2_000_000_000, f"cgroup v2 {tmp_path}/job"),
        Limit(8_000_000_000, f"cgroup v2 {tmp_path}"),
    ]


def test_a_v1_limit_is_found_under_its_controller(tmp_path):
    write(tmp_path / "memory/job/step/memory.limit_in_bytes", "1000000000")
    write(tmp_path / "memory/memory.limit_in_bytes", str(2**63 - 4096))
    limits = memory_limits(cgroup_folders("memory", tmp_path, V1_TABLE))
    assert limits == [Limit(1_000_000_000, f"cgroup v1 {tmp_path}/memory/job/step")]


def test_a_limit_counts_where_the_container_hides_the_path_to_it(tmp_path):
    write(tmp_path / "memory/memory.limit_in_bytes", "1000000000")
    write(tmp_path / "memory.max", "3000000000")
    assert [limit.amount for limit in memory_limits(cgroup_folders("memory", tmp_path, V1_TABLE))] == [1_000_000_000]
    assert [limit.amount for limit in memory_limits(cgroup_folders("memory", tmp_path, V2_TABLE))] == [3_000_000_000]


def test_no_cgroups_are_no_limits(tmp_path):
    assert memory_limits(cgroup_folders("memory", tmp_path / "nowhere", V2_TABLE)) == []
    assert cgroup_folders("memory", tmp_path, "") == []


def test_a_quota_is_whole_cores_and_at_least_one(tmp_path):
    write(tmp_path / "job/step/cpu.max", "250000 100000")
    write(tmp_path / "job/cpu.max", "50000 100000")
    write(tmp_path / "cpu.max", "max 100000")
    limits = cpu_limits(cgroup_folders("cpu", tmp_path, V2_TABLE))
    assert [limit.amount for limit in limits] == [2, 1]


def test_a_v1_quota_of_minus_one_is_none(tmp_path):
    write(tmp_path / "cpu/job/step/cpu.cfs_quota_us", "-1")
    write(tmp_path / "cpu/job/step/cpu.cfs_period_us", "100000")
    write(tmp_path / "cpu/job/cpu.cfs_quota_us", "400000")
    write(tmp_path / "cpu/job/cpu.cfs_period_us", "100000")
    limits = cpu_limits(cgroup_folders("cpu", tmp_path, V1_TABLE))
    assert limits == [Limit(4, f"cgroup v1 {tmp_path}/cpu/job")]


def test_this_machine_allows_no_more_than_it_has():
    assert 0 < machine.memory_limit().amount <= machine.physical_memory()
    assert 1 <= machine.cpu_count().amount <= (os.cpu_count() or 1)


def test_free_disk_is_told_for_a_folder_that_is_not_there_yet(tmp_path):
    assert machine.free_disk(str(tmp_path / "a/b/c")) > 0


def test_the_description_says_who_sets_the_limit():
    facts = machine.describe()
    assert facts["memory_limit_bytes"] == machine.memory_limit().amount
    assert facts["memory_limit_source"]
