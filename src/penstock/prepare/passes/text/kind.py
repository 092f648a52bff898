"""Kind: documents become tokens, and one more pass cuts them into rows."""

from penstock.prepare.passes.folds.fold import Ending
from penstock.prepare.passes.job import Job
from penstock.prepare.passes.kinds import Kind, SoFar
from penstock.prepare.stages.text.pack import Pack


def _is_packed(job: Job) -> bool:
    return bool(job.stages) and isinstance(job.stages[-1], Pack)


def _tokens(job: Job) -> Ending | None:
    if not _is_packed(job):
        return None
    from penstock.prepare.passes.text.tokens import tokens_ending

    return tokens_ending(job)


def _packed(so_far: SoFar) -> SoFar:
    if not _is_packed(so_far.job):
        return so_far
    from penstock.prepare.passes.text.pack import Packing

    last = len(so_far.passes) - 1
    return so_far.also(Packing(last + 1, "pack", so_far.job, last))


TEXT = Kind(endings=(_tokens,), behind=_packed)
