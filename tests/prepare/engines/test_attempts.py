"""Attempts: every rule for tasks whose workers die, hang, grow or finish, without a process or a clock."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.prepare.engines.attempts import SILENT_SECONDS, START_SECONDS, TASKS_PER_WORKER, Attempts, Policy
from penstock.prepare.engines.events import (
    ATTEMPTS,
    LEAKS,
    NEEDS_MORE,
    Alone,
    Command,
    Complete,
    Died,
    Entered,
    Event,
    Failed,
    Finished,
    Give,
    GiveUp,
    Holds,
    Lost,
    Moved,
    Overfull,
    Queued,
    Raise,
    Ready,
    Say,
    Stalled,
    Start,
    Stop,
    Tick,
)
from penstock.prepare.rows.rows import DIED, GIVEN_UP, HUNG, TOO_LARGE

BATCH = 1 << 20
POLICY = Policy(
    workers=2,
    batch_bytes=BATCH,
    hold_bytes=500,
    allowed_bytes=1000,
    worker_limit=400,
    limit_by="function_memory: 400",
    stall_notice=10.0,
    task_timeout=60.0,
)


ROW = "a row of the ledger"
LOSING = replace(POLICY, may_lose=GIVEN_UP)


@dataclass(frozen=True)
class Piece:
    name: str

    @property
    def input(self) -> str:
        return f"slice of {self.name}"


class Pass:
    """Attempts of tasks a, b, c, ... of which the workers have started; time stands still unless a test says when."""

    def __init__(self, policy: Policy = POLICY, tasks: str = "a") -> None:
        self.attempts = Attempts()
        self.begun = self.attempts.begin([Piece(name) for name in tasks], policy)
        self.commands = self.attempts.take(Tick(), 0.0)
        for give in self.gives:
            self.attempts.take(Ready(give.worker, 100), 0.0)

    def take(self, *events: Event, now: float = 0.0) -> list[Command]:
        """Commands of the last event."""
        for event in events:
            self.commands = self.attempts.take(event, now)
        return self.commands

    def again(self, now: float = 0.0) -> Give:
        """The one task that the next tick gives away, to a worker that has started."""
        self.take(Tick(), now=now)
        (give,) = self.gives
        self.attempts.take(Ready(give.worker, 100), now)
        return give

    @property
    def gives(self) -> list[Give]:
        return [command for command in self.commands if isinstance(command, Give)]

    @property
    def said(self) -> list[str]:
        return [command.name for command in self.commands if isinstance(command, Say)]

    @property
    def given_up(self) -> list[str]:
        return [command.why for command in self.commands if isinstance(command, GiveUp)]


def _named(commands: list[Command]) -> list[Any]:
    """Commands in short: their class, and whom or what they are about."""
    return [
        (type(each).__name__, each.task.name if isinstance(each, Complete) else getattr(each, "worker", None))
        for each in commands
    ]


# Handing out.


def test_tasks_go_in_their_order_to_as_many_workers_as_there_may_be():
    at_work = Pass(tasks="abc")
    assert _named(at_work.commands) == [("Start", 0), ("Give", 0), ("Start", 1), ("Give", 1)]
    assert [give.task.name for give in at_work.gives] == ["a", "b"]
    assert at_work.take(Tick()) == []


def test_the_first_try_has_the_whole_batch_may_hold_output_and_has_lost_nothing():
    (give,) = Pass().gives
    assert give == Give(0, Piece("a"), BATCH, 500, (), alone=False)


def test_a_batch_is_never_smaller_than_a_kilobyte():
    at_work = Pass(replace(POLICY, batch_bytes=1500))
    at_work.take(Died(0, "it died"))
    assert at_work.again().batch_bytes == 1024


def test_a_worker_that_is_free_gets_the_next_task():
    at_work = Pass(tasks="abc")
    at_work.take(Finished(1, ROW, 0))
    assert (at_work.again().worker, at_work.gives[0].task.name) == (1, "c")


def test_workers_stay_for_the_next_pass_and_those_that_are_too_many_are_stopped():
    at_work = Pass(replace(POLICY, workers=3), tasks="abc")
    at_work.take(*(Finished(worker, ROW, 0) for worker in range(3)))
    assert at_work.attempts.is_over
    assert at_work.attempts.begin([Piece("d")], replace(POLICY, workers=1)) == [Stop(2), Stop(1)]
    assert at_work.again().worker == 0


# Finishing.


def test_rows_of_tasks_at_work_are_counted():
    at_work = Pass(tasks="ab")
    at_work.take(Moved(0, 5), Moved(1, 2))
    assert at_work.attempts.rows == 7


def test_a_finished_task_is_completed_once():
    at_work = Pass()
    assert at_work.take(Finished(0, ROW, 0)) == [Complete(Piece("a"), ROW)]
    assert at_work.attempts.is_over
    assert at_work.take(Finished(0, ROW, 0)) == []


@pytest.mark.parametrize(("held", "tasks"), [(0, TASKS_PER_WORKER), (376, 8), (375, TASKS_PER_WORKER)])
def test_a_worker_is_replaced_after_many_tasks_or_some_if_it_has_grown(held, tasks):
    """Grown: over three quarters of its share, a half of 1,000."""
    at_work = Pass(tasks="a" * (TASKS_PER_WORKER + 8))
    for number in range(1, tasks):
        assert _named(at_work.take(Finished(0, ROW, held))) == [("Complete", "a")], number
        assert at_work.again().worker == 0
    assert _named(at_work.take(Finished(0, ROW, held))) == [("Complete", "a"), ("Stop", 0)]
    at_work.take(Tick())
    assert Start(2) in at_work.commands


def test_an_error_of_a_task_ends_the_run():
    error = ValueError("no such luck")
    assert Pass().take(Failed(0, error)) == [Raise(error)]


def test_a_worker_that_refuses_the_pass_before_it_has_a_task_ends_the_run():
    at_work = Pass()
    at_work.take(Finished(0, ROW, 0))
    error = ValueError("other code")
    assert at_work.take(Failed(0, error)) == [Raise(error)]


# Workers that die.


def test_a_task_whose_worker_dies_is_tried_first_of_all_with_half_the_batch_and_without_output_in_memory():
    at_work = Pass(tasks="abc")
    at_work.take(Died(0, "it died"))
    retry = {"task": "a", "slice": "slice of a", "reason": "it died", "batch_bytes": BATCH // 2}
    assert at_work.commands == [Stop(0), Say("retry", retry)]
    assert at_work.again() == Give(2, Piece("a"), BATCH // 2, 0, (), alone=False)


def test_the_third_try_is_alone_with_a_quarter_and_no_other_task_begins_beside_it():
    at_work = Pass(tasks="abc")
    at_work.take(Died(0, "it died"), Tick(), Died(2, "it died"))
    assert at_work.take(Tick()) == []  # b still runs
    at_work.take(Finished(1, ROW, 0))
    give = at_work.again()
    assert (give.task.name, give.batch_bytes, give.alone) == ("a", BATCH // 4, True)
    assert at_work.take(Tick()) == []  # c waits
    at_work.take(Finished(give.worker, ROW, 0))
    assert at_work.again().task.name == "c"


def test_idle_workers_are_stopped_before_a_task_is_alone():
    at_work = Pass(replace(POLICY, workers=3), tasks="abc")
    at_work.take(Finished(1, ROW, 0), Finished(2, ROW, 0), Alone(0), Tick())
    assert _named(at_work.commands) == [("Stop", 2), ("Stop", 1), ("Give", 0)]


def test_after_three_deaths_a_task_is_given_up():
    at_work = Pass()
    for worker in range(ATTEMPTS):
        assert at_work.given_up == []
        at_work.take(Tick(), Died(worker, f"death {worker}"))
    assert at_work.given_up == [DIED]
    assert at_work.commands[-1].attempt.reason == "death 2"
    assert at_work.commands[-1].attempt.number == ATTEMPTS


def _dying_in(at_work: Pass, file: str, times: int, whole: bool = True) -> list[Command]:
    for _ in range(times):
        give = at_work.gives[0] if at_work.gives else at_work.again()
        at_work.take(Entered(give.worker, file, 100, whole), Died(give.worker, "it died"))
    return at_work.commands


def test_a_file_in_which_workers_die_is_lost_where_that_is_allowed_and_the_batch_is_whole_again():
    at_work = Pass(LOSING)
    _dying_in(at_work, "x", ATTEMPTS)
    assert at_work.said == ["lost_file", "retry"]
    lost = (("x", DIED, "it died"),)
    assert at_work.again() == Give(3, Piece("a"), BATCH, 500, lost, alone=False)


@pytest.mark.parametrize(("policy", "whole"), [(POLICY, True), (LOSING, False)])
def test_a_file_that_may_not_be_lost_and_a_part_of_one_end_the_run(policy, whole):
    at_work = Pass(policy)
    _dying_in(at_work, "x", ATTEMPTS, whole)
    assert at_work.given_up == [DIED]


def test_failures_are_counted_by_file():
    at_work = Pass()
    for file in "uvwxyz":
        _dying_in(at_work, file, 1)
        assert at_work.said == ["retry"]
        assert at_work.again().batch_bytes == BATCH // 2


def test_an_idle_worker_that_dies_is_only_forgotten():
    at_work = Pass()
    at_work.take(Finished(0, ROW, 0))
    assert at_work.take(Died(0, "it died")) == [Stop(0)]
    assert at_work.take(Died(0, "it died")) == []


def test_the_largest_worker_of_a_tree_that_holds_too_much_is_stopped_and_its_task_tried_with_half_the_batch():
    at_work = Pass(tasks="ab")
    assert _named(at_work.take(Overfull(1, "the tree held too much"))) == [("Stop", 1), ("Say", None)]
    assert at_work.again().batch_bytes == BATCH // 2


# Functions that hold too much.


def test_only_workers_inside_a_function_are_limited():
    at_work = Pass(tasks="ab")
    assert at_work.take(Holds(0, 401)) == []
    at_work.take(Entered(0, "x", 100))
    assert at_work.take(Holds(0, 400)) == []
    assert at_work.take(Holds(0, 401)) != []


def test_without_a_limit_a_worker_may_hold_anything_and_need_not_say():
    at_work = Pass(replace(POLICY, worker_limit=0))
    at_work.take(Entered(0, "x", 100))
    assert at_work.attempts.silent(now=1e9) == []
    assert at_work.take(Holds(0, 10**12)) == []


def test_a_worker_inside_a_function_that_has_not_said_lately_what_it_holds_is_silent():
    at_work = Pass(tasks="ab")
    assert at_work.attempts.silent(now=1e9) == []
    at_work.take(Entered(1, "x", 100), now=1.0)
    assert at_work.attempts.silent(now=1.0 + SILENT_SECONDS / 2) == []
    assert at_work.attempts.silent(now=1.0 + SILENT_SECONDS) == [1]
    at_work.take(Holds(1, 200), now=2.0)
    assert at_work.attempts.silent(now=2.0 + SILENT_SECONDS / 2) == []
    assert at_work.attempts.silent(now=3.0) == [1]


def test_a_function_that_holds_too_much_gets_a_fresh_worker_and_then_its_file_is_lost_and_called_too_large():
    at_work = Pass(replace(POLICY, may_lose=(TOO_LARGE,)))
    at_work.take(Entered(0, "x", 100), Holds(0, 401))
    assert _named(at_work.commands) == [("Stop", 0), ("Say", None)]
    give = at_work.again()
    assert give.batch_bytes == BATCH // 2
    at_work.take(Entered(give.worker, "x", 100), Holds(give.worker, 401))
    assert at_work.said == ["lost_file", "retry"]
    assert at_work.again().lost == (("x", TOO_LARGE, "more than function_memory: 400"),)
    assert at_work.gives[0].batch_bytes == BATCH


@pytest.mark.parametrize(("before", "leaks"), [(250, False), (251, True)])
def test_a_worker_that_was_over_half_of_the_way_before_the_file_leaks(before, leaks):
    """Fresh, a worker holds 100; 400 is the limit."""
    at_work = Pass(LOSING)
    at_work.take(Entered(0, "x", 100), Holds(0, 401))
    give = at_work.again()
    at_work.take(Entered(give.worker, "x", before), Holds(give.worker, 401))
    assert at_work.given_up == ([LEAKS] if leaks else [])
    if leaks:
        assert at_work.commands[-1].bytes == 401


def test_a_part_of_a_file_that_is_too_large_is_given_up_after_three_tries():
    at_work = Pass(LOSING)
    for _ in range(ATTEMPTS):
        assert at_work.given_up == []
        give = at_work.gives[0] if at_work.gives else at_work.again()
        at_work.take(Entered(give.worker, "x", 100, False), Holds(give.worker, 401))
    assert at_work.given_up == [DIED]


# Tasks that show no row.


STALL = {"task": "a", "slice": "slice of a", "rows": 0}


def test_a_task_whose_worker_says_that_it_shows_no_row_is_named_once_with_its_stack():
    at_work = Pass()
    said = Say("stall", {**STALL, "seconds": 10.0, "stack": "in sleep"})
    assert at_work.take(Stalled(0, "in sleep"), now=10.0) == [said]
    assert at_work.take(Stalled(0, "in sleep"), now=11.0) == []
    assert at_work.take(Tick(), now=20.0) == []


def test_a_task_whose_worker_cannot_even_say_so_is_named_with_its_stack_from_outside():
    at_work = Pass()
    assert at_work.take(Tick(), now=10.0) == []
    assert at_work.take(Tick(), now=10.4) == [Say("stall", {**STALL, "seconds": 10.4}, stack_of=0)]
    assert at_work.take(Stalled(0, "in sleep"), now=11.0) == []
    assert at_work.take(Tick(), now=20.0) == []


@pytest.mark.parametrize("sign", [Moved(0, 3), Entered(0, "x", 100)])
def test_a_row_and_a_new_file_start_the_time_anew(sign):
    at_work = Pass()
    at_work.take(Tick(), now=11.0)
    at_work.take(sign, now=59.0)
    assert at_work.take(Tick(), now=69.0) == []
    assert at_work.take(Tick(), now=70.0) != []
    assert at_work.said == ["stall"]


def test_the_same_number_of_rows_is_no_sign_of_life_and_a_smaller_one_is():
    at_work = Pass()
    at_work.take(Moved(0, 3), now=5.0)
    at_work.take(Moved(0, 3), now=14.0)
    at_work.take(Tick(), now=16.0)
    assert at_work.said == ["stall"]
    at_work.take(Moved(0, 2), now=17.0)
    assert at_work.take(Tick(), now=26.0) == []


def test_a_hung_task_is_tried_once_more_with_the_same_batch():
    at_work = Pass()
    at_work.take(Tick(), now=60.0)
    assert [type(command) for command in at_work.commands] == [Stop, Say, Start, Give]
    (give,) = at_work.gives
    assert (give.batch_bytes, give.hold_bytes) == (BATCH, 500)


def test_a_task_that_hangs_twice_is_given_up_while_its_worker_can_still_show_its_stack():
    at_work = Pass()
    at_work.again(now=60.0)
    at_work.take(Tick(), now=125.0)
    assert at_work.given_up == [HUNG]
    assert Stop(1) not in at_work.commands
    assert at_work.commands[0].seconds == 65.0


def test_nothing_follows_the_command_that_ends_the_run():
    at_work = Pass(tasks="abc")
    at_work.take(Tick(), now=60.0)
    at_work.take(Ready(2, 100), Ready(3, 100), now=60.0)
    assert [type(command) for command in at_work.take(Tick(), now=120.0)] == [GiveUp]


def test_a_file_in_which_a_task_hangs_twice_is_lost_where_that_is_allowed():
    at_work = Pass(LOSING)
    at_work.take(Entered(0, "x", 100))
    give = at_work.again(now=60.0)
    at_work.take(Entered(give.worker, "x", 100), now=60.0)
    at_work.take(Tick(), now=120.0)
    assert at_work.said == ["lost_file", "retry"]
    assert at_work.gives[0].lost == (("x", HUNG, "it showed no row for 60 s (task_timeout), twice"),)


def test_hangs_are_counted_by_file():
    at_work = Pass()
    for number, file in enumerate("xyz"):
        at_work.take(Entered(number, file, 100), now=60.0 * number)
        at_work.again(now=60.0 * (number + 1))


def test_a_workers_start_has_time_of_its_own_and_is_no_stall():
    attempts = Attempts()
    attempts.begin([Piece("a")], replace(POLICY, task_timeout=1.0, stall_notice=0.5))
    attempts.take(Tick(), 0.0)
    assert attempts.take(Tick(), START_SECONDS - 1) == []
    attempts.take(Ready(0, 100), START_SECONDS - 1)
    assert attempts.take(Tick(), START_SECONDS - 0.6) == []
    assert attempts.take(Tick(), START_SECONDS - 0.1) != []


def test_a_worker_that_does_not_start_is_replaced():
    attempts = Attempts()
    attempts.begin([Piece("a")], POLICY)
    attempts.take(Tick(), 0.0)
    assert _named(attempts.take(Tick(), START_SECONDS))[0] == ("Stop", 0)


# Tasks that must be alone.


def test_a_task_that_asks_to_be_alone_is_next_when_no_other_runs_with_the_whole_batch():
    at_work = Pass(tasks="abc")
    assert at_work.take(Alone(0)) == [Say("alone", {"task": "a", "slice": "slice of a"})]
    assert at_work.take(Tick()) == []
    at_work.take(Finished(1, ROW, 0))
    give = at_work.again()
    assert (give.task.name, give.batch_bytes, give.alone) == ("a", BATCH, True)


def test_a_task_that_is_alone_and_asks_again_is_given_up():
    at_work = Pass()
    at_work.take(Alone(0), Tick(), Alone(0))
    assert at_work.given_up == [NEEDS_MORE]


def test_a_task_that_is_alone_because_it_is_tried_for_the_last_time_may_not_ask_either():
    at_work = Pass()
    at_work.take(Died(0, "it died"), Tick(), Died(1, "it died"), Tick(), Alone(2))
    assert at_work.given_up == [NEEDS_MORE]


# Planning.


def test_a_measurement_divides_its_batch_by_eight():
    at_work = Pass(Policy(workers=1, batch_bytes=BATCH, shift=3))
    at_work.take(Died(0, "it died"))
    assert at_work.again().batch_bytes == BATCH // 8
    at_work.take(Died(1, "it died"))
    assert at_work.again().batch_bytes == BATCH // 64


def test_a_file_may_be_lost_at_its_first_failure_and_tries_be_counted_in_all():
    at_work = Pass(replace(LOSING, failures_of_lost=1, most_tries=3))
    _dying_in(at_work, "x", 1)
    assert at_work.said == ["lost_file", "retry"]
    _dying_in(at_work, "y", 1)
    assert at_work.again().lost == (("x", DIED, "it died"), ("y", DIED, "it died"))
    _dying_in(at_work, "z", 1)
    assert at_work.given_up == [DIED]


# Whatever happens.

GONE = -1
WORKERS = st.integers(GONE, 2)  # the n-th of those that there are, or one that was stopped
FILES = st.sampled_from("xyz")
EVENTS = st.one_of(
    st.builds(Ready, WORKERS, st.just(100)),
    st.builds(Moved, WORKERS, st.integers(0, 3)),
    st.builds(Entered, WORKERS, FILES, st.sampled_from([100, 300]), st.booleans()),
    st.builds(Alone, WORKERS),
    st.builds(Finished, WORKERS, st.just(ROW), st.sampled_from([0, 1000])),
    st.builds(Died, WORKERS, st.just("it died")),
    st.builds(Overfull, WORKERS, st.just("too much")),
    st.builds(Holds, WORKERS, st.sampled_from([399, 401])),
)


class Witness:
    """Carries out commands on paper, and refuses those that make no sense."""

    def __init__(self, policy: Policy, tasks: int) -> None:
        self.policy, self.tasks = policy, {f"task {number}" for number in range(tasks)}
        self.attempts = Attempts()
        self.workers: set[int] = set()
        self.running: dict[int, Give] = {}
        self.done: set[str] = set()
        self.has_failed = False
        self.attempts.begin([Piece(name) for name in sorted(self.tasks)], policy)

    def take_of_some(self, event: Event, now: float) -> None:
        """The event, of the worker that it stands for."""
        assert not isinstance(event, Tick)
        if self.workers and event.worker != GONE:
            event = replace(event, worker=sorted(self.workers)[event.worker % len(self.workers)])
        self.take(event, now)

    def take(self, event: Event, now: float) -> None:
        for command in self.attempts.take(event, now):
            assert not self.has_failed
            self.carry_out(command, event)
        if isinstance(event, Alone) and not self.has_failed:
            self.running.pop(event.worker, None)
        assert self.has_failed or self.attempts.busy == sorted(self.running)

    def carry_out(self, command: Command, event: Event) -> None:
        match command:
            case Start(worker):
                assert worker not in self.workers
                self.workers.add(worker)
                assert len(self.workers) <= self.policy.workers
            case Give(worker, task):
                assert worker in self.workers
                assert worker not in self.running
                assert task.name not in self.done
                assert task.name not in [give.task.name for give in self.running.values()]
                assert not self.running or not (command.alone or any(give.alone for give in self.running.values()))
                self.running[worker] = command
            case Stop(worker):
                self.workers.remove(worker)
                self.running.pop(worker, None)
            case Complete(task):
                assert isinstance(event, Finished)
                assert self.running.pop(event.worker).task == task
                assert task.name not in self.done
                self.done.add(task.name)
            case GiveUp() | Raise():
                self.has_failed = True


@given(
    st.sampled_from([POLICY, LOSING]),
    st.integers(1, 3),
    st.integers(1, 6),
    st.lists(st.tuples(EVENTS, st.sampled_from([0.0, 1.0, 30.0]), st.booleans()), min_size=20, max_size=60),
)
def test_no_task_is_lost_or_runs_twice_at_once_or_ends_twice(policy, workers, tasks, events):
    """Any events in any order, and then a time in which all goes well: every task ends once, or the run has failed."""
    witness = Witness(replace(policy, workers=workers), tasks)
    now = 0.0
    witness.take(Tick(), now)
    for event, seconds, ticks in events:
        now += seconds
        witness.take_of_some(event, now)
        if ticks and not witness.has_failed:
            witness.take(Tick(), now)
        if witness.has_failed:
            return
    for _ in range(2 * tasks + 1):
        for worker in list(witness.running):
            witness.take(Finished(worker, ROW, 0), now)
        witness.take(Tick(), now)
        if witness.has_failed:  # it hung for the second time
            return
    assert witness.attempts.is_over
    assert witness.done == witness.tasks


# Tasks that come and go while a pass runs.


def test_tasks_that_come_later_are_given_to_workers_that_are_free():
    run = Pass(tasks="a")
    assert run.attempts.room == 1
    run.attempts.add([Piece("b"), Piece("c")])
    assert run.attempts.room == 0
    assert [give.task.name for give in (run.take(Tick()), run.gives)[1]] == ["b"]
    run.take(Finished(run.gives[0].worker, ROW, 100), Tick())
    assert [give.task.name for give in run.gives] == ["c"]


def test_nothing_more_is_taken_beside_a_task_that_must_be_alone():
    run = Pass(replace(POLICY, workers=3), tasks="a")
    run.take(Alone(run.gives[0].worker))
    assert run.attempts.room == 0


def test_a_task_that_another_does_now_is_dropped_with_its_worker():
    run = Pass(replace(POLICY, workers=1), tasks="ab")
    assert _named(run.attempts.drop({"a", "b", "of somebody else"})) == [("Stop", run.gives[0].worker)]
    assert run.attempts.is_over
    assert run.take(Finished(run.gives[0].worker, ROW, 100)) == []  # it had just done it


def test_where_nothing_is_lost_no_waiting_task_is_looked_at():
    class Unread:
        @property
        def name(self) -> str:
            raise AssertionError("an engine asks at every turn, and a hundred thousand tasks may wait")

    run = Pass(tasks="ab")
    run.attempts.add([Unread()])  # type: ignore[list-item]
    assert run.attempts.drop(()) == []


# Machines that come and go.


def test_a_task_whose_machine_goes_away_is_tried_with_the_same_batch_until_it_is_suspected():
    at_work = Pass()
    for _ in range(2):
        (busy,) = at_work.attempts.busy
        assert at_work.take(Lost(busy, "its node has left"))[0] == Stop(busy)
        assert at_work.said == ["retry"]
        assert at_work.again().batch_bytes == BATCH
    at_work.take(Lost(at_work.attempts.busy[0], "its node has left"))
    assert at_work.again().batch_bytes == BATCH // 2


def test_the_time_of_a_task_that_is_queued_elsewhere_has_not_begun():
    at_work = Pass()
    at_work.take(Queued(0), now=1000.0)
    assert at_work.take(Tick(), now=1005.0) == []
    at_work.take(Tick(), now=1011.0)
    assert at_work.said == ["stall"]


def test_fewer_workers_finish_what_they_have_and_more_begin_at_the_next_tick():
    at_work = Pass(replace(POLICY, workers=3), tasks="abcd")
    assert at_work.attempts.resize(1) == []
    at_work.take(Finished(0, ROW, 0), Finished(1, ROW, 0))
    assert at_work.attempts.resize(1) == [Stop(0), Stop(1)]
    assert at_work.take(Tick()) == []
    at_work.attempts.resize(2)
    assert [give.task.name for give in at_work.take(Tick()) if isinstance(give, Give)] == ["d"]
