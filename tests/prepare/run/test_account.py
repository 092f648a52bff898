"""Account: passes add what they did to rows, in order; what does not add up is a defect and never written."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.base.errors import PenstockError
from penstock.prepare.passes import Left
from penstock.prepare.run.finishing import make_account, refuse_unbalanced
from penstock.shards.manifest import Step

READ = Step("read", "rows", 10, 9, {"bad record": 1})
FILTER = Step("filter", "rows", 9, 6, {"filtered": 3})
WRITE = Step("write", "records", 6, 6)
FILES = Step("files", "files", 2, 2)


class Counting:
    def __init__(self, number: int, **steps: Step) -> None:
        self.number, self._steps = number, {key.removeprefix("stage"): step for key, step in steps.items()}

    def count(self, account: dict[str, Step], rows: Any) -> dict[str, Step]:  # noqa: ARG002
        return {**account, **self._steps}


def account_of(*passes: Counting, stages: int) -> Any:
    plan: Any = SimpleNamespace(
        passes=[SimpleNamespace(pass_=each) for each in passes], survey=SimpleNamespace(stages=[None] * stages)
    )
    return make_account(plan, Left({each.number: [] for each in passes}), written=6)


def test_steps_stand_in_the_order_of_the_job_whatever_pass_counted_them():
    first, second = Counting(0, stage0=FILTER, read=READ), Counting(1, files=FILES)
    assert account_of(first, second, stages=1) == ((FILES, READ, FILTER, WRITE), ())


def test_a_later_pass_may_close_a_step_that_an_earlier_one_began():
    made = replace(FILTER, made={"records": 6})
    steps, _ = account_of(Counting(0, files=FILES, read=READ, stage0=FILTER), Counting(1, stage0=made), stages=1)
    assert steps[2] == made


def test_tokens_have_an_account_of_their_own():
    tokens = Step("tokenize", "tokens", 0, 0)
    counting = Counting(0, files=FILES, read=READ, stage0=FILTER, **{"stage0.tokens": tokens})
    assert account_of(counting, stages=1)[1] == (tokens,)


@pytest.mark.parametrize(
    ("account", "words"),
    [
        ((FILES, replace(READ, given=10), FILTER, WRITE), "the account of 'read' does not balance"),
        ((FILES, READ, replace(FILTER, taken=8, given=5), WRITE), "'filter' took 8 of 9 rows"),
        ((FILES, READ, FILTER, replace(WRITE, taken=5, given=5)), "'write' took 5 of 6 records"),
    ],
)
def test_what_does_not_add_up_is_a_defect(account, words):
    refuse_unbalanced((FILES, READ, FILTER, WRITE))
    with pytest.raises(PenstockError, match=f"defect: {words}"):
        refuse_unbalanced(account)
