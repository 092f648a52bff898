"""Finishing: the rows of the ledger -> a dataset. The manifest is last: its presence means that it is done."""

import itertools
import json
from collections.abc import Callable

from penstock.base.errors import PenstockError
from penstock.base.faults import crash_point
from penstock.base.stores.store import RUN, Store
from penstock.prepare.passes import Account, Left, inner_key
from penstock.prepare.plan.plan import Plan, input_facts
from penstock.prepare.rows.rows import rejected_line
from penstock.prepare.run.clearing import remove_leftovers, remove_scaffolding
from penstock.prepare.run.resume import is_redoing, refuse_replaced, remember_job
from penstock.prepare.stages.interfaces import Leaves
from penstock.shards.columns import FileFacts, commit_file
from penstock.shards.manifest import Manifest, Step, write_manifest
from penstock.shards.origins import TABLE


def finish(plan: Plan, store: Store, left: Left, run_facts: Callable[[], bytes]) -> Manifest:
    """Everything but the manifest, then what does not belong removed, then the manifest. `run_facts` tells of the run
    itself, now that there is little left to do."""
    kept = [left.rows[planned.pass_.number] for planned in plan.passes if planned.pass_.is_for_good]
    refuse_replaced(store, plan, kept)
    finished = [planned.pass_.finish(left, store) for planned in plan.passes]
    splits = next(dict(each.splits) for each in reversed(finished) if each.splits is not None)
    written = sum(shard.records for shards in splits.values() for shard in shards)
    account, inner = make_account(plan, left, written)
    manifest = Manifest(
        config=plan.semantic,
        input=input_facts(plan.survey),
        schema=plan.survey.output,
        splits=splits,
        account=account,
        artifacts=(
            *_write_artifacts(plan, store, left),
            *(file for each in finished for file in each.files),
            *(file for stage in plan.survey.stages if isinstance(stage, Leaves) for file in stage.leave(store)),
            *(file for each in finished for file in each.summaries),
            *_write_origins(plan, store),
        ),
        rejected=(*_write_bad_files(plan, store), *(row.rejected for rows in kept for row in rows if row.rejected)),
        job=plan.job,
        tokens=inner,
        feature_names=plan.survey.feature_names,
    )
    refuse_unbalanced(manifest.account, manifest.tokens)
    crash_point("run.before_clean_up")
    remove_leftovers(store, manifest)
    store.commit_bytes(RUN, run_facts())
    for each in finished:
        each.last()
    crash_point("run.before_manifest")
    write_manifest(store, manifest)
    crash_point("run.after_manifest")
    remove_scaffolding(store)
    if is_redoing(store, plan):
        remember_job(store, plan, redoing=False)
    return manifest


def _write_artifacts(plan: Plan, store: Store, left: Left) -> tuple[FileFacts, ...]:
    facts, used = [], set[str]()
    for number, (artifact, is_written) in sorted(left.learned.items(), key=lambda each: each[0]):
        if not is_written:
            continue
        name = plan.config.stage_names[number].replace(":", ".")
        name = name if name not in used else f"{name}-{number}"
        used.add(name)
        facts.append(commit_file(store, f"artifacts/{name}.json", json.dumps(artifact, indent=1).encode() + b"\n"))
    return tuple(facts)


def _write_origins(plan: Plan, store: Store) -> tuple[FileFacts, ...]:
    """The table that says what origins mean, if rows have any."""
    if plan.survey.origin_bits is None:
        return ()
    return (commit_file(store, TABLE, plan.survey.origins.encode()),)


def _write_bad_files(plan: Plan, store: Store) -> tuple[FileFacts, ...]:
    if not plan.survey.bad_files:
        return ()
    lines = [
        json.dumps(rejected_line(each.source, each.path, None, each.reason, detail=each.detail), ensure_ascii=False)
        for each in plan.survey.bad_files
    ]
    return (commit_file(store, "rejected/files.jsonl", "".join(f"{line}\n" for line in lines).encode()),)


def make_account(plan: Plan, left: Left, written: int) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """(files, rows read, each stage in its order, records written; values inside rows, where a stage counts them)."""
    account: Account = {}
    for planned in plan.passes:
        account = planned.pass_.count(account, left.rows[planned.pass_.number])
    steps = [account[key] for key in ("files", "rows", "read") if key in account]
    steps += [account[str(number)] for number in range(len(plan.survey.stages))]
    inner = [account[key] for number in range(len(plan.survey.stages)) if (key := inner_key(number)) in account]
    return (*steps, Step("write", "records", steps[-1].passed_on, written)), tuple(inner)


def refuse_unbalanced(account: tuple[Step, ...], inner: tuple[Step, ...] = ()) -> None:
    """Refuse an account that does not balance: in = out + set aside, and each step takes what the one before gave."""
    for step in (*account, *inner):
        if not step.balances:
            raise PenstockError(f"defect: the account of {step.step!r} does not balance: {step}")
    for before, after in (*itertools.pairwise(account[1:]), *itertools.pairwise(inner)):
        some = before.step == "rows" and before.passed_on < after.taken  # other sources gave the others
        if before.passed_on != after.taken and not some:
            raise PenstockError(f"defect: {after.step!r} took {after.taken:,} of {before.passed_on:,} {after.unit}")
