"""Load: paths and options -> a Loader, everything decided and refused before the first batch. `penstock.load`."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from penstock.base.events.metrics import SECONDS, OnMetrics
from penstock.loader.asked.agreement import refuse_unlike
from penstock.loader.asked.mixing import make_draws, make_phases, phases_asked
from penstock.loader.asked.opening import Asked, Path, open_all, split_of
from penstock.loader.asked.options import checked
from penstock.loader.asked.room import Room, is_larger_than_memory
from penstock.loader.batches import Encode, empty_batch
from penstock.loader.kinds.choice import choose_kind
from penstock.loader.loader import Loader
from penstock.loader.order.recipe import Recipe
from penstock.loader.parts import Parts
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
    fields: Mapping[str, str | Mapping[str, Any]] | Vocabulary | None = None,
    augment: bool | None = None,
    columns: Sequence[str] | None = None,
    nulls: Sequence[str] | None = None,
    encode: Literal["raw"] | Encode | None = None,
    window: Literal["last", "random"] | Mapping[str, int] | None = None,
    min_length: int | None = None,
    layout: Literal["padded", "offsets"] | None = None,
    max_tokens: int | None = None,
    overflow: Literal["truncate"] | None = None,
    documents: Literal["varlen"] | None = None,
    max_documents: int | None = None,
    exclude: Path | Sequence[Any] | None = None,
    weights: Sequence[float] | None = None,
    phases: Sequence[Mapping[str, Any]] | None = None,
    max_epochs: int | Sequence[int | None] | None = None,
    mix_by: Literal["examples", "tokens"] = "examples",
    shuffle: bool = True,
    remainder: Literal["drop", "pad"] = "drop",
    ahead: int | None = None,
    log_every: float | None = None,
    flops_per_token: float | None = None,
    peak_flops: float | None = None,
    on_metrics: OnMetrics | None = None,
    metrics_seconds: float = SECONDS,
) -> Loader:
    """Open prepared datasets for training: batch k is a pure function of the data, these options and k.

    Args:
        path: Folder that `penstock.run` wrote, .arrayrecord files, or a list of them to mix.
        split: Split to load. Default: "train". An .arrayrecord file is a split by itself.
        batch_size: Rows per batch, over all ranks together. A multiple of `world`.
        length: Tokens per row, for events and text; events per row, with `encode`. Default: the length of the stored
            rows; events have none, and need it. Longer stored rows are refused, unless overflow="truncate". Arrays take
            none.
        seed: Seed of the order and of `augment`, from 0 to 2^64 - 1. Default: 0.
        rank: Number of this process among `world`, from 0. It gets its share of the rows of every batch. Default: 0.
        world: Number of processes that share a batch. Default: 1.
        workers: Threads that make batches ahead; 0 makes each batch when it is asked for. Default: "auto".
        memory: Upper bound for this whole process: "2GB", "50%" or bytes. Default: no bound, and batches ahead take at
            most 1 GiB.
        epochs: Number of passes over the data, after which the loader ends. Default: None: each `for` loop is one
            epoch, and the next loop has the next one.
        fill: Events per row: "packed" puts several keys into a row, "one_key" only one. Default: "packed" for events;
            other data takes none.
        cache: "memory" copies all columns into this process, "disk" reads only what a batch needs. Default: None, the
            system decides what to keep in memory.
        fields: Encoding of event columns as tokens: {"at": "time", "dst": "ip", "port": {"int": 2}}, or a
            `loader.vocabulary`. Default: the columns of pings. docs/reference/tokens.md lists the encodings.
        augment: Reorder the events of a segment and their fields, and leave times out. Default: True for pings, False
            with `fields`.
        columns: Only these columns of arrays, or of records with `encode`, by name. Default: all but text.
        nulls: Columns that may have nulls: zeros in their place, and a mask `NAME_valid`, True for a value.
            Default: None, and a column with nulls is refused.
        encode: "raw" loads windows of grouped records, or of samples with arrays of any length, as they are stored:
            `NAME` [rows, `length`, ...] padded with zeros, and `lengths`. A function of yours is given each window, a
            dict of arrays, and returns a dict of arrays of constant shape, or a list of token ids. Default: None,
            events become tokens by `fields`.
        window: Events of a record longer than `length`, with `encode`: "last", "random" (another window in every epoch)
            or {"sliding": stride}, where every window is a row. Default: None, longer records are refused.
        min_length: Fewest events of a record, with `encode`. Shorter ones are left out; `stats().datasets` has their
            number. Default: None, all records are loaded.
        layout: Arrays of encode="raw": "padded", or "offsets": the events of all rows one after the other, and zeros
            up to rows * `length`; row i is `NAME[offsets[i]:offsets[i + 1]]`. Default: "padded".
        max_tokens: Tokens per row, where `encode` returns token ids; shorter rows are padded with zeros, and a longer
            one is an error. Default: `length`.
        overflow: "truncate" cuts stored rows that are longer than `length`. Default: None, they are refused.
        documents: "varlen" gives the documents of tokens as attention kernels and trainers take them: `cu_seqlens`,
            `position_ids` and `seq_idx` in place of `inputs_position` and `targets_position`. Needed for a `layout` of
            `to_torch`. Default: None.
        max_documents: Documents that a row may have, which decides the shape of `cu_seqlens`. A row with more is
            refused. Default: enough for every row.
        exclude: Documents that must not be trained on: a file with one per line, or a list of them, each by its origin
            (file:position, [source, "file", position] or an entry of `loader.origin(k)`, in a file as JSON) or by the
            hash of its text. They become padding with segmentation 0. Nothing else changes: an earlier state can be
            restored with a longer list. Default: None.
        weights: Share of each dataset if `path` is a list; they are scaled to 1. Default: equal shares.
        phases: Changes of the mixture during a run: [{"from": 0, "weights": [1, 0]}, {"from": 10_000, "weights":
            [0.7, 0.3], "batch_size": 64}]. "from" is the first batch of a phase; a weight of 0 leaves a dataset out;
            what a phase does not name is as above. A `for` loop over phases does not end with an epoch. Default: None.
        max_epochs: Most passes over each dataset: a number for all, or one per dataset, with None for no limit. The
            loader ends before a dataset is passed more often. Default: None.
        mix_by: Unit of `weights`: "examples" (rows) or "tokens". Default: "examples".
        shuffle: Another order in every epoch; False keeps the stored order, but still mixes several datasets at random.
            Default: True.
        remainder: Last incomplete batch of finite epochs: "drop" it, or "pad" it with rows of zeros. Padded rows of
            tokens have segmentation 0; batches of columns get `valid`, a bool per row. Default: "drop".
        ahead: Most batches that wait for the consumer. Default: as many as `memory` has room for, up to 16.
        log_every: Seconds between two lines in the log "penstock", level INFO. Default: None, no lines.
        flops_per_token: Floating-point operations of the model per token, for `stats().mfu`. Default: None.
        peak_flops: Operations per second of this rank's accelerators. Give both or neither. Default: None.
        on_metrics: Function that is called with a flat dict of numbers for a logger, such as
            `penstock/loader/batches_per_second`. What it raises becomes a warning, once. Default: None.
        metrics_seconds: Seconds between two calls of `on_metrics`; it is also called at the end. Default: 10.

    Returns:
        A Loader: iterate over it, ask for `batch(k)`, or hand it to `to_torch`, `to_jax`, `to_grain` or `to_maxtext`.
    """
    arguments = dict(locals())
    options = checked(arguments)
    del arguments["on_metrics"]  # an equal loader in another process must not call it
    opened = open_all(path, split)
    refuse_unlike(opened)
    larger = is_larger_than_memory(opened, cache)
    phases_asked(options, len(opened))  # refused before kernels are compiled
    room = Room.of(options)
    kind = choose_kind(Asked(opened, options, room.budget, larger))
    made = make_phases(kind, options)
    draws = make_draws(made)
    kind.fill(draws[0](0, 1), empty_batch(kind.layout, 1))  # compiles or loads what the first batch needs
    room.place_columns(kind, cache, larger)
    settings = {name: options[name] for name in ("seed", "shuffle")}
    settings = {"kind": kind.name, "split": split_of(opened, split), **settings, **made.first_settings()}
    return Loader(
        Parts(
            opened_by=load,
            arguments=arguments,
            kind=kind,
            phases=made,
            draws=draws,
            recipe=Recipe(tuple(each.name for each in opened), {**settings, **kind.describe()}),
            rank=options["rank"],
            world=options["world"],
            paths=tuple(each.path for each in opened),
            workers=None if workers == "auto" else int(workers),
            ahead=room.batches_ahead(kind),
            room=None if memory is None else room.left,
            log_every=log_every,
            metrics=(on_metrics, metrics_seconds),
            flops=(flops_per_token, peak_flops) if flops_per_token and peak_flops else None,
        )
    )
