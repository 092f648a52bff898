"""Kind: near_dedup has two folds over the documents before it, and three passes over what they leave."""

from penstock.base.errors import ConfigError
from penstock.prepare.passes.folds.fold import Ending
from penstock.prepare.passes.kinds import Kind, SoFar
from penstock.prepare.rows.container import FORMAT
from penstock.prepare.stages.interfaces import ComparesNearly


def _nearly_the_same(so_far: SoFar, number: int) -> SoFar:
    stage, job, first = so_far.job.stages[number], so_far.job, len(so_far.passes)
    if not isinstance(stage, ComparesNearly):
        return so_far
    from penstock.prepare.passes.near.choose import Choosing
    from penstock.prepare.passes.near.pair import Pairing
    from penstock.prepare.passes.near.shingle import SetsInto
    from penstock.prepare.passes.near.sign import SignaturesInto
    from penstock.prepare.passes.near.verify import Verifying
    from penstock.prepare.stages.dedup.near.near_dedup import VERSION, NearDedup

    assert isinstance(stage, NearDedup)
    bits = job.survey.origin_bits
    if bits is None:
        raise ConfigError(
            f"stages[{number}].near_dedup: its evidence names the origins of documents, but the job keeps none",
            next_step="provenance: true",
        )
    own = {"near_dedup": stage.signing(), "version": VERSION, "container": FORMAT}
    bands = SignaturesInto(first, stage.column, stage.shingling, stage.banding, stage.rank)
    sets = SetsInto(first + 2, stage.column, stage.shingling, stage.rank, bits)
    signing = Ending("bands", into=bands, only=own, for_others=True, word="signing", shown=(number,))
    shingling = Ending("shingles", into=sets, only=own, for_others=True, word="shingling")
    so_far = so_far.fold("sign", number, signing).also(Pairing(first + 1, "pair", job, first, number))
    so_far = so_far.fold("shingle", number + 1, shingling).also(Verifying(first + 3, "verify", job, first, number))
    return so_far.also(Choosing(first + 4, "choose", job, first, number))


NEAR = Kind(before=_nearly_the_same)
