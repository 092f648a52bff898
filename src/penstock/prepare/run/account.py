"""Account: what became of every row, step by step, from the rows of the ledger. It must balance."""

import itertools

from penstock.base.errors import PenstockError
from penstock.prepare.passes import Account, Left, inner_key
from penstock.prepare.plan.plan import Plan
from penstock.shards.manifest import Step


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
    """Each step must give on or set aside what it took, and the next must take what it gave."""
    for step in (*account, *inner):
        if not step.balances:
            raise PenstockError(f"defect: the account of {step.step!r} does not balance: {step}")
    for before, after in (*itertools.pairwise(account[1:]), *itertools.pairwise(inner)):
        some = before.step == "rows" and before.passed_on < after.taken  # other sources gave the others
        if before.passed_on != after.taken and not some:
            raise PenstockError(f"defect: {after.step!r} took {after.taken:,} of {before.passed_on:,} {after.unit}")
