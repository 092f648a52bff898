"""Nodes: what a command says about machines, and what is refused before anything is planned."""

from __future__ import annotations

import pytest

from penstock.base.errors import ConfigError
from penstock.base.memory import Budget
from penstock.prepare.budget.costs import assume
from penstock.prepare.budget.means import Means
from penstock.prepare.plan.nodes import AskedNodes, asked_nodes

HERE = Means(Budget(4_000_000_000, "a test"), 2, 1 << 40, 60_000_000, assume(16.0, 0))


def refused(*options: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        asked_nodes(*options)  # type: ignore[arg-type]
    assert caught.value.where
    return caught.value


def test_no_option_asks_about_no_node():
    assert asked_nodes(None, None, None, None, "1GB") is None


def test_what_no_option_says_is_as_it_is_here():
    nodes = AskedNodes(4).on("1GB", HERE)
    assert (nodes.count, nodes.cores, nodes.budget, nodes.bytes_per_second) == (4, 2, HERE.budget, 1_250_000_000)
    assert nodes.means(HERE) == HERE


def test_a_node_allows_the_memory_of_the_job_and_no_more_than_it_has():
    small, large = AskedNodes(2, memory="2GB"), AskedNodes(2, memory="32GB")
    assert large.on("8GB", HERE).budget == Budget(8_000_000_000, "memory: 8GB")
    assert small.on("8GB", HERE).budget == Budget(2_000_000_000, "--memory-per-node 2GB, less than memory: 8GB")
    assert large.on("50%", HERE).budget.allowed == 16_000_000_000


@pytest.mark.parametrize(("count", "cores", "named"), [(0, None, "--nodes"), (-3, 8, "--nodes"), (4, 0, "--cores")])
def test_less_than_one_node_or_core_is_refused(count, cores, named):
    error = refused(count, cores, None, None, None)
    assert error.what.startswith(f"{named} is ")
    assert error.next_step == f"{named} 1"


@pytest.mark.parametrize(
    ("cores", "memory", "network", "named"),
    [(8, None, None, "--cores 8"), (None, "32GB", None, "--memory-per-node 32GB"), (None, None, "1Gbit", "--network")],
)
def test_what_describes_a_node_needs_a_number_of_nodes(cores, memory, network, named):
    error = refused(None, cores, memory, network, None)
    assert error.what.startswith(named)
    assert "--nodes N" in str(error.next_step)


@pytest.mark.parametrize("memory", ["much", "0GB", "50%"])
def test_a_nodes_memory_is_a_size(memory):
    assert refused(2, 1, memory, None, None).where == f"--memory-per-node {memory}"


@pytest.mark.parametrize("network", ["", "10", "10Gb", "fast", "0Gbit", "-1Gbit", "10 Gbit per second"])
def test_a_network_has_a_throughput(network):
    assert "10Gbit" in refused(2, 1, "1GB", network, None).what


def test_a_run_that_may_hold_more_than_a_node_has_is_a_contradiction():
    error = refused(2, 1, "2GB", None, "4GB")
    assert "4 GB" in error.what
    assert "2 GB" in error.what
    assert asked_nodes(2, 1, "2GB", None, "50%")
    assert asked_nodes(2, 1, "2GB", None, "2GB")
