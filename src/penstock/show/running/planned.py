"""Planned: a Plan -> what the job would read, hold, write and need, before a byte of it is written."""

from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from penstock.base.errors import IntegrityError, OutputError
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.engines.hired import nursery
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.halves import halves_of, written
from penstock.prepare.run.resume import finished, refuse_foreign
from penstock.prepare.stages.interfaces import notes_of
from penstock.prepare.survey.scouting import MOST_FILES
from penstock.shards.schema import short_type, type_from_arrow
from penstock.show.asking.asked import Asked, plan_job
from penstock.show.running.planned_passes import pass_facts


def asked_facts(asked: Asked) -> dict[str, Any]:
    """Facts about the job, or its first half if batch files are kept: the input of the second is not there yet."""
    first, *merge = halves_of(asked.config)
    with nursery() as workers:
        planned = plan_job(replace(asked, config=first), workers)
    job = {**asked.job, "stages": written(planned.config)["stages"]} if asked.preset else dict(asked.job)
    return {**plan_facts(planned), "job_file": job, "merged_into": merge[0].output_path if merge else None}


def plan_facts(plan: Plan) -> dict[str, Any]:
    survey, means = plan.survey, plan.means
    store = open_store(plan.config.output_path)
    passes = pass_facts(store, plan)
    return {
        "job": plan.job,
        "output": plan.config.output_path,
        "input": {
            "files": survey.files,
            "bytes": survey.file_bytes,
            "items": survey.items,
            "rows": plan.passes[0].projected.rows,
            "rows_are_estimated": survey.rows_are_estimated,
            "unit": survey.unit,
            "slices": len(survey.slices),
            "bad_files": [asdict(each) for each in survey.bad_files],
            "not_read": [asdict(each) for each in survey.unread],
            "not_seen": list(survey.not_seen),
        },
        "functions": [_function_facts(plan, number) for number, each in enumerate(survey.sources) if each.function],
        # *allowed* is the budget, *reserved* what is held before a row is read, *projected* the peak.
        "memory": {
            "allowed_bytes": means.budget.allowed,
            "allowed_by": means.budget.source,
            "reserved_bytes": means.driver_bytes + plan.workers * means.measured.slices.worker_bytes,
            "projected_bytes": plan.projected_memory,
        },
        "notes": notes_of(survey.stages),
        "settings": {
            "strategy": plan.config.strategy,
            "workers": plan.workers,
            "threads": max(each.settings.threads for each in plan.passes),
            "cores": means.cores,
        },
        "disk": {
            "most_bytes": plan.output_bytes + sum(each.projected.spill_bytes for each in plan.passes),
            "kept_bytes": plan.output_bytes,
            "free_bytes": means.free_disk,
        },
        "scratch": {**means.scratch._asdict(), "most_bytes": plan.scratch_bytes} if means.scratch else None,
        "passes": passes,
        "schema": {
            "in": [_column_facts(each) for each in survey.schema],
            "read": list(survey.columns),
            "out": [asdict(each) for each in survey.output],
        },
        "splits": list(plan.splits),
        "run": _run_facts(store, plan, passes),
    }


def _function_facts(plan: Plan, number: int) -> dict[str, Any]:
    """The user's function of a source: its arguments, the origin of its samples' columns, its memory."""
    options, said = plan.survey.sources[number], plan.config.input[number].function_memory
    return {
        "input": number,
        "function": options.function_name,
        "rows_at_once": options.batch_rows if options.takes_rows else None,
        "function_memory": said,
        "measured_bytes": plan.means.measured.slices.fixed_bytes,
        "worker_limit_bytes": plan.passes[0].settings.worker_limit,
        "items": len(options.items) if options.items else None,
        "files_asked": min(len(options.items) if options.items else _files_of(plan, number), MOST_FILES),
        "columns": [
            {"name": each.name, "type": each.type, "origin": each.origin, "optional": each.is_optional}
            for each in options.samples
        ],
    }


def _files_of(plan: Plan, number: int) -> int:
    used = {each.path for piece in plan.survey.slices for each in piece.segments if each.source == number}
    return len(used | {each.path for each in plan.survey.bad_files if each.source == number})


def _column_facts(field: pa.Field) -> dict[str, str]:
    """A column of the input, which may be of a type that penstock has no word for."""
    word = type_from_arrow(field.type)
    return {"name": field.name, "type": word or str(field.type), "short": short_type(word) if word else str(field.type)}


def _run_facts(store: Store, plan: Plan, passes: list[dict[str, Any]]) -> dict[str, Any]:
    """The next step of `penstock run` with the output as it is now: start, resume, nothing, or refuse and why."""
    try:
        refuse_foreign(store)
        done = finished(store, plan, redo=False) is not None
    except (OutputError, IntegrityError) as error:
        return {"would": "refuse", "refusal": error.as_dict()}
    kept = any(each["tasks_done"] for each in passes)
    return {"would": "nothing" if done else "resume" if kept else "start", "refusal": None}
