"""Words: numbers of a report -> short text with a unit."""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.base.sizes import counted, format_count, format_seconds, format_size

_MOMENT = re.compile(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)Z$")
UNKNOWN = "not known"
_DURATIONS = (("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def short_count(count: float) -> str:
    """`1.25 M`: three digits at most, for axes and rates."""
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= 0.9995 * factor:
            return f"{_three(count / factor)} {unit}"
    return _three(count)


def _three(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 99.5 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """`3.5 h`: two digits at least, in the largest unit that fits."""
    for unit, factor in _DURATIONS:
        if seconds >= 0.9995 * factor:
            return f"{_three(seconds / factor)} {unit}"
    return "0 s"


def duration_like(end: float) -> Callable[[float], str]:
    """Words for times up to `end`, all in one unit."""
    unit, factor = next((each for each in _DURATIONS if end >= 2 * each[1]), _DURATIONS[-1])
    return lambda seconds: f"{_three(seconds / factor)} {unit}" if seconds else "0"


def moment(written: str) -> str:
    """`2026-11-16 19:22:51 UTC`, from the form that run.json has; any other text as it is."""
    return _MOMENT.sub(r"\1 \2 UTC", written)


def capitalized(words: str) -> str:
    return words[:1].upper() + words[1:]


def measured(value: float, unit: str, per_second: int = 1) -> str:
    """A value of a distribution: bytes, seconds, or a count."""
    if unit == "byte":
        return format_size(value)
    if unit == "second":
        return duration(value / per_second)
    return short_count(value)


def size_or_unknown(value: float | None) -> str:
    return UNKNOWN if value is None else format_size(value)


def count_or_unknown(value: float | None) -> str:
    return UNKNOWN if value is None else format_count(value)


def seconds_or_unknown(value: float | None) -> str:
    return UNKNOWN if value is None else format_seconds(value)


def rate(amount: float | None, seconds: float | None, unit: str) -> str:
    """`93 k rows/s`, or nothing where it cannot be told."""
    return f"{short_count(amount / seconds)} {unit}/s" if amount and seconds else ""


def size_rate(amount: float | None, seconds: float | None) -> str:
    return f"{format_size(amount / seconds)}/s" if amount and seconds else ""


def listed(names: list[str], noun: str, most: int = 3) -> str:
    """`a, b, c and 4 more files`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {counted(more, f'more {noun}')}" if more > 0 else "")
