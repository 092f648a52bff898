"""Account: what became of every row, step by step, from the rows of the ledger. It must balance."""

from __future__ import annotations

import itertools
from dataclasses import replace

from penstock.base.errors import PenstockError
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import packer_of
from penstock.prepare.plan import Plan
from penstock.prepare.stages.pack import Pack
from penstock.prepare.stages.tokenize import Tokenize
from penstock.prepare.task import token_steps
from penstock.shards.manifest import Step
from penstock.shards.packed import TOKENS


def make_account(plan: Plan, rows: dict[str, LedgerRow]) -> tuple[Step, ...]:
    """Files, rows read, each stage in its order, records written."""
    units = _units(plan)
    steps = [*_given_to_functions(plan, rows), _sum("read", units[0], _steps("read", plan, rows))]
    for number, name in enumerate(plan.config.stage_names):
        step = _sum(name, units[number], _steps(str(number), plan, rows))
        if plan.survey.stages[number].exchange():  # its records are counted on the other side of the exchange
            step = Step(
                name, step.unit, step.taken, step.given, step.set_aside, {units[number + 1]: _made(number, plan, rows)}
            )
        steps.append(step)
    last = [rows[task.name] for task in plan.passes[-1].tasks]
    written = sum(shard.records for row in last for shard in row.shards.values())
    if packer_of(plan.survey.stages):
        steps[-1] = replace(steps[-1], made={units[-1]: written})
    return (_files(plan, rows), *steps, Step("write", "records", steps[-1].passed_on, written))


def make_token_account(plan: Plan, rows: dict[str, LedgerRow]) -> tuple[Step, ...]:
    """The same of tokens, from the stage that makes them on; none where no stage does."""
    read = next(each for each in plan.passes if each.cut.reads == "slices" and each.cut.is_for_good)
    ledger = [rows[task.name].steps for task in read.tasks]
    steps: list[Step] = []
    for number, (name, stage) in enumerate(zip(plan.config.stage_names, plan.survey.stages, strict=True)):
        if steps or isinstance(stage, Tokenize | Pack):  # a column that is only called so is nobody's tokens
            found = [each[token_steps(number)] for each in ledger if token_steps(number) in each]
            step, passed_on = _sum(name, TOKENS, found), sum(each.passed_on for each in found)
            steps.append(replace(step, made={TOKENS: passed_on} if passed_on != step.given else {}))
    if steps and packer_of(plan.survey.stages):
        packed = _sum("", TOKENS, [rows[task.name].steps[TOKENS] for task in plan.passes[-1].tasks])
        if packed.taken != steps[-1].given:
            raise PenstockError(f"defect: {steps[-1].given:,} tokens were counted and {packed.taken:,} packed")
        steps[-1] = replace(steps[-1], given=packed.given, set_aside={**steps[-1].set_aside, **packed.set_aside})
    return tuple(steps)


def _files(plan: Plan, rows: dict[str, LedgerRow]) -> Step:
    read = next(each for each in plan.passes if each.cut.reads == "slices" and each.cut.is_for_good)
    lost = [title for task in read.tasks for _, title in rows[task.name].lost_files]
    reasons = [each.reason for each in plan.survey.bad_files] + lost
    aside = {reason: reasons.count(reason) for reason in sorted(set(reasons))}
    return Step("files", "files", plan.survey.files, plan.survey.files - len(reasons), aside)


def _given_to_functions(plan: Plan, rows: dict[str, LedgerRow]) -> list[Step]:
    """Rows of tables that a user's function made samples of."""
    read = next(each for each in plan.passes if each.cut.reads == "slices" and each.cut.is_for_good)
    steps = [rows[task.name].steps for task in read.tasks]
    given = _sum("rows", "rows", [each["rows"] for each in steps if "rows" in each])
    made = {"samples": sum(each["rows"].made["samples"] for each in steps if "rows" in each)}
    return [replace(given, made=made)] if given.taken else []


def _units(plan: Plan) -> list[str]:
    """What rows are called before each stage, and after the last."""
    stages = plan.survey.stages
    units = [plan.survey.unit]
    for stage in stages:
        units.append(stage.unit_out or units[-1])
    return units


def _steps(name: str, plan: Plan, rows: dict[str, LedgerRow]) -> list[Step]:
    """A stage's counts in the tasks that ran it for good; a reducer's, in those before the exchange."""
    passes = [each for each in plan.passes if each.cut.is_for_good and _runs(name, each.cut.first, each.cut.last)]
    return [rows[task.name].steps[name] for task in passes[0].tasks]


def _runs(name: str, first: int, last: int) -> bool:
    return first == 0 if name == "read" else first <= int(name) < last


def _made(number: int, plan: Plan, rows: dict[str, LedgerRow]) -> int:
    """Records that came out of the exchange; every row that went in must have come to it."""
    behind = next(each for each in plan.passes if each.cut.is_for_good and each.cut.reducer == number)
    steps = [rows[task.name].steps[str(number)] for task in behind.tasks]
    spilled = sum(step.given for step in _steps(str(number), plan, rows))
    if (gathered := sum(step.taken for step in steps)) != spilled:
        raise PenstockError(f"defect: {spilled:,} rows were scattered and {gathered:,} gathered")
    return sum(step.made["made"] for step in steps)


def _sum(name: str, unit: str, steps: list[Step]) -> Step:
    aside: dict[str, int] = {}
    for reason, count in sorted(pair for step in steps for pair in step.set_aside.items()):
        aside[reason] = aside.get(reason, 0) + count
    return Step(name, unit, sum(step.taken for step in steps), sum(step.given for step in steps), aside)


def refuse_unbalanced(account: tuple[Step, ...], tokens: tuple[Step, ...] = ()) -> None:
    """Each step must give on or set aside what it took, and the next must take what it gave."""
    for step in (*account, *tokens):
        if not step.balances:
            raise PenstockError(f"defect: the account of {step.step!r} does not balance: {step}")
    for before, after in (*itertools.pairwise(account[1:]), *itertools.pairwise(tokens)):
        some = before.step == "rows" and before.passed_on < after.taken  # other sources gave the others
        if before.passed_on != after.taken and not some:
            raise PenstockError(f"defect: {after.step!r} took {after.taken:,} of {before.passed_on:,} {after.unit}")
