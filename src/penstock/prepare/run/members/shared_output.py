"""Shared output: a plan -> the folder in which workers of other machines find its job. Next: beginning.py."""

from penstock.base.errors import ConfigError
from penstock.base.stores import open_store
from penstock.base.stores.local import LocalStore
from penstock.base.user_code.carried import shown_name
from penstock.prepare.job.stage_list import carried_targets
from penstock.prepare.plan.plan import Plan


def shared_folder(plan: Plan) -> LocalStore:
    """The output, as a folder that machines share. Refuses a job that workers could not read from its plan file."""
    _refuse_unwritten(plan)
    store = open_store(plan.config.output_path)
    if not isinstance(store, LocalStore):
        raise ConfigError(f"engine: workers needs an `output:` in a folder that all machines share, not {store.root}")
    return store


def _refuse_unwritten(plan: Plan) -> None:
    """Refuse functions and items that exist only in this session: the plan file cannot hold them."""
    for target in carried_targets(plan.config.stages, plan.config.input):
        raise ConfigError(
            f"engine: workers: the function {shown_name(target)} exists only in this session",
            next_step="write it in a module beside the job file, and name it as module:function",
        )
    if any(source.items for source in plan.config.input):
        raise ConfigError(
            "engine: workers: `items` exist only in this session",
            next_step="write them into a file, one per line, and read that",
        )
