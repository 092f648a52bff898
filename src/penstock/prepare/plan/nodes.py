"""Nodes: the machines that a plan is asked about, as options of a command -> the Means of each."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.base.errors import ConfigError
from penstock.base.memory import Budget
from penstock.base.sizes import format_size, parse_rate, parse_size
from penstock.prepare.budget.means import Means

NETWORK = "10Gbit"  # per node, by default


@dataclass(frozen=True)
class Nodes:
    """`count` equal machines with a shared folder. Each reads and writes `bytes_per_second` there. `cores` may be a
    fraction, if a node has a quota of CPU time."""

    count: int
    cores: float
    budget: Budget
    bytes_per_second: int

    @property
    def speed(self) -> float:
        """Cores that one process has, if it has no threads."""
        return min(1.0, self.cores)

    def means(self, here: Means) -> Means:
        """The means of one node. Costs are those that were measured here."""
        return replace(here, budget=self.budget, cores=max(1, int(self.cores)))


@dataclass(frozen=True)
class AskedNodes:
    """The options --nodes, --cores, --memory-per-node and --network, and --memory of the same command."""

    count: int
    cores: int | None = None
    memory: str | None = None
    network: str = NETWORK
    run_memory: str | None = None

    def refuse_mistakes(self) -> None:
        """Refuse what is wrong without knowing the job or the machine."""
        for option, number in (("--nodes", self.count), ("--cores", self.cores)):
            if number is not None and number < 1:
                place = f"{option} {number}"
                raise ConfigError(
                    f"{option} is {number:,}, and must be at least 1", where=place, next_step=f"{option} 1"
                )
        _parsed("--network", self.network, parse_rate)
        if self.memory is not None:
            self._refuse_larger_run(_parsed("--memory-per-node", self.memory, parse_size))

    def _refuse_larger_run(self, node: int) -> None:
        if self.run_memory is None or self.run_memory.endswith("%"):
            return
        run = _parsed("--memory", self.run_memory, parse_size)
        if run > node:
            raise ConfigError(
                f"--memory allows a run {format_size(run)}, but --memory-per-node gives a node {format_size(node)}",
                where="the command line",
                next_step="leave --memory out, or give nodes at least that much",
            )

    def on(self, asked: str | int, here: Means) -> Nodes:
        """The nodes. Options that were not given are as on this machine; `asked` is the job's `memory:`."""
        return Nodes(self.count, self.cores or here.cores, self._budget(asked, here), parse_rate(self.network))

    def _budget(self, asked: str | int, here: Means) -> Budget:
        """Memory of a run on a node: the node's own, or the job's `memory:` if that is less."""
        if self.memory is None:
            return here.budget
        whole = parse_size(self.memory)
        allowed = parse_size(asked, whole=whole)
        if allowed <= whole:
            return Budget(allowed, f"memory: {asked}")
        return Budget(whole, f"--memory-per-node {self.memory}, less than memory: {asked}")


def asked_nodes(
    count: int | None, cores: int | None, memory: str | None, network: str | None, run_memory: str | None
) -> AskedNodes | None:
    """The nodes that a command asks about; None if it asks about none."""
    others = {"--cores": cores, "--memory-per-node": memory, "--network": network}
    given = [f"{option} {value}" for option, value in others.items() if value is not None]
    if count is None and given:
        raise ConfigError(
            f"{given[0]} describes a node, but nothing says how many nodes there are",
            where="the command line",
            next_step="add --nodes N; --nodes 1 projects one such machine",
        )
    if count is None:
        return None
    found = AskedNodes(count, cores, memory, NETWORK if network is None else network, run_memory)
    found.refuse_mistakes()
    return found


def _parsed(option: str, text: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(str(error), where=f"{option} {text}") from None
