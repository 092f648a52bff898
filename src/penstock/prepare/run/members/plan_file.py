"""Plan file: `.penstock/plan.json`, from which workers of other machines plan the same job. It is JSON, with no code.

Each worker plans the job itself, from the config, and compares. Any difference stops it before any work.
"""

import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.base.errors import OutputError, PlanError
from penstock.base.fingerprint import digest, fingerprint
from penstock.base.sizes import format_size
from penstock.base.stores.shared import SharedStore, shared_root
from penstock.base.stores.store import PLAN, Store
from penstock.prepare.job.config import Config
from penstock.prepare.job.engine_config import WorkersOptions
from penstock.prepare.job.job_file import read_yaml
from penstock.prepare.plan.plan import Plan
from penstock.prepare.rows.container import FORMAT
from penstock.shards.manifest import FORMAT_VERSION

_ROOM_SHARE = 0.9  # of a row's room where the job was planned: what is measured differs a little each time


@dataclass(frozen=True)
class PlanFile:
    """`job_file` is the job as YAML, `folder` where its relative paths start."""

    versions: dict[str, Any]
    job_file: str
    folder: str
    job: str  # fingerprint of everything that decides the output's bytes
    tasks: str  # of the names and fingerprints of all tasks
    made_by: str  # engines of stages
    memory: int  # allowed where the job was planned: limits of single rows follow from it
    rooms: tuple[int, ...]  # by pass: bytes that one row may take
    lease: float  # seconds
    token: str  # of this run
    started: float  # by the storage's clock
    kept: int  # tasks that an earlier run had done

    def store(self, output: str, member: str) -> SharedStore:
        return SharedStore(shared_root(output, self.token, member))

    def config(self, output: str, **others: Any) -> Config:
        """The job, as this machine does it: with its own `output:`, memory and workers."""
        job = {**read_yaml(self.job_file), "output": output, **others}
        job.pop("engine", None)
        return Config(job, folder=self.folder)

    def is_of(self, plan: Plan) -> bool:
        """Whether this run is of the same job, planned alike."""
        return (self.job, self.tasks, self.made_by) == (plan.job, tasks_of(plan), plan.made_by) and (
            self.versions == versions()
        )


def versions() -> dict[str, Any]:
    """Versions that must be the same on all machines of a job."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {
        "penstock": sys.modules["penstock"].__version__,
        "Python": python,
        "format": FORMAT_VERSION,
        "container": FORMAT,
    }


def tasks_of(plan: Plan) -> str:
    return fingerprint([[task.name, task.fingerprint] for each in plan.passes for task in each.tasks])


def make_plan_file(plan: Plan, token: str) -> PlanFile:
    options = plan.config.engine.options
    assert isinstance(options, WorkersOptions)
    return PlanFile(
        versions(),
        plan.config.to_yaml(),
        plan.config.folder,
        plan.job,
        tasks_of(plan),
        plan.made_by,
        plan.means.budget.for_rows,
        tuple(each.settings.room.alone for each in plan.passes),
        options.lease,
        token,
        started=0.0,
        kept=0,
    )


def write_plan_file(store: Store, file: PlanFile) -> None:
    facts = asdict(file)
    store.commit_bytes(PLAN, json.dumps({**facts, "digest": _digest_of(facts)}, indent=1).encode() + b"\n")


def read_plan_file(store: Store) -> PlanFile | None:
    """None where there is none, or one that was damaged or is of another version."""
    if not store.exists(PLAN):
        return None
    try:
        facts = json.loads(store.read(PLAN))
        signed = facts.pop("digest")
        file = PlanFile(**{**facts, "rooms": tuple(facts["rooms"])})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return file if signed == _digest_of(facts) else None


def _digest_of(facts: dict[str, Any]) -> str:
    """In ASCII: paths may be no UTF-8."""
    return digest(json.dumps(facts, sort_keys=True).encode())


def refuse_other_versions(file: PlanFile, where: str) -> None:
    ours = versions()
    wrong = [
        f"{name} {ours[name]} here, {file.versions.get(name)} there"
        for name in ours
        if ours[name] != file.versions.get(name)
    ]
    if wrong:
        raise OutputError(
            "this worker has other versions than the run: " + "; ".join(wrong),
            where=where,
            next_step="install the versions of the run here, or start the run with those that all machines have",
        )


def refuse_other_plan(file: PlanFile, plan: Plan, changes: Sequence[str]) -> None:
    """Refuse to work if this machine sees another job. `changes` are the differences."""
    if (file.job, file.tasks) != (plan.job, tasks_of(plan)):
        what = "; ".join(changes) or "libraries on this machine give another result for the same input and job"
        raise OutputError(
            f"this machine sees another job than the run: {what}",
            where=plan.config.output_path,
            next_step="every machine needs the same files, at the same paths, and the same code; "
            "if the job was changed, start it again with `penstock run`",
        )
    if file.made_by != plan.made_by:
        raise OutputError(
            f"engines of stages differ: {plan.made_by or 'none'} here, {file.made_by or 'none'} in the run",
            where=plan.config.output_path,
            next_step="install the same libraries on every machine",
        )


def refuse_less_room(file: PlanFile, plan: Plan) -> None:
    for room, each in zip(file.rooms, plan.passes, strict=True):
        if each.settings.room.alone < _ROOM_SHARE * room:
            raise PlanError(
                f"a single row may take {format_size(room)} in this run; this machine has "
                f"{format_size(each.settings.room.alone)} for one, with {plan.means.budget}",
                where=f"pass {each.pass_.number} ({each.pass_.kind})",
                next_step="give this worker more --memory, or start the run with the `memory:` of the smallest machine",
            )
