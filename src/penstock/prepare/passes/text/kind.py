"""Kind: documents become tokens, and one more pass cuts them into rows."""

from penstock.prepare.passes.kinds import Kind, SoFar
from penstock.prepare.passes.text.pack import Packing
from penstock.prepare.passes.text.tokens import TokensEnding, tokens_ending


def _packed(so_far: SoFar) -> SoFar:
    last = len(so_far.passes) - 1
    is_packed = isinstance(so_far.ending, TokensEnding)
    return so_far.also(Packing(last + 1, "pack", so_far.job, last)) if is_packed else so_far


TEXT = Kind(endings=(tokens_ending,), behind=_packed)
