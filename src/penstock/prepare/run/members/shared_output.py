"""Shared output: a plan -> the folder in which workers of other machines find its job. Next: beginning.py."""

from yaml import YAMLError

from penstock.base.errors import ConfigError
from penstock.base.stores import open_store
from penstock.base.stores.local import LocalStore
from penstock.base.user_code.carried import shown_name
from penstock.prepare.job.job_file import read_yaml
from penstock.prepare.job.job_text import job_text
from penstock.prepare.job.stage_list import carried_targets
from penstock.prepare.plan.plan import Plan
from penstock.prepare.samples.items import Items, items_of


def shared_folder(plan: Plan) -> LocalStore:
    """The output, as a folder that machines share. Refuses a job that workers could not read from its plan file."""
    _refuse_unwritten(plan)
    store = open_store(plan.config.output_path)
    if not isinstance(store, LocalStore):
        raise ConfigError(f"engine: workers needs an `output:` in a folder that all machines share, not {store.root}")
    return store


def _refuse_unwritten(plan: Plan) -> None:
    """Refuse functions and items that the plan file cannot hold, because it is YAML like a job file."""
    for target in carried_targets(plan.config.stages, plan.config.input):
        raise ConfigError(
            f"engine: workers: other machines cannot import {shown_name(target)}, because it is defined in this script "
            "or notebook",
            next_step="move the function to a module in the job's folder and import it from there, "
            "or name it as module:function",
        )
    for number, source in enumerate(plan.config.input):
        if source.items and not _is_readable(source.items):
            raise ConfigError(
                "engine: workers: other machines cannot read these items from the plan file",
                where=f"input[{number}].items",
                next_step="give a number (1000 means 0 to 999), or a list of numbers, texts, lists and mappings",
            )


def _is_readable(items: Items) -> bool:
    """Whether the items are the same after they were written to a job file and read again."""
    try:
        read = read_yaml(job_text({"items": items.written}))["items"]
    except YAMLError:
        return False
    return items_of(read).digest == items.digest
