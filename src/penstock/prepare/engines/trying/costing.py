"""Costing: what the tasks of a job cost: assumed, as an earlier run of it has measured, or tried now. Next: plan/."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.base.fingerprint import fingerprint
from penstock.base.memory import own_memory
from penstock.prepare.budget.costs import Measured
from penstock.prepare.budget.kept_costs import here, recall_costs
from penstock.prepare.engines.inline import InlineTrial
from penstock.prepare.engines.proving import blaming_engines
from penstock.prepare.engines.trying.trial import Trial, in_folder
from penstock.prepare.passes import Pass
from penstock.prepare.passes.job import Job
from penstock.prepare.plan import measuring
from penstock.prepare.stages.interfaces import made_by


def costs_of(
    job: Job, passes: Sequence[Pass], trial: Trial | InlineTrial, small: bool, cores: int, allowed: int
) -> Measured:
    if small:
        return measuring.with_more(job, passes, cores, measuring.assumed(job.survey))
    name = _name(job, cores, allowed)
    known = recall_costs(job.config.output_path, name)
    return known or replace(
        measuring.with_more(job, passes, cores, _tried(job, passes, trial, cores, allowed)), name=name
    )


def _name(job: Job, cores: int, allowed: int) -> str:
    """Fingerprint of all that has a say in costs: on another machine or version, with other code of the user or another
    engine, they are measured again."""
    config = job.config
    declared = [source.function_memory for source in config.input]
    settings = [job.allowed, allowed, cores, config.workers, config.strategy, declared, made_by(job.stages)]
    return fingerprint([job.fingerprint, job.code, settings, here()])


def _tried(job: Job, passes: Sequence[Pass], trial: Trial | InlineTrial, cores: int, allowed: int) -> Measured:
    room = allowed - 2 * own_memory().counted
    with blaming_engines(job.survey), in_folder(measuring.trials_of(passes)) as trials:
        return trial.measure(trials, job.survey.slices, measuring.trial_settings(job, cores), room)
