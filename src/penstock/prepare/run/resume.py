"""Resume: which tasks of an earlier run in the same output are kept, and what changed since. Next: run.py."""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.base.errors import IntegrityError, OutputError
from penstock.base.sizes import counted
from penstock.base.stores.shared import SharedStore
from penstock.base.stores.store import STATE, Store
from penstock.prepare.ledger import LedgerRow, files_are_there, forget, read_rows
from penstock.prepare.plan.plan import Plan, Planned
from penstock.prepare.rows.container import FORMAT
from penstock.prepare.stages.interfaces import DEFINITION
from penstock.shards.manifest import FORMAT_VERSION, MANIFEST, Manifest, read_manifest

JOB = f"{STATE}/job.json"
_CODE = re.compile(r"(?P<name>.+)-[0-9a-f]{32}(?P<rest>, Python .+)?")  # the identity of a function


def refuse_foreign(store: Store) -> None:
    """Refuse an output folder that holds foreign files."""
    if store.exists(STATE) or not store.exists(""):
        return
    names = [name for name in store.list() if not os.path.basename(name).startswith(".")]
    if names:
        raise OutputError(
            f"the output folder is not empty and was not made by penstock: it holds {names[0]}"
            + (f" and {counted(len(names) - 1, 'more file')}" if len(names) > 1 else ""),
            where=store.root,
            next_step="choose another `output:`, or empty the folder yourself",
        )


def finished(store: Store, plan: Plan, redo: bool) -> Manifest | None:
    """The finished dataset of this job, if there is one. A dataset of another job is refused."""
    if (redo and not is_redoing(store, plan)) or not store.exists(MANIFEST):
        return None
    try:
        manifest = read_manifest(store)
    except (IntegrityError, OutputError):
        if _read_job(store).get("job") != plan.job:
            raise
        return None  # this job's, damaged or of another version: the tasks in the ledger will make it anew
    if manifest.job == plan.job:
        whole = all(store.size(file.file) == file.bytes for file in manifest.files)
        return manifest if whole else None
    changes = changed(store, plan)
    kept = "; or `provenance: false` keeps it as it is" if any(map(_is_of_origins, changes)) else ""
    raise OutputError(
        "this output is finished, and was made from something else: " + "; ".join(changes),
        where=store.root,
        next_step=f"choose another `output:`, or replace it: `--redo`, in Python `redo=True`{kept}",
    )


def _is_of_origins(change: str) -> bool:
    """Whether the job keeps origins by now, as jobs of documents do by default, and did not before."""
    return change == "provenance: null -> true"


def keep_or_forget(store: Store, plan: Plan, redo: bool) -> tuple[dict[str, LedgerRow], list[str]]:
    """(rows of tasks that need not be done again, what changed since they were). The other rows are removed."""
    changes = changed(store, plan)
    rows = read_rows(store)
    doubted = {} if redo else {name: row for name, row in rows.items() if _is_doubted(row, plan)}
    trusted = {name: row for name, row in rows.items() if name not in doubted}
    kept = {} if redo else kept_rows(plan.passes, trusted, partial(files_are_there, store))
    forgotten = [name for name in rows if name not in kept]
    forget(store, forgotten)
    changes += sorted({f"engine: {row.engine} -> {plan.made_by}" for row in doubted.values()})
    return kept, changes or (_older_container(store) if forgotten and not redo else [])


def _is_doubted(row: LedgerRow, plan: Plan) -> bool:
    """Whether an engine has made it that is not proved to this run: another one, or one whose proof has failed."""
    return row.engine not in ("", DEFINITION) and row.engine != plan.made_by


def kept_rows(
    passes: Sequence[Planned], rows: Mapping[str, LedgerRow], is_there: Callable[[LedgerRow, bool], bool]
) -> dict[str, LedgerRow]:
    """Rows of the tasks that need not be done again. `is_there(row, spill_needed)` tells whether its files are."""
    kept: dict[str, LedgerRow] = {}
    spill_needed = False  # what a pass spilled is needed only while a task behind it is to be done
    for each in reversed(passes):
        needed = spill_needed or each.pass_.read_at_end
        for task in each.tasks:
            row = rows.get(task.name)
            if row and task.is_done_by(row.fingerprint) and not row.gave_up and is_there(row, needed):
                kept[task.name] = row
        spill_needed = spill_needed or any(task.name not in kept for task in each.tasks)
    return kept


def refuse_replaced(store: Store, plan: Plan, kept: Iterable[Sequence[LedgerRow]]) -> None:
    """Refuse files that differ from their ledger rows. Machines that do the same task write the same bytes, unless one
    of them has left out a file in which a function hung. Files between passes are compared when they are read."""
    if not isinstance(store, SharedStore) or plan.config.on_bad_input == "fail":
        return
    replaced = [row for rows in kept for row in rows if not files_are_there(store, row, spill_needed=False)]
    if replaced:
        raise IntegrityError(
            f"several machines did {counted(len(replaced), 'task')}, the first {replaced[0].task}, and left other "
            "files than the ledger names: one of them has left out bad input that another could read",
            where=store.where(replaced[0].files[0].file),
            next_step="run the same command: these tasks are done again",
        )


def remember_job(store: Store, plan: Plan, redoing: bool) -> None:
    job = {**_job(plan), "redoing": redoing}
    store.commit_bytes(JOB, json.dumps(job, ensure_ascii=False, indent=1).encode() + b"\n")


def is_redoing(store: Store, plan: Plan) -> bool:
    """Whether a redo of this job has begun and is not finished."""
    before = _read_job(store)
    return bool(before.get("redoing")) and before.get("job") == plan.job


def changed(store: Store, plan: Plan) -> list[str]:
    """Differences between the last job in this output and this one, in words."""
    before = _read_job(store)
    if not before or before.get("job") == plan.job:
        return []
    after = _job(plan)
    if before.get("format_version") != FORMAT_VERSION:
        return [f"format version {before.get('format_version')} -> {FORMAT_VERSION}"]
    return _config_changes(before["config"], after["config"]) + _input_changes(before["input"], after["input"])


def _older_container(store: Store) -> list[str]:
    then = (_read_job(store) or {"container": FORMAT}).get("container", 1)
    return [] if then == FORMAT else [f"format of the files between passes {then} -> {FORMAT}"]


def _job(plan: Plan) -> dict[str, Any]:
    job = {
        "format_version": FORMAT_VERSION,
        "container": FORMAT,
        "job": plan.job,
        "config": plan.semantic,
        "input": plan.survey.described,
    }
    return json.loads(json.dumps(job))  # type: ignore[no-any-return]


def _read_job(store: Store) -> dict[str, Any]:
    """Empty where nothing is known of an earlier run; fingerprints still decide what is kept."""
    try:
        return (json.loads(store.read(JOB)) if store.exists(JOB) else None) or {}
    except ValueError:
        return {}


def _config_changes(before: Any, after: Any, path: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [
            change
            for key in keys
            for change in _config_changes(before.get(key), after.get(key), f"{path}.{key}" if path else key)
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return [change for i, (a, b) in pairs for change in _config_changes(a, b, f"{path}[{i}]")]
    if before == after:
        return []
    then, now = (_CODE.fullmatch(each) if isinstance(each, str) else None for each in (before, after))
    if then and now and then["rest"] == now["rest"]:
        return [f"{path}: the code of {now['name']}, or what it uses, is not the same"]
    return [f"{path}: {_short(before)} -> {_short(after)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:117] + "..."


def _input_changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    old = {(source, path): identity for source, path, identity in before["files"]}
    new = {(source, path): identity for source, path, identity in after["files"]}
    words = [f"{path}: new" for source, path in new if (source, path) not in old]
    words += [f"{path}: gone" for source, path in old if (source, path) not in new]
    words += [f"{key[1]}: changed" for key in new if key in old and old[key] != new[key]]
    return words if len(words) <= 5 else [*words[:5], f"and {counted(len(words) - 5, 'more file')}"]
