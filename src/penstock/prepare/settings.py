"""Settings: how many workers, and how much each holds at a time, so that a pass fits. Next: plan.py.

Physical choices all: they change speed and memory, never a byte of output. A strategy is a rule for choosing them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.base.errors import PlanError
from penstock.base.memory import Budget
from penstock.base.sizes import format_size, parse_size
from penstock.prepare.config import Config
from penstock.prepare.exchange import Bucket
from penstock.prepare.keying import KeyRange
from penstock.prepare.measure import Measured, Measurement, decoded_row_bytes
from penstock.prepare.packing import Span
from penstock.prepare.passes import Cut, buckets_of, packer_of, task_count
from penstock.prepare.placing import Part
from penstock.prepare.room import NOBODY_COUNTS, Room, alone_room
from penstock.prepare.slices import Slice
from penstock.prepare.survey import MANY_FILES, Survey

MARGIN = 1.25  # over what a task was measured to add: allocators keep more as it goes on
HOLD_MARGIN = 1.1  # over the bytes that are kept: they come in pieces
SLACK_BYTES = 4 << 20  # and a little a worker, which matters when batches are small


@dataclass(frozen=True)
class Means:
    """What the job may use, and what a little of it was measured to cost."""

    budget: Budget
    cores: int
    free_disk: int
    driver_bytes: int
    measured: Measured


@dataclass(frozen=True)
class Settings:
    workers: int
    batch_bytes: int  # decoded rows that a task reads, or sorts, at a time
    hold_bytes: int  # of its output that a task keeps in memory; the rest takes the way over a scratch file
    row_bytes: float
    stored_row_bytes: float
    worker_limit: int = 0  # bytes that a worker may hold in a user's function before it is stopped; 0: no limit
    limit_by: str = ""  # what sets it
    threads: int = 1  # of a worker
    room: Room = NOBODY_COUNTS

    def row_bytes_of(self, piece: Slice | Bucket | Part | KeyRange | Span) -> float:
        """Rows of a slice that stores more a row than the first are taken to decode to more, too."""
        if not isinstance(piece, Slice) or piece.rows <= 0:
            return self.row_bytes
        return self.row_bytes * max(piece.bytes / piece.rows / self.stored_row_bytes, 1.0)


@dataclass(frozen=True)
class _Batches:
    """How large batches should be, which size is worth losing a worker for, and the least that works at all."""

    wanted: int
    good: int
    least: int


_MOST_SORTED = 1 << 30  # what Arrow's 32-bit offsets of text hold with room to spare
_PLACE_BYTES = 24 << 20  # 2 MiB at a time, and what scaling them takes in float64
_MATCH_BYTES = 64 << 20  # 2**18 keys of 20 bytes, their places, and what sorting takes
_PACK_BYTES = 64 << 20  # 2**20 tokens at a time, before and after; lengths of 2**17 documents
_ROW_COPIES = 16  # bytes for each token of a row: it waits, is joined with what comes, and is cut off again
_MAP_BATCHES = _Batches(wanted=4 << 20, good=1 << 20, least=64 << 10)  # 1 to 8 MiB were equally fast: LOG.md


def batches_of(cut: Cut, config: Config, survey: Survey, measured: Measured) -> _Batches:
    if cut.kind == "scatter":
        buckets = buckets_of(config, survey)  # a batch becomes a chunk a bucket, and chunks should not be tiny
        found = _Batches(
            wanted=_between(16 << 20, buckets * (256 << 10), 128 << 20),
            good=_between(1 << 20, buckets * (8 << 10), 16 << 20),
            least=_between(256 << 10, buckets << 10, 4 << 20),
        )
    elif cut.spill >= 0:
        rows = sum(map(survey.rows_of, survey.slices)) * measured.slices.given_per_row
        every = int(rows * measured.spilled_row_bytes)
        bucket = every // buckets_of(config, survey)
        kept = min(survey.stages[cut.reducer].keeps_bytes(), every or 2**62)  # beside a run, when it has several
        least = kept + (2 << 20)
        found = _Batches(wanted=max(min(8 * bucket, every, _MOST_SORTED), least), good=max(bucket, least), least=least)
    else:
        found = _MAP_BATCHES
    if config.strategy == "parallel":
        return _Batches(found.wanted, found.wanted, found.wanted)
    if config.strategy == "streaming":
        return _Batches(found.good, found.good, found.least)
    return found


def _between(low: int, value: int, high: int) -> int:
    return max(low, min(value, high))


def choose_settings(cut: Cut, config: Config, survey: Survey, means: Means) -> Settings:
    """The most workers whose batches are good, with the largest batches that are wanted and fit."""
    measured = measured_for(cut, means)
    batches = batches_of(cut, config, survey, means.measured)
    wanted = _workers_wanted(config, means)
    most = min(wanted, max(1, task_count(cut, config, survey)))
    if cut.holds_little:
        held = measured.worker_bytes + held_bytes(cut, config, survey, means)
        fitting = (means.budget.allowed - means.driver_bytes) // held
        return Settings(min(most, max(1, fitting)), held_bytes(cut, config, survey, means), 0, 1.0, 1.0)
    by_threads = max((stage.threads() for stage in survey.stages[cut.first : cut.last]), default=0)
    if by_threads and most:
        most = max(1, min(most, -(-wanted // by_threads)))
    for workers in range(most, 0, -1) if most else [0]:
        batch = _batch_for(workers, batches, measured, means)
        if batch >= (batches.good if workers > 1 else batches.least):
            hold = _hold_for(workers, batch, cut, config, survey, means)
            limit, limit_by = _worker_limit(workers, batch, hold, config, measured, means)
            threads = threads_of(by_threads, wanted or means.cores, workers)
            stored = survey.stored_row_bytes
            alone = min(_room(min(workers, 1), measured, means), alone_room(means.budget.allowed))
            room = Room(_room(workers, measured, means), alone)
            return Settings(workers, batch, hold, row_bytes_of(survey), stored, limit, limit_by, threads, room)
    raise AssertionError("refuse_without_memory lets no such pass through")


def threads_of(most: int, cores: int, workers: int) -> int:
    """Of a process, where a stage keeps `most` busy; one more than it does for the reader, while there is a core."""
    return max(1, min(most + 1, cores // max(1, workers))) if most else 1


def _room(workers: int, measured: Measurement, means: Means) -> int:
    """A worker's share beside what it holds whatever it reads."""
    share = (means.budget.allowed - means.driver_bytes) // max(1, workers)
    return max(1, int(share - (measured.worker_bytes if workers else 0) - measured.fixed_bytes))


def _worker_limit(
    workers: int, batch: int, hold: int, config: Config, measured: Measurement, means: Means
) -> tuple[int, str]:
    """With `function_memory:`, what a worker was projected to hold; without, its share of all that is allowed."""
    if not any(source.function for source in config.input) or not workers:
        return 0, ""
    declared = [source.function_memory for source in config.input if source.function_memory]
    if declared:
        limit = memory_of(1, batch, hold, measured, means) - means.driver_bytes
        return limit, f"function_memory: {max(declared, key=parse_size)}"
    return (means.budget.allowed - means.driver_bytes) // workers, f"memory: {config.memory} leaves to a worker"


def measured_for(cut: Cut, means: Means) -> Measurement:
    if cut.kind == "hash":
        assert means.measured.hashing
        return means.measured.hashing
    return means.measured.of(cut.spill >= 0)


def held_bytes(cut: Cut, config: Config, survey: Survey, means: Means) -> int:
    """What a task takes that holds little, whatever it reads."""
    if cut.kind == "match":
        return _MATCH_BYTES
    if cut.kind == "place":
        return place_bytes(config, survey, means)
    pack = packer_of(survey.stages)
    assert pack
    return _PACK_BYTES + _ROW_COPIES * pack.length


def place_bytes(config: Config, survey: Survey, means: Means) -> int:
    """What placing a part takes; with merge_strategy: accumulative, everything is held first."""
    if config.merge_strategy == "sequential":
        return _PLACE_BYTES
    rows = sum(map(survey.rows_of, survey.slices))
    return _PLACE_BYTES + int(1.1 * rows * means.measured.slices.output_row_bytes)


def _needed_to_hold(cuts: list[Cut], config: Config, survey: Survey, means: Means) -> int:
    """By the passes that hold little."""
    worker = means.measured.slices.worker_bytes if _workers_wanted(config, means) else 0
    held = [held_bytes(cut, config, survey, means) for cut in cuts if cut.holds_little]
    return means.driver_bytes + worker + max(held) if held else 0


def _refuse_holding(cuts: list[Cut], config: Config, survey: Survey, means: Means) -> None:
    needed = _needed_to_hold(cuts, config, survey, means)
    if needed > means.budget.allowed:
        what = "placing the samples" if cuts[-1].kind == "place" else "matching keys and packing rows"
        raise PlanError(
            f"{what} needs {format_size(needed)}; {means.budget} is allowed",
            where=f"merge_strategy: {config.merge_strategy}" if cuts[-1].kind == "place" else "the last passes",
            next_step="merge_strategy: sequential, which holds a few megabytes and gives the same bytes"
            if config.merge_strategy == "accumulative"
            else f"memory: {math.ceil(needed * 1.1 / 10e6) * 10}MB",
        )


def refuse_without_memory(cuts: list[Cut], config: Config, survey: Survey, means: Means) -> None:
    """Refuse a job one of whose passes cannot fit; the one that needs most says how much."""
    needs = []
    for cut in (cut for cut in cuts if not cut.holds_little):
        measured, batches = measured_for(cut, means), batches_of(cut, config, survey, means.measured)
        workers = 0 if _workers_wanted(config, means) == 0 else 1
        if _batch_for(workers, batches, measured, means) < batches.least:
            needs.append((memory_of(workers, batches.least, 0, measured, means), cut.number, measured, batches))
    if needs:
        least, _, measured, batches = max(needs, key=lambda need: need[:2])
        enough = max(least, _needed_to_hold(cuts, config, survey, means))
        error = _too_small(least, enough, workers, config, batches, measured, means)
        if survey.files >= MANY_FILES:
            error.where = f"{error.where}; the driver holds something of each of {survey.files:,} files"
        raise error
    _refuse_holding(cuts, config, survey, means)


def row_bytes_of(survey: Survey) -> float:
    """Decoded bytes of a row: of the first ones, or what rows take in the input, if that is more."""
    return max(decoded_row_bytes(survey.sample), survey.stored_row_bytes)


def _workers_wanted(config: Config, means: Means) -> int:
    if config.strategy == "sequential" or means.measured.assumed:
        return 0
    return means.cores if config.workers == "auto" else config.workers


def _batch_for(workers: int, batches: _Batches, measured: Measurement, means: Means) -> int:
    """The largest batch that lets so many workers fit; none at all means inside the driver."""
    share = means.budget.allowed - means.driver_bytes
    if workers:
        share = share // workers - measured.worker_bytes
    left = (share - SLACK_BYTES) / MARGIN - measured.fixed_bytes
    return int(min(batches.wanted, left / max(measured.bytes_per_batch_byte, 0.01)))


def _hold_for(workers: int, batch_bytes: int, cut: Cut, config: Config, survey: Survey, means: Means) -> int:
    """What is left of the budget, as far as the output of the largest task needs it."""
    if cut.kind not in ("map", "gather") or config.strategy == "streaming" or config.format in ("arrays", "npz"):
        return 0
    if packer_of(survey.stages):
        return 0
    measured = means.measured.of(cut.spill >= 0)
    left = (means.budget.allowed - memory_of(workers, batch_bytes, 0, measured, means)) / max(workers, 1) / HOLD_MARGIN
    rows = [survey.rows_of(piece) for piece in survey.slices]
    if cut.spill < 0:
        return max(0, int(min(left, max(rows, default=0) * measured.output_row_bytes)))
    a_bucket = 2 * means.measured.output_bytes(sum(rows), buckets_of(config, survey)) / buckets_of(config, survey)
    return max(0, int(min(left, a_bucket)))


def memory_of(workers: int, batch_bytes: int, hold_bytes: int, measured: Measurement, means: Means) -> int:
    """Driver, then each worker: what it holds before a task and what a task adds."""
    task = measured.task_bytes(batch_bytes) * MARGIN + SLACK_BYTES + hold_bytes * HOLD_MARGIN
    if workers == 0:
        return int(means.driver_bytes + task)
    return int(means.driver_bytes + workers * (measured.worker_bytes + task))


def _too_small(
    least: int, enough: int, workers: int, config: Config, batches: _Batches, measured: Measurement, means: Means
) -> PlanError:
    suggestion = math.ceil(enough * 1.1 / 10e6) * 10
    steps = [f"memory: {suggestion}MB"]
    steps += ["strategy: streaming, which holds less at once"] if config.strategy == "parallel" else []
    steps += ["a smaller max_record"] if batches.least > 4 << 20 else []
    if not {"tokenize", "dedup"} & set(config.stage_names):  # of which a process without workers holds as much
        steps += ["strategy: sequential, which has no worker"] if workers else []
        steps += ["fewer columns with `select`"] if config.stages else []
    return PlanError(
        f"the job needs {format_size(least)}: {format_size(means.driver_bytes)} for the driver, "
        + (f"{format_size(measured.worker_bytes)} for one worker and " if workers else "and ")
        + f"{format_size(measured.task_bytes(batches.least) * MARGIN + SLACK_BYTES)} for the smallest batch; "
        f"only {means.budget} is allowed",
        where="measured on the first rows of the input, in this very run",
        next_step=", or ".join(steps),
    )
