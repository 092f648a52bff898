"""Run: turn a Plan into a Manifest. It decides nothing: plan.py chose the tasks, resume.py knows which are done."""

import time
from dataclasses import replace

from penstock.base.events import Observer
from penstock.base.faults import crash_point
from penstock.base.processes.nursery import Nursery
from penstock.base.stores import open_store
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.clearing import is_to_be_replaced, remove_result, remove_scaffolding
from penstock.prepare.run.doing import Doing
from penstock.prepare.run.finishing import finish
from penstock.prepare.run.holding import hold_others, hold_output, shared_store
from penstock.prepare.run.progress import Progress
from penstock.prepare.run.resume import finished, is_redoing, keep_or_forget, refuse_foreign, remember_job
from penstock.shards.manifest import Manifest


def run(plan: Plan, nursery: Nursery, observe: Observer | None = None, redo: bool = False) -> Manifest:
    """Run the job, or the rest of it; with `redo`, all of it. Returns at once if the output is finished."""
    store = open_store(plan.config.output_path)
    refuse_foreign(store)
    with hold_output(plan, store) as lock:
        there = finished(store, plan, redo)
        if there:
            remove_scaffolding(store)  # which a kill just after the manifest would leave
            if observe:
                observe({"event": "already_done", "time": time.time()})
            return there
        redo = redo and not is_redoing(store, plan)  # a redo that was stopped resumes like any other run
        progress = Progress(plan, store, observe)
        with (
            hold_others(plan),
            progress.logging() as log,
            Doing.start(plan, store, log, lock, progress, nursery) as doing,
        ):
            if is_to_be_replaced(store):
                doing.wait_for_engines()
            remove_result(store)  # from here on, nothing is left of an earlier result that is to be replaced
            crash_point("run.after_forgetting_manifest")
            store.sweep()
            with shared_store(plan, store) as shared:
                return _run(replace(doing, store=shared), redo)


def _run(doing: Doing, redo: bool) -> Manifest:
    plan, store, progress, log = doing.plan, doing.store, doing.progress, doing.log
    rows, changes = keep_or_forget(store, plan, redo)
    progress.tasks_kept = len(rows)
    crash_point("run.after_forgetting_tasks")
    remember_job(store, plan, redoing=redo or is_redoing(store, plan))
    progress.costs.begin()
    log.say("start", **progress.start_facts(changes, rows))
    try:
        left = doing.passes(rows)
        doing.close()  # before run.json, so that the workers' CPU time is in it
        progress.costs.end()
        manifest = finish(plan, store, left, progress.run_facts)
    except KeyboardInterrupt:
        progress.costs.end()
        stopped = progress.stopped()
        log.say_failed(stopped, progress.seconds)
        raise stopped from None
    except Exception as error:
        log.say_failed(error, progress.seconds)
        raise
    finally:
        doing.close()
        store.sweep()
    log.say("done", seconds=progress.seconds)
    return manifest
