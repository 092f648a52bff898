"""Planning: a Config -> its Plan: look at the input, try a little, see what the machine has. Next: costing.py."""

from dataclasses import replace

from penstock.base.machine import cpu_count
from penstock.base.memory import Budget, make_budget, own_memory
from penstock.base.processes.nursery import Nursery
from penstock.prepare.budget.means import Means
from penstock.prepare.engines.choosing import open_trial
from penstock.prepare.engines.trying.costing import costs_of
from penstock.prepare.job.config import Config
from penstock.prepare.passes.cutting import cut_passes
from penstock.prepare.plan import measuring
from penstock.prepare.plan.plan import Plan, make_plan
from penstock.prepare.run.exports import refuse_columns, refuse_places
from penstock.prepare.survey.taking import take_survey


def plan_of(config: Config, nursery: Nursery, refused: str = "", of_job: int = 0) -> Plan:
    """`refused`: what was wrong with the engine of a run that was begun. `of_job`: memory that was allowed where the
    job was planned first, if that was on another machine."""
    refuse_places(config)
    budget, cores = replace(make_budget(config.memory), of_job=of_job), cpu_count().amount
    with open_trial(config, _left_of(budget), nursery) as trial:
        survey = take_survey(config, trial.scout, budget)
        trial.may_hold(_left_of(budget))  # the driver has grown with what it knows of the input
        refuse_columns(config, survey.output)
        small = measuring.is_small(config, survey, budget)
        if not small:
            trial.get_ready()
        survey = measuring.with_engines(survey, at_once=not small, refused=refused)
        job, passes = cut_passes(config, survey, budget.for_rows)
        measured = costs_of(job, passes, trial, small, cores, budget.allowed)
    growth = measuring.driver_growth(passes, survey.files) + nursery.held_bytes()
    return make_plan(job, passes, Means.here(budget, cores, config.output_path, growth, measured))


def _left_of(budget: Budget) -> int:
    """Allowed bytes minus what the driver holds now."""
    return max(budget.allowed - own_memory().counted, 0)
