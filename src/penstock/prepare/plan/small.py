"""Small: jobs that are done inside the driver, unmeasured, since starting a process would take longer."""

from dataclasses import replace

from penstock.base.memory import Budget
from penstock.prepare.budget.costs import Measured, assume
from penstock.prepare.job.config import Config
from penstock.prepare.passes.job import user_code
from penstock.prepare.plan.settings import row_bytes_of
from penstock.prepare.plan.strategy import strategy_of
from penstock.prepare.stages.interfaces import UsesThreads
from penstock.prepare.survey.survey import Survey

# Decoded bytes: from about there on, two workers are quicker than none, for all that they must start.
_SMALL = 128 << 20
_SMALL_NEEDS = 2 << 30  # free beside ten times that, since nobody watches it


def is_small(config: Config, survey: Survey, budget: Budget) -> bool:
    """Whether there is little data, much memory, and no code but penstock's own."""
    if strategy_of(config).is_own_choice or user_code(survey):
        return False
    decoded = sum(map(survey.rows_of, survey.slices)) * row_bytes_of(survey)
    return decoded <= _SMALL and _SMALL_NEEDS + 10 * decoded <= budget.allowed


def with_engines(survey: Survey, at_once: bool) -> Survey:
    """Choose the engines of stages that have some; those of a small job are chosen while it is begun."""
    stages = (
        stage.ready(survey.sample, at_once) if isinstance(stage, UsesThreads) else stage for stage in survey.stages
    )
    return replace(survey, stages=tuple(stages))


def assumed(survey: Survey) -> Measured:
    own = (stage.assumed_bytes for stage in survey.stages if isinstance(stage, UsesThreads))
    return assume(row_bytes_of(survey), max(own, default=0))
