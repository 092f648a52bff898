"""Charts: numbers -> SVG. Lengths are shares of the width, so that text keeps its size on any screen.

Each mark carries its number (`data-value`) and a title, for people who point at it and for tests that read it back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.show.report.drawing.markup import Html, element, percent

_HEIGHT = 220  # of a curve's plot, in pixels
_TOP, _BOTTOM = 26, 24
_BARS_HEIGHT = 150
_NARROW = 0.2  # share of the width: a narrower band has no room for its name
Words = Callable[[float], str]


# Curves.


@dataclass(frozen=True)
class Band:
    """A stretch of the time axis with a name."""

    start: float
    end: float
    name: str


@dataclass(frozen=True)
class Limit:
    """A line that the curve should stay below."""

    value: float
    name: str


def curve(
    title: str, points: Sequence[tuple[float, float]], limit: Limit | None, bands: Sequence[Band], x: Words, y: Words
) -> Html:
    """A filled curve over time with its peak marked, the limit as a dashed line, bands behind it."""
    end = max(points[-1][0], 1e-9)
    peak = max(points, key=lambda point: point[1])
    top = _top(peak[1], limit)
    height = _TOP + _HEIGHT + _BOTTOM

    def place(value: float) -> float:
        return _TOP + _HEIGHT * (1 - value / top)

    parts = [element("title", title)]
    parts += [part for number, band in enumerate(bands) for part in _band(number, band, end)]
    ticks = [tick for tick in ticks_to(top) if limit is None or abs(tick - limit.value) > top / 12]
    for tick in ticks:
        level = round(place(tick), 1)
        parts.append(element("line", x1="0", x2="100%", y1=level, y2=level, class_="axis" if tick == 0 else "grid"))
    parts.append(_path(points, end, top))
    parts += [element("text", y(tick), x="0", y=round(place(tick) - 4, 1), class_="halo") for tick in ticks if tick]
    if limit and limit.value <= top:
        level = round(place(limit.value), 1)
        parts.append(element("line", x1="0", x2="100%", y1=level, y2=level, class_="limit", data_value=limit.value))
        words = f"{limit.name} {y(limit.value)}"
        parts.append(element("text", words, x="100%", y=level - 5, text_anchor="end", class_="budget halo"))
    parts += _peak(peak, end, place(peak[1]), y)
    parts.append(element("text", x(0), x="0", y=str(height - 6)))
    parts.append(element("text", x(end / 2), x="50%", y=str(height - 6), text_anchor="middle"))
    parts.append(element("text", x(end), x="100%", y=str(height - 6), text_anchor="end"))
    return element("svg", parts, width="100%", height=str(height), role="img", aria_label=title)


def _top(peak: float, limit: Limit | None) -> float:
    """The end of the scale: the limit, unless the curve would lie flat on the ground below it."""
    if limit and peak >= limit.value / 4:
        return max(peak, limit.value) * 1.06
    return max(peak * 1.3, 1e-9)


def _band(number: int, band: Band, end: float) -> list[Html]:
    start, width = band.start / end, (band.end - band.start) / end
    edge = {"x": percent(start), "y": "0", "height": str(_TOP + _HEIGHT)}
    shade = (
        element("rect", element("title", band.name), width=percent(width), class_="band", **edge)
        if number % 2
        else None
    )
    line = element("line", x1=percent(start), x2=percent(start), y1="0", y2=str(_TOP + _HEIGHT), class_="grid")
    name = None
    if width >= _NARROW:
        middle = percent(start + width / 2)
        name = element("text", band.name, x=middle, y="12", text_anchor="middle", class_="strong")
    return [part for part in (shade, line if number else None, name) if part]


def _path(points: Sequence[tuple[float, float]], end: float, top: float) -> Html:
    """The points in a box of 1000 x 1000 that is stretched over the plot."""
    placed = [f"{1000 * x / end:.1f},{1000 * (1 - y / top):.1f}" for x, y in points]
    line = "M" + "L".join(placed)
    first, last = placed[0].partition(",")[0], placed[-1].partition(",")[0]
    area = element("path", d=f"{line}L{last},1000L{first},1000Z", class_="area")
    box = {"viewbox": "0 0 1000 1000", "preserveaspectratio": "none", "aria_hidden": "true"}
    return element(
        "svg",
        area,
        element("path", d=line, class_="curve", data_points=str(len(points))),
        **box,
        x="0",
        y=str(_TOP),
        width="100%",
        height=str(_HEIGHT),
    )


def _peak(peak: tuple[float, float], end: float, level: float, y: Words) -> list[Html]:
    share = peak[0] / end
    anchor, step = ("end", -9) if share > 0.5 else ("start", 9)
    dot = element("circle", cx=percent(share), cy=round(level, 1), r="4", class_="dot", data_value=peak[1])
    words = f"peak {y(peak[1])}"
    place = {"x": percent(share), "y": f"{level - 8:.1f}", "dx": str(step)}
    return [dot, element("text", words, text_anchor=anchor, class_="strong halo", **place)]


def ticks_to(top: float, most: int = 4) -> list[float]:
    """Round numbers from 0 up to `top`: steps of 1, 2 or 5 times a power of ten."""
    if top < 1e-300:  # below, a quarter of it may be 0
        return [0.0]
    rough = top / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [step * count for count in range(math.floor(top / step + 1e-9) + 1)]


# Bars that lie.


@dataclass(frozen=True)
class Bar:
    """A name, parts of a bar that stand behind each other, and the words beside it."""

    name: str
    parts: Sequence[float]
    words: str
    small: str = ""
    below: str = ""


def bars(title: str, each: Sequence[Bar], most: float | None = None) -> Html:
    """One bar under the other, on one scale that begins at 0. The second part of a bar has the second colour."""
    scale = most or max((sum(bar.parts) for bar in each), default=0) or 1
    return element("div", [_bar(bar, scale) for bar in each], class_="bars", role="list", aria_label=title)


def _bar(bar: Bar, scale: float) -> Html:
    drawn, start = [element("title", f"{bar.name}: {bar.words}")], 0.0
    drawn.append(element("rect", width="100%", height="100%", rx="3", class_="track"))
    for number, part in enumerate(bar.parts):
        if part > 0:
            width = percent(max(part / scale, 0.002))  # a part that is there is seen
            place = {"x": percent(start), "width": width, "height": "100%"}
            drawn.append(element("rect", **place, class_=("one", "two")[number], data_value=part))
        start += part / scale
    small = element("small", bar.below) if bar.below else None
    name = element("div", element("bdi", bar.name), small, class_="name", title=bar.name[:200])
    words = element("div", bar.words, element("small", bar.small) if bar.small else None, class_="value")
    svg = element("svg", drawn, width="100%", height="14", role="img")
    return element("div", name, svg, words, class_="bar", role="listitem")


def meter(title: str, value: float, whole: float) -> Html:
    """A bar that shows the used share of a whole."""
    share = min(1.0, value / whole) if whole else 0.0
    fill = element("rect", width=percent(share), height="100%", rx="3", class_="one", data_value=value)
    track = element("rect", width="100%", height="100%", rx="3", class_="track")
    return element("svg", element("title", title), track, fill, width="100%", height="8", role="img")


def legend(names: Sequence[str]) -> Html:
    """The names of the two colours."""
    marks = [element("rect", width="10", height="10", rx="2", class_=color) for color in ("one", "two")]
    entries = [
        element("span", element("svg", mark, width="10", height="10", aria_hidden="true"), name)
        for mark, name in zip(marks, names, strict=False)
    ]
    return element("div", entries, class_="legend")


# Bars that stand.


@dataclass(frozen=True)
class Column:
    """One bucket of a distribution."""

    name: str
    count: int
    start: str  # on the axis


def columns(title: str, each: Sequence[Column]) -> Html:
    """A distribution: one bar per bucket from left to right, the highest with its count."""
    most = max((column.count for column in each), default=0) or 1
    parts, step = [element("title", title)], 1 / len(each)
    height = _TOP + _BARS_HEIGHT + _BOTTOM
    for number, column in enumerate(each):
        tall = _BARS_HEIGHT * column.count / most
        tall = max(tall, 1.5) if column.count else 0.0
        place = {"x": percent((number + 0.06) * step), "width": percent(0.88 * step)}
        words = element("title", f"{column.name}: {column.count:,}")
        where = {"y": f"{_TOP + _BARS_HEIGHT - tall:.1f}", "height": f"{tall:.1f}"}
        parts.append(element("rect", words, **place, **where, class_="one", data_value=str(column.count)))
    base = str(_TOP + _BARS_HEIGHT)
    parts.append(element("line", x1="0", x2="100%", y1=base, y2=base, class_="axis"))
    parts.append(_highest(each, most))
    for number in _labelled(len(each)):
        anchor = "start" if number == 0 else "middle"
        middle = percent(0 if number == 0 else (number + 0.5) * step)
        parts.append(element("text", each[number].start, x=middle, y=str(height - 6), text_anchor=anchor))
    return element("svg", parts, width="100%", height=str(height), role="img", aria_label=title)


def _highest(each: Sequence[Column], most: int) -> Html:
    number = next(n for n, column in enumerate(each) if column.count == most)
    share = (number + 0.5) / len(each)
    anchor = "start" if share < 0.2 else "end" if share > 0.8 else "middle"
    place = percent(number / len(each) if anchor == "start" else (number + 1) / len(each) if anchor == "end" else share)
    return element("text", f"{most:,}", x=place, y=str(_TOP - 6), text_anchor=anchor, class_="strong")


def _labelled(count: int) -> list[int]:
    """Numbers of the buckets whose start is written below: as many as fit on a phone."""
    step = max(1, math.ceil(count / 5))
    return [number for number in range(0, count, step) if number + step / 2 < count or number == 0]
