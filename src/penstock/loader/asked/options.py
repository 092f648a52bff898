"""Options: refuses impossible arguments of load() before anything is opened. Next: opening.py."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.numbers import is_positive, is_whole

_MOST = 2**31 - 1  # of rows, tokens, ranks, epochs: their products stay within 64 bits
_MOST_WORKERS = 1024
_PHASE_KEYS = ("from", "weights", "batch_size")
_OF_ENCODE = ("window", "min_length", "layout")  # options that mean nothing without encode=
_OTHER_NUMBERS = ("min_length", "max_tokens", "max_documents")
_WORDS = {
    "fill": (None, "packed", "one_key"),
    "cache": (None, "memory", "disk"),
    "documents": (None, "varlen"),
    "mix_by": ("examples", "tokens"),
    "overflow": (None, "truncate"),
    "layout": (None, "padded", "offsets"),
    "remainder": ("drop", "pad"),
}


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options as Python numbers. numpy's numbers do not fit into a JSON state, and would compile extra kernels."""
    _refuse_options(given)
    whole = ("batch_size", "seed", "rank", "world", "length", "epochs", "ahead", *_OTHER_NUMBERS)
    numbers = {name: None if given[name] is None else int(given[name]) for name in whole}
    phases = None if given["phases"] is None else [dict(each) for each in given["phases"]]
    return {**given, **numbers, "shuffle": bool(given["shuffle"]), "phases": phases}


def largest_batch(options: Mapping[str, Any]) -> int:
    """Rows of the largest batch of all phases."""
    sizes = [each["batch_size"] for each in options["phases"] or () if "batch_size" in each]
    return int(max([options["batch_size"], *sizes]))


def _refuse_options(given: Mapping[str, Any]) -> None:
    rank, world, workers, log_every = (given[name] for name in ("rank", "world", "workers", "log_every"))
    flops, peak = given["flops_per_token"], given["peak_flops"]
    flops_given = "flops_per_token" if peak is None else "peak_flops"
    checks: list[tuple[bool, str, str]] = [
        (isinstance(given["split"], str | None), "split", "the name of a split, such as 'train'"),
        (is_whole(given["batch_size"], 1, _MOST), "batch_size", f"a whole number from 1 to {_MOST:,}"),
        (_is_none_or_whole(given["length"]), "length", f"tokens of a row, from 1 to {_MOST:,}"),
        (is_whole(given["seed"], 0, 2**64 - 1), "seed", "a whole number from 0 to 2^64 - 1"),
        (is_whole(world, 1, _MOST), "world", "how many ranks there are, above 0"),
        (is_whole(world, 1, _MOST) and is_whole(rank, 0, world - 1), "rank", "a whole number from 0 to world - 1"),
        (
            (isinstance(workers, str) and workers == "auto") or is_whole(workers, 0, _MOST_WORKERS),
            "workers",
            f"'auto', or a whole number from 0 to {_MOST_WORKERS:,}",
        ),
        (_is_none_or_whole(given["epochs"]), "epochs", f"None (no end), or a whole number from 1 to {_MOST:,}"),
        (
            _are_epochs(given["max_epochs"]),
            "max_epochs",
            f"a whole number from 1 to {_MOST:,}, or a list with one per dataset",
        ),
        (given["epochs"] is None or given["max_epochs"] is None, "max_epochs", "either epochs= or max_epochs="),
        (
            _is_none_or_whole(given["max_documents"]),
            "max_documents",
            f"None, or documents of a row, from 1 to {_MOST:,}",
        ),
        (
            given["max_documents"] is None or given["documents"] is not None,
            "max_documents",
            "documents='varlen' too: max_documents is the room of its cu_seqlens",
        ),
        (_is_none_or_whole(given["ahead"]), "ahead", f"None, or how many batches, from 1 to {_MOST:,}"),
        (isinstance(given["shuffle"], (bool, np.bool_)), "shuffle", "True or False"),
        (isinstance(given["augment"], bool | np.bool_ | None), "augment", "True, False, or None (True for pings)"),
        (not isinstance(given["columns"], (str, bytes)), "columns", "a list of names: columns=['features']"),
        (not isinstance(given["nulls"], (str, bytes)), "nulls", "a list of names: nulls=['heart_rate']"),
        (
            callable(given["encode"]) or (isinstance(given["encode"], str | None) and given["encode"] in (None, "raw")),
            "encode",
            "None, 'raw', or a function of a window, a dict of arrays",
        ),
        (_is_none_or_whole(given["min_length"]), "min_length", f"events of a record, from 1 to {_MOST:,}"),
        (_is_none_or_whole(given["max_tokens"]), "max_tokens", f"tokens of a row, from 1 to {_MOST:,}"),
        (given["max_tokens"] is None or callable(given["encode"]), "max_tokens", "a function as encode= with it"),
        *(
            (given["encode"] is not None or given[name] is None, name, "encode='raw' or a function with it")
            for name in _OF_ENCODE
        ),
        (_is_list_or_path(given["exclude"]), "exclude", "a file with one document per line, or a list of documents"),
        (log_every is None or is_positive(log_every), "log_every", "None, or seconds above 0"),
        (given["on_metrics"] is None or callable(given["on_metrics"]), "on_metrics", "None, or a function of a dict"),
        (is_positive(given["metrics_seconds"]), "metrics_seconds", "seconds above 0"),
        (flops is None or is_positive(flops), "flops_per_token", "None, or a number above 0"),
        (peak is None or is_positive(peak), "peak_flops", "None, or a number above 0"),
        ((flops is None) == (peak is None), flops_given, "both flops_per_token and peak_flops, or neither"),
        *(
            (isinstance(given[name], str | None) and given[name] in words, name, " or ".join(map(repr, words)))
            for name, words in _WORDS.items()
        ),
    ]
    for good, name, usage in checks:
        if not good:
            taken = f"load() cannot take {name}={given[name]!r}"
            raise ConfigError(taken, where="penstock.load", next_step=f"give {usage}")
    _refuse_uneven(given["batch_size"], world, "penstock.load")
    if given["phases"] is not None:
        _refuse_phases(given["phases"], world)


def _is_list_or_path(given: Any) -> bool:
    return given is None or (isinstance(given, str | os.PathLike | Sequence) and not isinstance(given, bytes))


def _refuse_uneven(batch_size: int, world: int, where: str) -> None:
    if batch_size % world:
        nearest = batch_size - batch_size % world or world
        raise ConfigError(
            f"batch_size={batch_size} rows cannot be divided evenly by world={world}",
            where=f"{where}: batch_size is that of all ranks together",
            next_step=f"a multiple of {world}, such as {nearest} or {nearest + world}",
        )


def _refuse_phases(phases: Any, world: int) -> None:
    if isinstance(phases, (str, bytes, Mapping)) or not isinstance(phases, Sequence) or not phases:
        raise _refused_phase("phases=", f"is not a list of phases: {phases!r}")
    last = -1
    for number, phase in enumerate(phases, start=1):
        where = f"load(phases=...), phase {number}"
        if not isinstance(phase, Mapping) or "from" not in phase:
            raise _refused_phase(where, f"has no 'from', the number of its first batch: {phase!r}")
        unknown = [str(name) for name in phase if name not in _PHASE_KEYS]
        if unknown:
            raise _refused_phase(where, f"has an unknown key, {unknown[0]!r}; a phase has {', '.join(_PHASE_KEYS)}")
        if not is_whole(phase["from"], 0, _MOST) or phase["from"] <= last or (number == 1 and phase["from"] != 0):
            after = f"above {last:,}, where the phase before begins" if number > 1 else "0, for the first phase"
            raise _refused_phase(where, f"begins at batch {phase['from']!r}, which must be a whole number {after}")
        last = phase["from"]
        if "batch_size" in phase:
            if not is_whole(phase["batch_size"], 1, _MOST):
                raise _refused_phase(where, f"has batch_size={phase['batch_size']!r}, not a whole number above 0")
            _refuse_uneven(phase["batch_size"], world, where)


def _refused_phase(where: str, what: str) -> ConfigError:
    return ConfigError(
        f"the phase {what}" if where != "phases=" else f"phases= {what}",
        where=where,
        next_step='phases=[{"from": 0, "weights": [1, 0]}, {"from": 10_000, "weights": [0.7, 0.3], "batch_size": 64}]',
    )


def _are_epochs(value: Any) -> bool:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return all(map(_is_none_or_whole, value))
    return _is_none_or_whole(value)


def _is_none_or_whole(value: Any) -> bool:
    return value is None or is_whole(value, 1, _MOST)
