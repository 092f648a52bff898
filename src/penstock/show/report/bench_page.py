"""Bench page: what `penstock bench` measured -> a report of the loader. The facts are those of show/bench.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from penstock.base.sizes import counted, format_count, format_size
from penstock.show.bench import bench_rows, fed_words, milliseconds_words, run_title
from penstock.show.report.drawing.blocks import callout, code, facts_list, figure, table, tile, tiles
from penstock.show.report.drawing.charts import Bar, bars, legend
from penstock.show.report.drawing.markup import Html, element
from penstock.show.report.drawing.page import Section, page
from penstock.show.report.drawing.words import short_count

Facts = dict[str, Any]
_CONFIGURATION = (
    *("path", "split", "kind", "batch_size", "length", "overflow"),
    *("fill", "augment", "seed", "workers", "cache", "cores"),
)


def bench_page(facts: Facts) -> str:
    """The whole report of a benchmark."""
    sections = [
        Section("waiting", "Does the consumer wait?", list(_waiting(facts))),
        Section("stages", "Time per stage", [_stages(run) for run in facts["runs"]]),
        Section("percentiles", "Time of next()", [_percentiles(run) for run in facts["runs"]]),
        Section("measured", "Everything measured", [_measured(facts)]),
        Section("configuration", "Configuration", [element("div", facts_list(_configuration(facts)), class_="card")]),
    ]
    name = os.path.basename(facts["path"].rstrip("/")) or facts["path"]
    return page(f"{name}: penstock bench", list(_head(facts, name)), sections)


def _head(facts: Facts, name: str) -> Iterator[Html]:
    yield element("p", "penstock bench", class_="eyebrow")
    yield element("h1", element("bdi", name))
    yield element("p", f"Batches of {_size(facts)}. Dataset ", code(", ".join(facts["datasets"])), class_="lead")
    for run in facts["runs"]:
        yield tiles(_tiles(facts, run))
    if facts["warnings"]:
        yield callout(facts["warnings"], warn=True)


def _size(facts: Facts) -> str:
    length = f" x {format_count(facts['length'])} {facts['unit']}" if facts["length"] else ""
    return f"{counted(facts['batch_size'], 'row')}{length}"


def _tiles(facts: Facts, run: Facts) -> Iterator[Html]:
    title, unit = run_title(run), facts["unit"]
    useful = f"Useful {unit}/s" if unit == "tokens" else f"{unit.capitalize()}/s"
    yield tile(
        f"{useful}, {title}",
        short_count(run["tokens_per_second"]),
        f"{short_count(run['tokens_per_cpu_second'])} per CPU-second",
    )
    yield tile(
        "Batches/s",
        short_count(1000 / run["interval_ms"]) if run["interval_ms"] else "",
        f"{milliseconds_words(run['interval_ms'])} from batch to batch",
    )
    yield tile("Waiting for a batch", f"{run['wait_share']:.1%}", "of the consumer's time")
    if unit == "tokens":
        yield tile("Padding", f"{run['padding']:.2%}", "of the room in batches")
    yield tile("Memory", format_size(run["memory_bytes"]), "of this process")


# Charts.


def _waiting(facts: Facts) -> Iterator[Html]:
    """The verdict, and how each second of the consumer was spent."""
    for run in facts["runs"]:
        yield callout(
            [[element("strong", f"{run_title(run)}: "), f"{fed_words(run)}{run['verdict']}"]],
            warn=bool(run["step_ms"] and run["limiting"]),
        )
    drawn = [
        Bar(run_title(run), [1 - run["wait_share"], run["wait_share"]], f"{run['wait_share']:.1%} waiting")
        for run in facts["runs"]
    ]
    rows = [
        (run_title(run), milliseconds_words(run["interval_ms"]), f"{run['next_share']:.2%}", f"{run['wait_share']:.2%}")
        for run in facts["runs"]
    ]
    data = table(["measured", ">from batch to batch", ">in next()", ">waiting for a batch"], rows)
    chart = [legend(["at work", "waiting for a batch"]), bars("Share of the consumer's time", drawn, 1.0)]
    yield figure(
        "Time of the consumer", "Alone, the consumer does nothing but take batches, so it always waits.", chart, data
    )


def _stages(run: Facts) -> Html:
    caption = f"Per batch and thread. {counted(run['threads'], 'thread')}, busy {run['threads_busy']:.0%} of the time."
    return _times(f"Making a batch, {run_title(run)}", caption, run["stage_ms"], ["stage", ">time per batch"])


def _percentiles(run: Facts) -> Html:
    caption = f"Percentiles over {run['batches']:,} calls."
    return _times(f"Waiting in next(), {run_title(run)}", caption, run["next_ms"], ["percentile", ">time"])


def _times(title: str, caption: str, milliseconds: dict[str, float], columns: list[str]) -> Html:
    """A bar per name, as long as its time."""
    words = {name: milliseconds_words(each) for name, each in milliseconds.items()}
    drawn = [Bar(name, [each], words[name]) for name, each in milliseconds.items()]
    return figure(title, caption, bars(title, drawn), table(columns, words.items()))


def _measured(facts: Facts) -> Html:
    rows = [(name, *cells) for name, cells in bench_rows(facts)]
    return element("div", table(["measured", *(f">{run_title(run)}" for run in facts["runs"])], rows), class_="card")


def _configuration(facts: Facts) -> Iterator[tuple[str, str]]:
    for name in _CONFIGURATION:
        if facts[name] is not None:
            yield name.replace("_", " "), str(facts[name])
    yield "memory allowed", format_size(facts["memory_allowed_bytes"])
    yield "warm-up", f"{facts['warm_up_seconds']:.2f} s to a first batch that is not measured"
