"""Load: paths and options -> a Loader, everything decided and refused before the first batch. `penstock.load`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from penstock.loader.asked.mixing import make_draw, make_order, refuse_weights
from penstock.loader.asked.opening import Asked, Path, open_all, split_of
from penstock.loader.asked.options import checked
from penstock.loader.asked.room import Room, is_larger_than_memory
from penstock.loader.batches import empty_batch
from penstock.loader.engine import noticing_compilation
from penstock.loader.kinds.choice import choose_kind
from penstock.loader.loader import Loader
from penstock.loader.maker import Parts
from penstock.loader.order.recipe import Recipe
from penstock.loader.tokens.vocabulary import Vocabulary


def load(
    path: Path | Sequence[Path],
    split: str | None = None,
    *,
    batch_size: int,
    length: int | None = None,
    seed: int = 0,
    rank: int = 0,
    world: int = 1,
    workers: int | Literal["auto"] = "auto",
    memory: str | int | None = None,
    epochs: int | None = None,
    fill: Literal["packed", "one_key"] | None = None,
    cache: Literal["memory", "disk"] | None = None,
    fields: Mapping[str, Any] | Vocabulary | None = None,
    augment: bool | None = None,
    columns: Sequence[str] | None = None,
    overflow: Literal["truncate"] | None = None,
    weights: Sequence[float] | None = None,
    mix_by: Literal["examples", "tokens"] = "examples",
    shuffle: bool = True,
    remainder: Literal["drop", "pad"] = "drop",
    ahead: int | None = None,
    log_every: float | None = None,
    flops_per_token: float | None = None,
    peak_flops: float | None = None,
) -> Loader:
    """Open prepared datasets for training: batch k is a pure function of the data, these options and k.

    `split` is "train" unless another is named; an .arrayrecord file is a split by itself. Stored rows of tokens that
    are longer than `length` are refused, or cut with overflow="truncate".

    `batch_size` is global: rank r of `world` gets its share of the rows of every batch. `memory` bounds this whole
    process, buffers included. Events are encoded as docs/tokens.md says, by `fields` or as pings. `augment` reorders
    the events of a segment and their fields, and leaves times out: the default for pings, and not with `fields`.
    """
    arguments = dict(locals())
    options = checked(arguments)
    opened = open_all(path, split)
    larger = is_larger_than_memory(opened, cache)
    refuse_weights(weights, len(opened))
    room = Room.of(options)
    with noticing_compilation():
        kind = choose_kind(Asked(opened, options, room.budget, larger))
        order = make_order(kind, options)
        draw = make_draw(order)
        kind.fill(draw(0, 1), empty_batch(kind.layout, 1))  # compiles or loads what the first batch needs
    room.place_columns(kind, cache, larger)
    settings = {name: options[name] for name in ("batch_size", "seed", "shuffle")}
    settings = {"kind": kind.name, "split": split_of(opened, split), **settings, "shares": list(order.shares)}
    return Loader(
        Parts(
            opened_by=load,
            arguments=arguments,
            kind=kind,
            order=order,
            draw=draw,
            recipe=Recipe(tuple(each.name for each in opened), {**settings, **kind.describe()}),
            batch_size=options["batch_size"],
            rank=options["rank"],
            world=options["world"],
            remainder=remainder,
            workers=None if workers == "auto" else int(workers),
            ahead=room.batches_ahead(kind),
            room=None if memory is None else room.left,
            log_every=log_every,
            flops=(flops_per_token, peak_flops) if flops_per_token and peak_flops else None,
        )
    )
