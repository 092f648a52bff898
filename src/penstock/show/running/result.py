"""Result: a run that has ended -> where every record went, what it cost, and how to open what it made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.sizes import counted, format_count, format_seconds, format_size
from penstock.base.stores import open_store
from penstock.shards.manifest import Manifest
from penstock.shards.packed import TAIL, TOKENS
from penstock.shards.schema import Field
from penstock.show import tables
from penstock.show.contents.dataset_facts import dataset_facts
from penstock.show.running.pass_table import memory_words, pass_tables

if TYPE_CHECKING:
    from penstock.prepare.plan.plan import Plan


def result_facts(plan: Plan, manifest: Manifest, already_done: bool) -> dict[str, Any]:
    from penstock.prepare.stages.splitting.by_time import SplitByTime  # here: `inspect` and `report` plan nothing

    facts = dataset_facts(open_store(plan.config.output_path), manifest)
    survey = {"not_read": [asdict(each) for each in plan.survey.unread], "not_seen": list(plan.survey.not_seen)}
    by_time = any(isinstance(stage, SplitByTime) for stage in plan.survey.stages)
    job = {"export": plan.config.export_path or None, "split_by_time": by_time}
    return {"already_done": already_done, **job, **survey, **facts}


def result_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    if facts["already_done"]:
        yield Text("This job is done already; nothing had to be written.\n")
    yield tables.split_table(facts["splits"])
    yield ""
    yield from account_tables(facts)
    yield ""
    for table in pass_tables(facts["run"]):
        yield from (table, "")
    yield tables.make_list([*found_lines(facts), *_lines(facts)])


def account_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    """The account of every record and token; for batch files, also that of their samples."""
    if facts["batches"]:
        yield Text("when the batch files were made:")
        yield tables.account_table(facts["batches"]["account"])
        yield ""
    yield tables.account_table(facts["account"], facts["tokens"])
    yield tables.balance_line([*facts["account"], *facts["tokens"]])


def found_lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The proof that a split by group leaks nothing, and where near-duplicates are shown."""
    if proof := facts["groups"]:
        counts = ", ".join(f"{count:,} in {split}" for split, count in proof["groups"].items())
        yield "groups", f"by {', '.join(proof['by'])}: {counts}; in two splits: {proof['groups_in_two_splits']:,}"
    if near := facts["near_duplicates"]:
        act = "removed" if near["act"] == "remove" else "marked"
        found = f"{counted(near['removed'], 'near-duplicate')} of {counted(near['documents'], 'document')} {act}"
        yield "alike", f"{found}; penstock inspect {facts['output']} --duplicates shows them"
        for each in near["sources"]:
            if (share := each["removed"] / max(1, each["documents"])) > near["warn_above"]:
                yield "WARNING", f"source {each['source']}: {share:.0%} of its documents are near-duplicates"


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "dataset", facts["dataset"]
    yield "output", facts["output"]
    if facts.get("export"):
        yield "export", facts["export"]
    if facts.get("not_read"):
        yield "not read", tables.unread_words(facts["not_read"])
    if facts.get("not_seen"):
        yield "not seen", tables.not_seen_words(facts["not_seen"])
    yield from (("empty", why) for why in _why_empty(facts))
    if aside := facts["first_rejected"]:
        detail = f": {aside['detail']}" if aside.get("detail") else ""
        line = f", line {aside['line']:,}" if aside.get("line") else ""
        yield "set aside", f"first {aside['file']}{line}, {aside['reason']}{detail[:200]}; every one is in rejected/"
    yield "written", _written(facts)
    run = facts["run"]
    if run:
        yield "time", _time(facts, run)
        yield "memory", memory_words(run)
    yield "next", _next(facts)


def _why_empty(facts: dict[str, Any]) -> Iterator[str]:
    """A reason per empty split; for a dataset without any record, one that accounts for all that was read."""
    empty = [split for split, each in facts["splits"].items() if not each["records"]]
    if not empty or len(empty) < len(facts["splits"]):
        hint = "more groups or rows, or a larger share, would fill it"
        if facts.get("split_by_time"):
            hint = "no row has such a time; look at the time in `split`, and at the type of the column"
        for split in empty:
            yield f"{split}: no record came into it; {hint}"
        return
    found = [*_all_set_aside(facts["account"]), *_all_in_the_tail(facts)]
    yield f"no record: {'; '.join(found) or 'nothing was read'}"


def _all_set_aside(account: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A sentence per unit (files, documents, rows) that was set aside, with the reasons."""
    for unit in dict.fromkeys(step["unit"] for step in account):
        steps = [step for step in account if step["unit"] == unit]
        reasons = [(count, reason) for step in steps for reason, count in step["set_aside"].items()]
        aside, taken = sum(count for count, _ in reasons), steps[0]["taken"]
        listed = ", ".join(f"{count:,} ({reason})" for count, reason in reasons)
        if aside:
            share = f"all {taken:,}" if aside == taken else f"{aside:,} of {taken:,}"
            yield f"{share} {unit} were set aside: {listed}"


def _all_in_the_tail(facts: dict[str, Any]) -> Iterator[str]:
    tail = facts["tokens"][-1]["set_aside"].get(TAIL, 0) if facts["tokens"] else 0
    if tail:
        length = next(Field(**each).parsed.width for each in facts["schema"] if each["name"] == TOKENS)
        fewer = "fewer than" if len(facts["splits"]) == 1 else "in each split fewer than"
        yield f"{counted(tail, 'token')} are the tail, {fewer} one row of {length:,}"


def _next(facts: dict[str, Any]) -> str:
    if facts["format"] == "npz":
        return f"penstock merge {facts['output']} --config JOB; numpy.load opens a single batch file"
    return f"penstock inspect {facts['output']}, or penstock.open({facts['output']!r}) in Python"


def _written(facts: dict[str, Any]) -> str:
    rejected = sum(file["bytes"] for file in facts["rejected"])
    aside = f", including {format_size(rejected)} in rejected/" if rejected else ""
    return f"{format_size(facts['bytes'])} in {counted(facts['files'], 'file')}{aside}"


def _time(facts: dict[str, Any], run: dict[str, Any]) -> str:
    words = [format_seconds(run["seconds"]), f"{format_seconds(run['cpu_seconds'])} of CPU"]
    words.append(tables.by_workers(run["workers"]))
    kept = run["tasks_kept"]
    if facts["already_done"]:
        words.append("when it was made")
    elif kept:
        words.append(f"{kept} of {counted(kept + run['tasks_done'], 'task')} kept from an earlier run")
    else:
        # How much was read, and how many tokens were made of it.
        first = [*(step for step in facts["account"] if step["step"] == "read"), *facts["tokens"][:1]]
        seconds = max(run["seconds"], 0.001)
        words += [f"{format_count(step['taken'] / seconds)} {step['unit']}/s" for step in first]
    return ", ".join(words)
