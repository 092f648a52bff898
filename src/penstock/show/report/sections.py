"""Sections: facts of a dataset -> the parts of its report. Next: page.py."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from penstock.base.sizes import counted, format_count, format_seconds, format_size
from penstock.show.report.drawing.blocks import (
    callout,
    code,
    facts_list,
    figure,
    folded,
    note,
    part,
    table,
    tile,
    tiles,
)
from penstock.show.report.drawing.charts import Bar, Column, bars, columns, legend, meter
from penstock.show.report.drawing.markup import Html, element, preformatted
from penstock.show.report.drawing.page import Section, page
from penstock.show.report.drawing.words import UNKNOWN, capitalized, measured, moment, rate
from penstock.show.report.run_sections import machine_section, memory_section, passes_section, slowest_section
from penstock.show.tables import input_words

Facts = dict[str, Any]
_MOST_DETAIL = 300  # characters of a row that was set aside


def report_page(facts: Facts) -> str:
    """The whole report of a dataset."""
    run = facts["run"]
    sections = [
        memory_section(run),
        passes_section(run),
        _flow_section(facts),
        _distribution_section(facts["distributions"]),
        slowest_section(run),
        _rejected_section(facts["rejected"]),
        Section("configuration", "Configuration", list(_configuration(facts))),
        machine_section(run),
        Section("files", "Files and checksums", list(_files(facts))),
    ]
    name = os.path.basename(facts["output"].rstrip("/")) or facts["output"]
    return page(f"{name}: penstock report", list(_head(facts, name)), sections)


# The headline.


def _head(facts: Facts, name: str) -> Iterator[Html]:
    source, run = facts["input"], facts["run"]
    yield element("p", "penstock report", class_="eyebrow")
    yield element("h1", element("bdi", name))
    made = f"Made from {input_words(source)}"
    started = f", started {moment(run['started'])}" if run["started"] else ""
    yield element("p", f"{made}{started}. Dataset ", code(facts["dataset"]), class_="lead")
    yield tiles(_tiles(facts))
    steps = [*facts["account"], *facts["tokens"]]
    if all(step["balances"] for step in steps):
        yield element("p", "✓ in = out + set aside, in every step", class_="balance good", id="balance")
    else:
        yield element("p", "in = out + set aside does NOT hold", class_="balance bad", id="balance")
    if run["unknown"]:
        yield callout(run["unknown"], warn=True)


def _tiles(facts: Facts) -> Iterator[Html]:
    run, seconds = facts["run"], facts["run"]["seconds"]
    records = sum(each["records"] for each in facts["splits"].values())
    splits = [part(f"{each['records']:,} {split}") for split, each in facts["splits"].items()]
    yield tile("Records", format_count(records), splits, name="records")
    taken = next((step for step in facts["account"] if step["step"] == "read"), facts["account"][0])
    speed = rate(taken["taken"], seconds, taken["unit"])
    yield tile("Time", format_seconds(seconds) if seconds is not None else UNKNOWN, speed, name="time")
    yield _memory_tile(run)
    first = taken["taken"]
    aside = sum(sum(step["set_aside"].values()) for step in facts["account"] if step["unit"] == taken["unit"])
    yield tile(
        f"{capitalized(taken['unit'])} read", format_count(first), f"{format_count(aside)} set aside", name="read"
    )
    yield tile(
        "Size",
        format_size(facts["bytes"]),
        f"{counted(len(facts['files']) + 1, 'file')}, {facts['format']}",
        name="size",
    )


def _memory_tile(run: Facts) -> Html:
    peak, allowed = run["peak_memory_bytes"], run["allowed_memory_bytes"]
    if not peak:
        return tile("Peak memory", UNKNOWN, f"budget {format_size(allowed)}" if allowed else None, name="peak")
    if not allowed:
        return tile("Peak memory", format_size(peak), name="peak")
    words = f"{peak / allowed:.0%} of {format_size(allowed)}"
    return tile("Peak memory", format_size(peak), f"{words} allowed", meter(words, peak, allowed), "peak")


# Where every row went.


def _flow_section(facts: Facts) -> Section:
    parts = [_flow(facts["account"])]
    if facts["tokens"]:
        parts.append(_flow(facts["tokens"]))
    if facts["batches"]:
        parts.append(_flow(facts["batches"]["account"], ", when the batch files were made"))
    return Section("flow", "Every row accounted for", parts)


def _flow(account: list[Facts], when: str = "") -> Html:
    """A bar per step. Steps that count the same unit share a scale."""
    drawn, units = [], list(dict.fromkeys(step["unit"] for step in account))
    title = f"{capitalized(', '.join(units))}{when}"
    for unit in units:
        steps = [step for step in account if step["unit"] == unit]
        drawn.append(element("div", unit, class_="unit"))
        drawn.append(bars(f"{title}: {unit} per step", [_step_bar(step) for step in steps]))
    rows = [row for step in account for row in _step_rows(step)]
    data = table(["step", "unit", ">in", ">out", ">set aside", "reason"], rows, "line")
    caption = "Each step passes on what it takes, or sets it aside with a reason."
    chart = [legend(["passed on", "set aside"]), element("div", drawn, class_="bars")]
    return figure(title, caption, chart, data)


def _step_bar(step: Facts) -> Bar:
    aside = sum(step["set_aside"].values())
    made = ", ".join(f"makes {count:,} {unit}" for unit, count in step.get("made", {}).items())
    small = ", ".join(filter(None, [f"+ {aside:,} set aside" if aside else "", made]))
    return Bar(step["step"], [step["given"], aside], format_count(step["given"]), small)


def _step_rows(step: Facts) -> Iterator[tuple[str, ...]]:
    reasons = list(step["set_aside"].items()) or [("", 0)]
    for number, (reason, count) in enumerate(reasons):
        head = (step["step"], step["unit"], format_count(step["taken"]), format_count(step["given"]))
        yield *(head if number == 0 else ("",) * 4), format_count(count), reason
    for unit, count in step.get("made", {}).items():
        yield "makes", unit, "", format_count(count), "", ""


# Distributions.


def _distribution_section(found: Facts) -> Section:
    figures = [_distribution(each) for each in found["shown"]]
    parts = [element("div", figures, class_="pair")] if figures else []
    parts += [_largest_keys(each) for each in found["shown"] if each.get("largest")]
    return Section("distributions", "Distributions", parts + [note(words) for words in found["notes"]])


def _largest_keys(each: Facts) -> Html:
    total = each["mean"] * each["count"]
    drawn = [
        Bar(
            _key(key["key"]), [key["events"]], format_count(key["events"]), f"{key['events'] / total:.1%} of all events"
        )
        for key in each["largest"]
    ]
    rows = [(_key(key["key"]), format_count(key["events"])) for key in each["largest"]]
    caption = "The keys that have the most events."
    return figure("Largest keys", caption, bars("Events of the largest keys", drawn), table(["key", ">events"], rows))


def _key(key: Any) -> str:
    return ", ".join(map(_key, key)) if isinstance(key, list) else "null" if key is None else str(key)


def _distribution(each: Facts) -> Html:
    unit, per_second = each["unit"], each["per_second"]

    def words(value: float) -> str:
        return measured(value, unit, per_second)

    def name(bucket: Facts) -> str:
        same = bucket["least"] == bucket["most"]
        return words(bucket["least"]) if same else f"{words(bucket['least'])} to {words(bucket['most'])}"

    drawn = [Column(name(bucket), bucket["count"], words(bucket["least"])) for bucket in each["buckets"]]
    if each["least"] is not None and each["least"] == each["greatest"]:
        caption = f"Always {words(each['least'])}. Seen: {each['seen']}."
    else:
        known = [] if each["mean"] is None else [f"mean {words(each['mean'])}"]
        known += [f"{which} {words(each[which])}" for which in ("least", "greatest") if each[which] is not None]
        caption = f"{capitalized(', '.join(known))}. Seen: {each['seen']}."
    noun = f"{each['noun']}s"
    rows = [(name(bucket), format_count(bucket["count"])) for bucket in each["buckets"]]
    data = table([_unit_words(unit), f">{noun}"], rows, "bucket")
    return figure(each["title"], caption, columns(f"{each['title']}: {noun} per bucket", drawn), data)


def _unit_words(unit: str) -> str:
    return {"byte": "size", "second": "span", "day": "days"}.get(unit, f"{unit}s")


# Rows set aside, the job, the files.


def _rejected_section(rejected: Facts) -> Section:
    if not rejected["files"]:
        return Section("rejected", "Rows set aside", [])
    rows = [
        (str(each.get("reason", "")), str(each.get("file", "")), _position(each), code(_detail(each)))
        for each in rejected["examples"]
    ]
    lines, files = counted(rejected["lines_looked_at"], "line"), counted(rejected["files_looked_at"], "file")
    looked = f"Examples from the first {lines} of {files} of {rejected['files']:,} in rejected/."
    drawn = element("div", table(["reason", "file", ">position", "row"], rows, "example"), class_="card")
    return Section("rejected", "Rows set aside", [note(looked), drawn])


def _position(each: Facts) -> str:
    position = each.get("position")
    return format_count(position) if isinstance(position, int) else ""


def _detail(each: Facts) -> str:
    """Facts of a row that was set aside, beside its place: the row, or what was wrong with it."""
    rest = {name: value for name, value in each.items() if name not in ("source", "file", "position", "reason")}
    found = json.dumps(rest, ensure_ascii=False, default=str) if rest else ""
    return found if len(found) <= _MOST_DETAIL else f"{found[:_MOST_DETAIL]}…"


def _configuration(facts: Facts) -> Iterator[Html]:
    yield note("Everything in the job that decides a byte of the dataset, defaults included.")
    yield element("div", preformatted(facts["configuration"]), class_="card")
    schema = [(field["name"], field["type"]) for field in facts["schema"]]
    yield folded(f"Schema: {counted(len(schema), 'column')}", table(["column", "type"], schema, "column"))


def _files(facts: Facts) -> Iterator[Html]:
    pairs = [("dataset", code(facts["dataset"])), ("made from", code(facts["job"]))]
    pairs += [("input", code(facts["input"]["digest"]))] if "digest" in facts["input"] else []
    yield element("div", facts_list(pairs), class_="card")
    rows = [(file["file"], format_size(file["bytes"]), code(file["digest"])) for file in facts["files"]]
    words = f"{counted(len(rows), 'file')}, {format_size(facts['bytes'])}"
    yield folded(words, table(["file", ">bytes", "digest"], rows, "file"))
    yield note("`penstock verify` reads every byte again and holds it against these checksums.")
