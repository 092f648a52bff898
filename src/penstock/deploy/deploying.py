"""Deploying: a job file and command-line options -> the script or app on disk, and facts about it."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from penstock.base.errors import ConfigError, TaskError
from penstock.deploy.modal import ModalOptions, container_facts, make_container
from penstock.deploy.modal_app import app_text
from penstock.deploy.needs import known_needs
from penstock.deploy.slurm import SlurmOptions, array_facts, make_array
from penstock.deploy.slurm_script import script_text
from penstock.deploy.writing import job_stem, write_new
from penstock.prepare.job.config import Config
from penstock.prepare.plan.plan import Plan

Facts = dict[str, Any]
_TOKENS = ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")


def write_slurm(
    job: str, config: Config, options: SlurmOptions, output: str | None, make_plan: Callable[[], Plan]
) -> Facts:
    """Write the script. The nodes must see the job and its output at the same paths as this machine."""
    script = output or f"{job_stem(job)}.sbatch"
    needs = known_needs(make_plan, options.missing)
    array = make_array(os.path.abspath(job), config, sys.executable, options, needs)
    write_new(script, script_text(array))
    return array_facts(array, script, needs)


def write_modal(
    job: str, config: Config, options: ModalOptions, output: str | None, make_plan: Callable[[], Plan]
) -> Facts:
    """Write the app."""
    app = output or f"{job_stem(job)}_modal.py"
    _refuse_hiding(app)
    needs = known_needs(make_plan, options.missing)
    container = make_container(job, config, options, needs)
    facts = container_facts(container, app, config, needs)
    write_new(app, app_text(container, app, facts["output"]))
    return facts


def refuse_without_modal(environment: Mapping[str, str]) -> None:
    """Refuse to run an app if Modal's client is not installed, or has no credentials."""
    if not find_spec("modal"):
        raise ConfigError("--run needs the client of Modal", where="--run", next_step="pip install 'penstock[modal]'")
    file = os.path.expanduser(environment.get("MODAL_CONFIG_PATH", "~/.modal.toml"))
    if not all(environment.get(name) for name in _TOKENS) and not os.path.isfile(file):
        raise ConfigError(
            f"--run needs credentials of Modal: {' and '.join(_TOKENS)} are not set, and {file} does not exist",
            where="--run",
            next_step="`modal token new` writes them; without --run, only the app is written",
        )


def run_app(app: str) -> None:
    """Upload the job and its files, and run it, with Modal's client. The user sees its output."""
    done = subprocess.run([sys.executable, "-m", "modal", "run", app, "--upload"], check=False)
    if done.returncode:
        raise TaskError(
            f"`modal run` ended with exit code {done.returncode}",
            where=app,
            next_step=f"`modal run {app}` resumes with what is in the Volume",
        )


def _refuse_hiding(app: str) -> None:
    """Refuse a name of an app that hides a library, or is not that of a Python file."""
    if os.path.basename(app) in ("modal.py", "penstock.py"):
        raise ConfigError(
            f"-o {app}: Python would import this file in place of the library of that name",
            where="-o",
            next_step="choose another name, such as app.py",
        )
    if not app.endswith(".py"):
        raise ConfigError(f"-o {app}: an app is a file of Python", where="-o", next_step=f"-o {app}.py")
