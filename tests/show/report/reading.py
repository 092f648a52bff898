"""Reading: a report as a browser sees it -> its elements, their attributes, and the text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

_TAGS = """
html head meta title link style body main header nav a section footer h1 h2 h3 p div span small strong bdi ul li
dl dt dd figure figcaption details summary table thead tbody tr th td pre code svg rect line path circle text
"""
_ATTRIBUTES = """
lang charset name content http-equiv rel href class id role aria-label aria-hidden tabindex title scope width height
x y x1 x2 y1 y2 dx rx r cx cy d viewbox preserveaspectratio text-anchor data-value data-points
"""


@dataclass
class Read(HTMLParser):
    """Everything in a page."""

    tags: list[str] = field(default_factory=list)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def read(path: str | Path) -> Read:
    page = Read()
    page.feed(Path(path).read_text(encoding="utf-8"))
    page.close()
    return page


def assert_harmless(page: Read) -> None:
    """Nothing but what reports are drawn with: no script, no handler, no inline style, nothing to fetch."""
    assert set(page.tags) <= set(_TAGS.split())
    assert {name for name, _ in page.attributes} <= set(_ATTRIBUTES.split())
    assert all(value.startswith("#") or value == "data:," for name, value in page.attributes if name == "href")
    assert all(each.isprintable() or each == "\n" for each in page.text)
