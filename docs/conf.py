"""Configuration of the docs site, which Sphinx builds from the repository's folder: `make docs`.

Pages are plain Markdown. docs/index.md lists them by section, and the navigation is made from that list. A page that
no list names, a broken link and an unknown reference are errors.
"""

import re
from pathlib import Path
from typing import Any

project = "penstock"
author = "the penstock authors"
copyright = "the penstock authors, Apache-2.0"
extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/*.md",
    "docs/*.md",
    "docs/**/*.md",
    "examples/*/README.md",
]
exclude_patterns = [".*", "build", "demo", "dist", "src", "tests", "**/prepared"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
html_theme = "furo"
html_title = "penstock"
html_static_path: list[str] = []
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"source_view_link": "", "source_edit_link": ""}
templates_path: list[str] = []
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_LINK = re.compile(r"^- \[[^\]]+\]\(([^)#]+)\.md\)", re.MULTILINE)


def navigation(index: str) -> str:
    """Hidden tables of contents, one per section of the index page."""
    _, *parts = _SECTION.split(index)
    sections = zip(parts[::2], parts[1::2], strict=True)
    return "\n".join(_contents(caption, _LINK.findall(text)) for caption, text in sections)


def _contents(caption: str, names: list[str]) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *names, "```", ""])


def add_navigation(_: Any, name: str, source: list[str]) -> None:
    """Append to the two pages that list others what Sphinx needs to know it."""
    if name == root_doc:
        source[0] += navigation(source[0])
    if name == "docs/decisions/index":
        source[0] += "\n```{toctree}\n:glob:\n:maxdepth: 1\n\n0*\n```\n"


def add_front_door(app: Any, error: Exception | None) -> None:
    """Let build/site/index.html lead to the index page, which lies in docs/ as in the repository."""
    if error is None:
        page = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html"><title>penstock</title>\n'
        (Path(app.outdir) / "index.html").write_text(page, encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("source-read", add_navigation)
    app.connect("build-finished", add_front_door)
