"""Markup: elements of HTML and SVG. Text is escaped here and nowhere else, so nothing from data can become markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

from penstock.base.errors import printable

MOST_SHOWN = 240  # characters of one text on the page
_VOID = ("meta", "link", "br")
_SELF_CLOSED = ("rect", "line", "circle", "path")  # elements of SVG without content


class Html(str):
    """Text that is markup already. Only `element` and `text` make it, and `page` puts it together."""

    __slots__ = ()


Child = str | Iterable["Child"] | None


def text(value: str, most: int | None = MOST_SHOWN) -> Html:
    """The value as text of a page: escape codes and marks of direction are written out, long values cut by a note."""
    if most is not None and len(value) > most:
        value = f"{value[:most]}… ({len(value):,} characters)"
    return Html(html.escape(printable(value)))


def element(name: str, *children: Child, **attributes: str | float | bool | None) -> Html:
    """`element("p", "a < b", class_="note")`. An attribute that is None or False is left out."""
    inside = "".join(_parts(children))
    head = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{head}>")
    return Html(f"<{head}/>") if name in _SELF_CLOSED and not inside else Html(f"<{head}>{inside}</{name}>")


def _parts(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Html):
            yield child
        elif isinstance(child, str):
            yield text(child)
        elif child is not None:
            yield from _parts(child)


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    name = "viewBox" if name == "viewbox" else "preserveAspectRatio" if name == "preserveaspectratio" else name
    written = (
        f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, Html) else text(str(value), None)
    )
    return f' {name}=""' if value is True else f' {name}="{written}"'


def preformatted(value: str) -> Html:
    """Several lines as they are, each escaped."""
    lines = [text(line, 1000) for line in value.splitlines()]
    return Html(f'<pre tabindex="0"><code>{chr(10).join(lines)}</code></pre>')


def percent(share: float) -> str:
    """A share as a length of SVG."""
    return f"{round(100 * share, 3):g}%"
