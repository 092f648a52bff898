"""Choosing: the engine that does the tasks of a job, and the trial that tries some.

An engine is imported when it is chosen: a small job does its tasks in the driver, and needs no engine of workers. The
kinds of engine that a job may name are in job/engine_config.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.base.processes.nursery import Nursery
from penstock.base.user_code import load_object
from penstock.base.user_code.carried import refuse_own_order
from penstock.prepare.engines import Engine, Opening
from penstock.prepare.job.config import Config
from penstock.prepare.job.stage_list import carried_targets
from penstock.prepare.plan.settings import strategy_of

if TYPE_CHECKING:
    from penstock.prepare.engines.inline import InlineTrial
    from penstock.prepare.engines.trying.trial import Trial


def make_engine(opening: Opening) -> Engine:
    plan = opening.plan
    if plan.workers == 0:
        from penstock.prepare.engines.inline import InlineEngine

        return InlineEngine(opening.store, opening.log)
    opens: Callable[[Opening], Engine] = load_object(plan.config.engine.kind.opens)
    return opens(opening)


def open_trial(config: Config, limit: int, nursery: Nursery) -> Trial | InlineTrial:
    """`limit` is what it may hold, in bytes. Functions that need the hash seed of a worker are refused without one."""
    if strategy_of(config).is_inside:
        for target in carried_targets(config.stages, config.input):
            refuse_own_order(target)
        from penstock.prepare.engines.inline import InlineTrial

        return InlineTrial()
    from penstock.prepare.engines.trying.trial import Trial

    return Trial(nursery, config.task_timeout, limit, passes_over_hangs=config.on_bad_input == "set_aside")
