"""Member: one machine's part in a run: walk the passes like every other member, and do the tasks that it can claim.
Next: closing.py."""

from dataclasses import dataclass

from penstock.base.processes.nursery import Nursery
from penstock.base.stores.leases import Leases, Renewing
from penstock.base.stores.shared import SharedStore
from penstock.prepare.engines.workers.board import Board
from penstock.prepare.engines.workers.joined import joining
from penstock.prepare.engines.workers.member_log import MemberLog
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.doing import Doing
from penstock.prepare.run.holding import hold_others
from penstock.prepare.run.members.closing import close
from penstock.prepare.run.members.leaving import leaving
from penstock.prepare.run.progress import Progress

_NOTED_SECONDS = 60.0  # people are told of clocks that differ by more


@dataclass(frozen=True)
class Member:
    """`lease`: seconds without a sign of life before others do its tasks."""

    plan: Plan
    store: SharedStore
    lease: float
    progress: Progress

    def work(self, nursery: Nursery) -> tuple[int, int]:
        """Returns (tasks, rows) that this member did, when the dataset is there."""
        board, leases = Board(self.store), Leases(self.store, self.lease)
        done = 0, 0
        with leaving(self.store, board), MemberLog(self.store, self.progress.watch) as log, Renewing(leases):
            try:
                self._compare_clocks(leases, log)
                make = joining(board, leases)
                with (
                    hold_others(self.plan, shared=True),
                    Doing.start(self.plan, self.store, log, (), self.progress, nursery, make, alone=False) as doing,
                ):
                    left = doing.passes({})  # what others have done, the engine learns
                log.write_status()
                close(self.plan, self.store, leases, left, self.progress)
            finally:
                done = log.done
        board.refuse_result_of_another(self.plan.job)
        return done

    def _compare_clocks(self, leases: Leases, log: MemberLog) -> None:
        """Move the start of the run from the storage's clock to that of this machine, which `progress` uses."""
        ahead = leases.clock_ahead()
        self.progress.started += ahead
        if abs(ahead) > _NOTED_SECONDS:
            log.say("worker_clock", member=self.store.member, ahead=round(ahead, 3))
