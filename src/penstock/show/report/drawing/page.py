"""Page: a title and sections -> one HTML document that loads nothing, runs nothing, and says so to the browser."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.show.report.drawing.markup import Html, element
from penstock.show.report.drawing.style import STYLE

MARK = '<meta name="generator" content="penstock report">'  # by which a report is told from any other file


@dataclass(frozen=True)
class Section:
    """A part of the page that can be linked to."""

    name: str  # of the link
    title: str
    parts: Sequence[Html]


def page(title: str, head: Sequence[Html], sections: Sequence[Section]) -> str:
    """The whole document. The policy allows this style sheet by its hash, and nothing else."""
    written = [each for each in sections if each.parts]
    links = [element("a", each.title, href=f"#{each.name}") for each in written]
    body = [
        element("header", head, element("nav", links, aria_label="Sections")),
        *(element("section", element("h2", each.title), each.parts, id=each.name) for each in written),
        element(
            "footer", "Made by penstock from the files of this dataset. This page loads nothing and runs no script."
        ),
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            MARK,
            f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            element("title", title),
            '<link rel="icon" href="data:,">',
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            element("main", body),
            "</body>",
            "</html>",
            "",
        ]
    )


def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
