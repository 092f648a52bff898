"""How many tasks run where, without a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.base.errors import PlanError
from penstock.base.memory import Budget
from penstock.prepare.budget.means import Settings
from penstock.prepare.budget.room import Room
from penstock.prepare.engines.ray.places import Node, find_places, refuse_small_nodes

GB = 10**9
BUDGET = Budget(4 * GB, "memory: 4GB")
SETTINGS = Settings(2, 1 << 20, 0, 1.0, 1.0, room=Room(GB, 2 * GB), task_bytes=GB)
LARGE, SMALL, HEAD = Node("a", "large", 64, 100 * GB), Node("b", "small", 2, 3 * GB), Node("c", "head", 0, 100 * GB)


def test_a_node_does_as_many_tasks_as_fit_into_its_cpus_its_memory_and_that_of_the_job():
    places = find_places([LARGE, SMALL, HEAD], SETTINGS, BUDGET, None)
    assert places.at_once == {"a": 4, "b": 2}
    assert places.total == 6


def test_workers_of_a_job_are_per_node():
    assert find_places([LARGE, SMALL], SETTINGS, BUDGET, 1).at_once == {"a": 1, "b": 1}


def test_a_task_has_no_more_threads_than_the_smallest_node_has_cpus():
    places = find_places([LARGE, SMALL, HEAD], replace(SETTINGS, threads=8), BUDGET, None)
    assert (places.settings.threads, places.at_once) == (2, {"a": 4, "b": 1})


def test_more_tasks_on_a_node_than_were_planned_leave_each_less_room_for_a_large_row():
    places = find_places([LARGE], replace(SETTINGS, task_bytes=GB // 4), BUDGET, None)
    assert places.at_once == {"a": 16}
    assert places.settings.room.alone == 2 * GB
    assert 0 < places.settings.room.shared <= BUDGET.allowed // 16


def test_as_many_tasks_as_were_planned_have_the_settings_of_the_plan():
    assert find_places([SMALL], SETTINGS, BUDGET, None).settings == SETTINGS


def test_a_node_that_is_too_small_is_named_with_the_numbers():
    with pytest.raises(PlanError, match=r"pass 1 \(map\): a task needs 3.5 GB, and 1 of 2 nodes") as refused:
        refuse_small_nodes([LARGE, SMALL, HEAD], "1 (map)", replace(SETTINGS, task_bytes=3_500_000_000), BUDGET)
    assert refused.value.where == "small has 2 CPUs and 3 GB; 4 GB (memory: 4GB) is allowed on each node"


@pytest.mark.parametrize("nodes", [[], [HEAD]])
def test_a_cluster_without_cpus_is_refused(nodes):
    with pytest.raises(PlanError, match="no node of the Ray cluster has a CPU for tasks"):
        refuse_small_nodes(nodes, "1 (map)", SETTINGS, BUDGET)
