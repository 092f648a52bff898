"""Blocks: small parts that every report is made of: tables, tiles, lists of facts, notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.base.sizes import counted
from penstock.show.report.drawing.markup import Child, Html, element

MOST_ROWS = 40


def table(columns: Sequence[str], rows: Iterable[Sequence[Child]], noun: str = "row") -> Html:
    """A table with these headers; one that starts with `>` is aligned to the right, as numbers are."""
    numeric = [column.startswith(">") for column in columns]
    listed = list(rows)
    head = [
        _cell("th", column.lstrip(">"), number, scope="col") for column, number in zip(columns, numeric, strict=True)
    ]
    body = [
        element("tr", [_cell("td", cell, number) for cell, number in zip(row, numeric, strict=True)])
        for row in listed[:MOST_ROWS]
    ]
    more = len(listed) - MOST_ROWS
    drawn = element("table", element("thead", element("tr", head)), element("tbody", body))
    left_out = (
        element("p", f"and {counted(more, f'more {noun}')}; --json lists all", class_="note") if more > 0 else None
    )
    return element("div", drawn, left_out, class_="scroll", tabindex="0")


def _cell(name: str, content: Child, number: bool, scope: str | None = None) -> Html:
    return element(name, content, class_="number" if number else None, scope=scope)


def folded(summary: str, *content: Child) -> Html:
    """Something that is opened with a click."""
    return element("details", element("summary", summary), content)


def figure(title: str, caption: str, chart: Child, data: Html | None = None) -> Html:
    """A chart under its title, with its table beneath."""
    words = element("figcaption", element("h3", title) if title else None, caption)
    return element("figure", words, chart, folded("Table", data) if data else None)


def tile(title: str, value: str, small: Child = None, chart: Html | None = None, name: str | None = None) -> Html:
    """A number that is read first. One of many digits is smaller, so that it stays on its line."""
    size = "big" if len(value) < 10 else "big long" if len(value) < 12 else "big longest"
    details = [element("div", value, class_=size, id=name), chart]
    note = element("div", small, class_="small") if small else None
    return element("dl", element("dt", title), element("dd", details, note), class_="tile")


def tiles(each: Iterable[Html]) -> Html:
    return element("div", each, class_="tiles")


def facts_list(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Names on the left, what they are on the right."""
    return element("dl", [(element("dt", name), element("dd", value)) for name, value in pairs], class_="facts")


def note(words: Child) -> Html:
    return element("p", words, class_="note")


def code(value: str) -> Html:
    return element("span", value, class_="code")


def part(words: str) -> Html:
    """Words that stay on one line if they fit on it."""
    return element("span", words, class_="part")


def callout(lines: Sequence[Child], warn: bool = False) -> Html:
    """Sentences that matter."""
    inside = element("p", lines[0]) if len(lines) == 1 else element("ul", [element("li", line) for line in lines])
    return element("div", inside, class_="card callout warn" if warn else "card callout")
