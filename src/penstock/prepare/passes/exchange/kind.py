"""Kind: a stage with an exchange ends one fold in a spill; the next reads its buckets."""

from dataclasses import replace

from penstock.prepare.passes.kinds import Kind, SoFar
from penstock.prepare.rows.order import bucket_count
from penstock.prepare.stages.interfaces import Exchanges


def _exchanged(so_far: SoFar, number: int) -> SoFar:
    job, scatter, stage = so_far.job, len(so_far.passes), so_far.job.stages[number]
    if not isinstance(stage, Exchanges):
        return so_far
    from penstock.prepare.passes.exchange.gather import Buckets
    from penstock.prepare.passes.exchange.scatter import scatter_ending
    from penstock.prepare.passes.exchange.trying import try_buckets

    buckets = bucket_count(job.survey.bytes, job.config.slice_bytes)
    ending = scatter_ending(job, scatter, number, stage.exchange(), buckets)
    reader = Buckets(job, number, scatter, stage, buckets)
    scattered = so_far.fold("scatter", number + 1, ending, so_far.riding)
    return replace(scattered, first=number + 1, reader=reader, tries=try_buckets, riding=())


EXCHANGE = Kind(before=_exchanged)
