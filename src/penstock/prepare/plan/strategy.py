"""Strategy: a rule for choosing workers and batches, by its name in the job."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.prepare.job.config import Config
from penstock.prepare.passes import Batches


@dataclass(frozen=True)
class Strategy:
    workers: int | None = None  # as many as there are cores
    batches: Callable[[Batches], Batches] = lambda each: each
    holds_output: bool = True
    is_own_choice: bool = True  # of the job; else penstock chooses everything
    advice: tuple[str, ...] = ()  # where memory is too small

    @property
    def is_inside(self) -> bool:
        """Whether there is no worker: the driver does the tasks itself."""
        return self.workers == 0


_BY_NAME = {
    "auto": Strategy(is_own_choice=False),
    "sequential": Strategy(workers=0),
    "parallel": Strategy(
        batches=lambda each: Batches(each.wanted, each.wanted, each.wanted),
        advice=("strategy: streaming, which holds less at once",),
    ),
    "streaming": Strategy(batches=lambda each: Batches(each.good, each.good, each.least), holds_output=False),
}


def strategy_of(config: Config) -> Strategy:
    found = _BY_NAME[config.strategy]
    if config.workers == "auto" or found.is_inside:
        return found
    return replace(found, workers=config.workers, is_own_choice=True)
