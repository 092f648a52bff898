"""Settings: how many workers, and how much each holds at a time, so that a pass fits; a strategy is a rule for that."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.base.errors import PlanError
from penstock.base.sizes import format_size, parse_size
from penstock.prepare.budget.costs import Measurement
from penstock.prepare.budget.means import HOLD_MARGIN, MARGIN, SLACK_BYTES, Means, Settings, enough, memory_of
from penstock.prepare.budget.room import Room, alone_room
from penstock.prepare.job.config import Config
from penstock.prepare.passes import Batches, Holds, Need, Pass
from penstock.prepare.survey.survey import MANY_FILES, Survey


@dataclass(frozen=True)
class Strategy:
    workers: int | None = None  # as many as there are cores
    batches: Callable[[Batches], Batches] = lambda each: each
    holds_output: bool = True
    is_own_choice: bool = True  # of the job; else penstock chooses everything
    advice: tuple[str, ...] = ()  # where memory is too small

    @property
    def is_inside(self) -> bool:
        """Whether there is no worker: the driver does the tasks itself."""
        return self.workers == 0


_BY_NAME = {
    "auto": Strategy(is_own_choice=False),
    "sequential": Strategy(workers=0),
    "parallel": Strategy(
        batches=lambda each: Batches(each.wanted, each.wanted, each.wanted),
        advice=("strategy: streaming, which holds less at once",),
    ),
    "streaming": Strategy(batches=lambda each: Batches(each.good, each.good, each.least), holds_output=False),
}


def strategy_of(config: Config) -> Strategy:
    found = _BY_NAME[config.strategy]
    if config.workers == "auto" or found.is_inside:
        return found
    return replace(found, workers=config.workers, is_own_choice=True)


@dataclass(frozen=True)
class _Share:
    """Memory of a job, as workers that cost so much share it. No worker at all means inside the driver."""

    cost: Measurement
    means: Means

    def used(self, workers: int, batch_bytes: int, hold_bytes: int = 0) -> int:
        return memory_of(workers, batch_bytes, hold_bytes, self.cost, self.means)

    def of(self, workers: int) -> int:
        return (self.means.budget.allowed - self.means.driver_bytes) // max(1, workers)

    def _beside(self, workers: int) -> int:
        """A worker's share beside what it holds before a task."""
        return self.of(workers) - (self.cost.worker_bytes if workers else 0)

    def room(self, workers: int) -> int:
        """A worker's share beside what it holds whatever it reads."""
        return max(1, self._beside(workers) - self.cost.fixed_bytes)

    def batch(self, workers: int, wanted: int) -> int:
        """The largest batch that lets so many workers fit."""
        left = (self._beside(workers) - SLACK_BYTES) / MARGIN - self.cost.fixed_bytes
        return int(min(wanted, left / max(self.cost.bytes_per_batch_byte, 0.01)))

    def hold(self, workers: int, batch_bytes: int, output: float) -> int:
        """The rest of the budget, as far as the output of the largest task needs it."""
        left = (self.means.budget.allowed - self.used(workers, batch_bytes)) / max(workers, 1) / HOLD_MARGIN
        return max(0, int(min(left, output)))


def choose_settings(each: Pass, config: Config, survey: Survey, means: Means) -> Settings:
    """The most workers whose batches are good, with the largest batches that are wanted and fit."""
    holds, strategy = each.holds(means), strategy_of(config)
    share, wanted = _Share(holds.cost, means), _workers_wanted(strategy, means)
    most = min(wanted, max(1, each.task_count))
    if holds.known:
        fitting = share.of(1) // (holds.cost.worker_bytes + holds.known.bytes)
        return Settings(min(most, max(1, fitting)), holds.known.bytes, 0, 1.0, 1.0)
    assert holds.batches
    batches = strategy.batches(holds.batches)
    if holds.threads and most:
        most = max(1, min(most, -(-wanted // holds.threads)))
    for workers in range(most, 0, -1) if most else [0]:
        batch = share.batch(workers, batches.wanted)
        if batch >= (batches.good if workers > 1 else batches.least):
            hold = share.hold(workers, batch, holds.output) if strategy.holds_output else 0
            limit, limit_by = _worker_limit(workers, batch, hold, config, share)
            return Settings(
                workers=workers,
                batch_bytes=batch,
                hold_bytes=hold,
                row_bytes=row_bytes_of(survey),
                stored_row_bytes=survey.stored_row_bytes,
                worker_limit=limit,
                limit_by=limit_by,
                threads=threads_of(holds.threads, wanted or means.cores, workers),
                room=Room(share.room(workers), min(share.room(min(workers, 1)), alone_room(means.budget.for_rows))),
            )
    raise AssertionError("refuse_without_memory lets no such pass through")


def threads_of(most: int, cores: int, workers: int) -> int:
    """Threads per process: the stage's own, plus one that reads ahead if a core is free."""
    return max(1, min(most + 1, cores // max(1, workers))) if most else 1


def _worker_limit(workers: int, batch: int, hold: int, config: Config, share: _Share) -> tuple[int, str]:
    """With `function_memory:`, what a worker was projected to hold; without, its share of all that is allowed."""
    if not any(source.function for source in config.input) or not workers:
        return 0, ""
    declared = [source.function_memory for source in config.input if source.function_memory]
    if declared:
        limit = share.used(1, batch, hold) - share.means.driver_bytes
        return limit, f"function_memory: {max(declared, key=parse_size)}"
    return share.of(workers), f"memory: {config.memory} leaves to a worker"


def refuse_without_memory(passes: Sequence[Pass], config: Config, survey: Survey, means: Means) -> None:
    """Refuse a job one of whose passes cannot fit. The advice is what the largest of all passes needs."""
    held, strategy = [each.holds(means) for each in passes], strategy_of(config)
    workers = min(1, _workers_wanted(strategy, means))
    known = max((each.known for each in held if each.known), default=None, key=lambda need: need.bytes)
    needed = _known_bytes(held, workers, means)
    least = _least_bytes(held, strategy, workers, means)
    for states in (each.states for each in passes if each.states):
        if means.driver_bytes > means.budget.allowed:
            raise _refusal(states, means.driver_bytes, least, means)
    shares = [(_Share(each.cost, means), strategy.batches(each.batches)) for each in held if each.batches]
    small = [(share, size) for share, (wanted, _, size) in shares if share.batch(workers, wanted) < size]
    if small:
        share, batch = max(reversed(small), key=lambda each: each[0].used(workers, each[1]))  # the last, of equals
        is_inside = _least_bytes(held, _BY_NAME["sequential"], 0, means) <= means.budget.allowed
        raise _too_small(share, batch, workers, _Advice(least, is_inside), config, survey)
    if known and needed > means.budget.allowed:
        raise _refusal(known, needed, least, means)
    for driver in (each.driver for each in held if each.driver):
        if driver.bytes > means.budget.allowed:
            raise _refusal(driver, driver.bytes, least, means)


def _known_bytes(held: Sequence[Holds], workers: int, means: Means) -> int:
    """Memory of the pass whose tasks hold the largest known amount; 0 if there is none."""
    known = max((each.known.bytes for each in held if each.known), default=0)
    return means.driver_bytes + workers * means.measured.slices.worker_bytes + known if known else 0


def _least_bytes(held: Sequence[Holds], strategy: Strategy, workers: int, means: Means) -> int:
    """The least memory with which every pass of the job fits."""
    batches = (
        _Share(each.cost, means).used(workers, strategy.batches(each.batches).least) for each in held if each.batches
    )
    drivers = (each.driver.bytes for each in held if each.driver)
    return max(_known_bytes(held, workers, means), *batches, *drivers, 0)


def _refusal(need: Need, needed: int, least: int, means: Means) -> PlanError:
    return PlanError(
        need.what.format(needed=format_size(needed), budget=means.budget),
        where=need.where,
        next_step=", or ".join(filter(None, (enough(max(needed, least)), need.other_step))),
    )


@dataclass(frozen=True)
class _Advice:
    """The least memory with which the whole job fits, and whether it would fit now without a worker."""

    least: int
    is_inside: bool


def row_bytes_of(survey: Survey) -> float:
    """Decoded bytes of a row: of the first ones, or what rows take in the input, if that is more."""
    sample = survey.sample
    return max(sample.nbytes / sample.num_rows if sample.num_rows else 64.0, survey.stored_row_bytes)


def _workers_wanted(strategy: Strategy, means: Means) -> int:
    if means.measured.assumed:
        return 0
    return means.cores if strategy.workers is None else strategy.workers


def _too_small(share: _Share, batch: int, workers: int, advice: _Advice, config: Config, survey: Survey) -> PlanError:
    cost, means, least = share.cost, share.means, share.used(workers, batch)
    steps = [enough(advice.least), *strategy_of(config).advice]
    steps += ["a smaller max_record"] if batch > 4 << 20 else []
    if not any(stage.holds_much for stage in survey.stages):
        steps += ["strategy: sequential, which has no worker"] if workers and advice.is_inside else []
        steps += ["fewer columns with `select`"] if config.stages else []
    many = f"; the driver holds something of each of {survey.files:,} files" if survey.files >= MANY_FILES else ""
    return PlanError(
        f"the job needs {format_size(least)}: {format_size(means.driver_bytes)} for the driver, "
        + (f"{format_size(cost.worker_bytes)} for one worker and " if workers else "and ")
        + f"{format_size(cost.task_bytes(batch) * MARGIN + SLACK_BYTES)} for the smallest batch; "
        f"only {means.budget} is allowed",
        where=f"measured on the first rows of the input, in this very run{many}",
        next_step=", or ".join(steps),
    )
