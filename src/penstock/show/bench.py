"""Bench: a dataset and a rhythm -> how fast its batches come, what they cost, and why a consumer would wait.

Against a consumer, each batch is followed by a pause: from the host, that is all a step of an accelerator is.
"""

import gc
import re
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from penstock.base.errors import ConfigError
from penstock.base.machine import cpu_count
from penstock.base.memory import make_budget, own_memory
from penstock.base.sizes import counted, format_count, format_size
from penstock.loader.feeding.stats import STAGES, Stats
from penstock.loader.loader import Loader
from penstock.loader.tokens.counts import ODD
from penstock.show.loading import Wanted
from penstock.show.tables import make_list, make_table

_PERCENTILES = (50, 95, 99)
Facts = dict[str, Any]


def bench_facts(wanted: Wanted, seconds: float, step_ms: float | None) -> Facts:
    """One loader alone, and one against a consumer if there is a step: what each counts is of its own run."""
    if seconds <= 0 or (step_ms is not None and step_ms <= 0):
        wrong = f"--seconds {seconds:g}" if seconds <= 0 else f"--step-ms {step_ms:g}"
        raise ConfigError(f"{wrong} is not a time to measure", where="the command line", next_step="give more than 0")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warm_up = _warm_up(wanted)
        wanted = replace(wanted, length=warm_up["length"], overflow=warm_up["overflow"])
        runs = [_run(wanted, seconds, step) for step in dict.fromkeys([None, step_ms])]
    return {
        "path": wanted.path,
        **warm_up,
        "batch_size": wanted.batch_size,
        "seed": wanted.seed,
        "workers": wanted.workers,
        "cache": wanted.cache,
        "cores": cpu_count().amount,
        "memory_allowed_bytes": make_budget(wanted.memory or "100%").allowed,
        "runs": runs,
        "warnings": _distinct([str(each.message) for each in told]),
    }


def _distinct(messages: list[str]) -> list[str]:
    """Each loader tells it again, with other numbers: the last one counts."""
    return list({re.sub(r"[\d.,]+", "", message): message for message in messages}.values())


def _warm_up(wanted: Wanted) -> Facts:
    """Make and discard one batch, so that the one-time cost of a process is measured separately."""
    started = time.perf_counter()
    with wanted.open() as loader:
        next(loader)
        state, unit = loader.state(), loader.stats().unit
    recipe = state["recipe"]
    return {
        "datasets": state["datasets"],
        "split": recipe["split"],
        "kind": recipe["kind"],
        "length": recipe.get("length"),
        "overflow": recipe.get("overflow"),
        "fill": recipe.get("fill"),
        "augment": recipe.get("augment"),
        "unit": unit,
        "warm_up_seconds": time.perf_counter() - started,
    }


def _run(wanted: Wanted, seconds: float, step_ms: float | None) -> Facts:
    gc.collect()  # the loader before this one is not to be counted in its memory
    started = time.perf_counter()
    with wanted.open() as loader:
        loaded = time.perf_counter()
        next(loader)
        first = time.perf_counter()
        measured = _measure(loader, seconds, (step_ms or 0) / 1000)
        memory = own_memory()
    return {
        "step_ms": step_ms,
        "load_ms": 1000 * (loaded - started),
        "first_batch_ms": 1000 * (first - loaded),
        **measured,
        "memory_bytes": memory.counted,
        "mapped_bytes": memory.file,
    }


def _measure(loader: Loader, seconds: float, step: float) -> Facts:
    """From the first batch on; it is out of the numbers, as it is in the loader's own."""
    before, cpu = loader.stats(), time.process_time()
    waits: list[float] = []
    end = time.perf_counter() + seconds
    while not waits or time.perf_counter() < end:
        if step:
            time.sleep(step)
        asked = time.perf_counter()
        batch = next(loader)  # noqa: F841 - a consumer holds it until the next one is there
        waits.append(time.perf_counter() - asked)
    stats, cpu = loader.stats(), time.process_time() - cpu
    return _numbers(before, stats, waits, cpu)


def _numbers(before: Stats, stats: Stats, waits: list[float], cpu_seconds: float) -> Facts:
    percentiles = np.percentile(np.array(waits), _PERCENTILES)
    made = stats.made - before.made
    # What was made ahead and not asked for any more has cost its share of the CPU too.
    tokens_made = stats.tokens / len(waits) * made
    return {
        "batches": len(waits),
        "seconds": stats.seconds,
        "cpu_seconds": cpu_seconds,
        "tokens": stats.tokens,
        "tokens_per_second": stats.tokens_per_second,
        "tokens_per_cpu_second": tokens_made / cpu_seconds if cpu_seconds else 0.0,
        "interval_ms": 1000 * stats.seconds / len(waits),
        "padding": stats.padding,
        "next_ms": {f"p{rank}": 1000 * float(value) for rank, value in zip(_PERCENTILES, percentiles, strict=True)},
        "next_share": sum(waits) / stats.seconds if stats.seconds else 0.0,  # by the consumer's clock
        "wait_share": stats.wait_share,  # by the loader's: what its verdict follows from
        "threads": stats.threads,
        "threads_busy": stats.busy,
        "stage_ms": {each: 1000 * (stats.stages[each] - before.stages[each]) / max(1, made) for each in STAGES},
        "batches_ready": stats.ready,
        "batches_ahead": stats.ahead,
        "draws": stats.draws,
        "draws_unused": stats.draws_unused,
        "coverage": stats.coverage,
        "tokens_truncated": stats.tokens_truncated,
        "counts": stats.counts,
        "verified_bytes": stats.verified_bytes,
        "verify_seconds": stats.verify_seconds,
        "limiting": stats.limiting,
        "fix": asdict(stats.fix) if stats.fix else None,
        "verdict": stats.verdict,
    }


# For people.


def bench_tables(facts: Facts) -> Iterator[RenderableType]:
    yield make_list(_lines(facts))
    yield ""
    runs = facts["runs"]
    table = make_table("measured", *(f">{run_title(run)}" for run in runs))
    for name, cells in bench_rows(facts):
        table.add_row(name, *cells)
    yield table
    for run in runs:
        yield Text.assemble("\n", (f"{run_title(run)}: ", "bold"), fed_words(run), (run["verdict"], _style(run)))
    for warning in facts["warnings"]:
        yield Text.assemble(("\nwarning: ", "bold yellow"), warning)


def run_title(run: Facts) -> str:
    """`alone`, or the step of the consumer that it was measured against."""
    return f"{run['step_ms']:g} ms per step" if run["step_ms"] else "alone"


def fed_words(run: Facts) -> str:
    """Alone, the loader is what is waited for, always. What that is good for is a number of milliseconds."""
    return f"feeds steps of {milliseconds_words(run['interval_ms'])} and longer; " if run["step_ms"] is None else ""


def _style(run: Facts) -> str:
    return "" if run["step_ms"] is None else "yellow" if run["limiting"] else "green"


def _lines(facts: Facts) -> Iterator[tuple[str, str]]:
    yield "dataset", ", ".join(facts["datasets"])
    yield "path", f"{facts['path']}, split {facts['split']}" if facts["split"] else facts["path"]
    size = f" x {format_count(facts['length'])} {facts['unit']}" if facts["length"] else ""
    fill = f", {facts['fill']}{', augmented' if facts['augment'] else ''}" if facts["fill"] else ""
    yield "batches", f"{counted(facts['batch_size'], 'row')}{size}{fill} ({facts['kind']})"
    yield "machine", f"{counted(facts['cores'], 'core')}, memory {format_size(facts['memory_allowed_bytes'])}"
    yield "warm-up", f"{facts['warm_up_seconds']:.2f} s to a first batch that is not measured"


def bench_rows(facts: Facts) -> Iterator[tuple[str, list[str]]]:
    """The name of each line, and what stands in it for each run."""
    runs, unit = facts["runs"], facts["unit"]
    useful = f"useful {unit}" if unit == "tokens" else unit
    yield f"{useful}/s", [format_count(run["tokens_per_second"]) for run in runs]
    yield f"{useful}/CPU-second", [format_count(run["tokens_per_cpu_second"]) for run in runs]
    if unit == "tokens":
        yield "padding", [f"{run['padding']:.2%}" for run in runs]
    yield "batches", [format_count(run["batches"]) for run in runs]
    yield "from batch to batch", [milliseconds_words(run["interval_ms"]) for run in runs]
    yield "load()", [milliseconds_words(run["load_ms"]) for run in runs]
    yield "first batch", [milliseconds_words(run["first_batch_ms"]) for run in runs]
    for rank in _PERCENTILES:
        yield f"next(), p{rank}", [milliseconds_words(run["next_ms"][f"p{rank}"]) for run in runs]
    yield "next(), share of the time", [f"{run['next_share']:.2%}" for run in runs]
    yield "  waiting for a batch", [f"{run['wait_share']:.2%}" for run in runs]
    yield "threads", [format_count(run["threads"]) for run in runs]
    yield "threads busy", [f"{run['threads_busy']:.0%}" for run in runs]
    for stage in STAGES:
        yield f"  {stage}, a batch", [milliseconds_words(run["stage_ms"][stage]) for run in runs]
    yield "batches ready", [f"{run['batches_ready']:.1f} of {run['batches_ahead']}" for run in runs]
    yield "memory of this process", [format_size(run["memory_bytes"]) for run in runs]
    if "events" in facts["kind"]:
        yield "coverage, draws used", [f"{run['coverage']:.1%}" for run in runs]
        yield "draws unused", [format_count(run["draws_unused"]) for run in runs]
        yield "events", [format_count(run["counts"]["events"]) for run in runs]
        for name in ODD:
            if any(run["counts"][name] for run in runs):
                yield f"  {name.replace('_', ' ')}", [format_count(run["counts"][name]) for run in runs]
    if facts["overflow"]:
        yield "tokens truncated", [format_count(run["tokens_truncated"]) for run in runs]
    yield (
        "verified",
        [f"{format_size(run['verified_bytes'])} in {milliseconds_words(1000 * run['verify_seconds'])}" for run in runs],
    )


def milliseconds_words(milliseconds: float) -> str:
    """Two decimals where they matter."""
    return f"{milliseconds:,.0f} ms" if milliseconds >= 1000 else f"{milliseconds:.2f} ms"
