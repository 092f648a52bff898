"""Words: what a Tracker knows -> the phrases that the live screen and the lines of a log share."""

from __future__ import annotations

from penstock.base.errors import printable
from penstock.base.sizes import counted, format_count, format_seconds, format_size
from penstock.show.running.tracker import TrackedPass, Tracker

_MOST_REASONS = 4


def headline(tracker: Tracker) -> str:
    """`12,000 of about 24,000 documents read`: a document counts once, however many passes read it."""
    unit, read = tracker.unit.removesuffix("s"), tracker.input_read
    if tracker.is_of_items and not tracker.is_input_known:
        return f"{counted(read, unit)} read, {counted(tracker.input_items, 'item')} in all"
    if tracker.is_input_known:
        return f"{format_count(read)} of {counted(tracker.input_expected, unit)} read"
    if read >= tracker.input_expected:
        return f"{counted(read, unit)} read, more than estimated"
    return f"{format_count(read)} of about {counted(tracker.input_expected, unit)} read"


def work_words(tracker: Tracker) -> str:
    """`40% of all work, about 12 s left`."""
    return ", ".join(filter(None, [f"{tracker.share:.0%} of all work", left_words(tracker)]))


def speed_words(tracker: Tracker) -> list[str]:
    """Rows and bytes per second of the pass at work; nothing while they are not known."""
    return _rates(tracker.rows_per_second, tracker.bytes_per_second, f" {tracker.unit}")


def memory_words(tracker: Tracker) -> str:
    return f"memory {format_size(tracker.memory)} of {format_size(tracker.allowed)}" if tracker.memory else ""


def left_words(tracker: Tracker) -> str:
    """Always an estimate, and said so."""
    if tracker.is_finishing:
        return "finishing"
    if tracker.lacks_workers:
        return "no worker is in the run"
    left = tracker.seconds_left
    if left is None:
        return ""
    return f"about {max(1, round(left))} s left" if left < 100 else f"about {format_seconds(left)} left"


def set_aside_words(tracker: Tracker) -> str:
    """`set aside: 12 duplicate, 3 empty`; the most frequent reasons first."""
    most = tracker.set_aside.most_common()
    if not most:
        return ""
    words = [f"{count:,} {printable(reason)}" for reason, count in most[:_MOST_REASONS]]
    more = sum(count for _, count in most[_MOST_REASONS:])
    return "set aside: " + ", ".join([*words, *([f"{more:,} for other reasons"] if more else [])])


def pass_words(each: TrackedPass, tracker: Tracker) -> list[str]:
    """Progress of a pass, most important words first: a narrow screen cuts the rest."""
    planned = each.planned
    if each.state == "waiting" and not each.tasks:
        return [counted(planned["tasks"], "task")]
    tasks = f"{each.tasks:,} of {counted(planned['tasks'], 'task')}"
    if each.state == "waiting":
        return [tasks]
    rows = [f"{format_count(each.rows)} {tracker.unit}"] if each.rows else []
    if each.state == "now":
        return [f"{each.share:.0%}", *rows, *_rates(tracker.rows_per_second, tracker.bytes_per_second), tasks]
    if not each.tasks_done:
        return ["kept from an earlier run", *rows, counted(planned["tasks"], "task")]
    seconds = max(each.seconds, 0.001)
    rates = _rates(each.finished / seconds, each.bytes / seconds)
    return [format_seconds(each.seconds), *rows, *rates, counted(planned["tasks"], "task")]


def _rates(rows: float, size: float, unit: str = "") -> list[str]:
    """`12,300/s, 5 MB/s`; nothing for what is not known."""
    three_digits = format_count(float(f"{rows:.3g}"))
    return [*([f"{three_digits}{unit}/s"] if rows else []), *([f"{format_size(size)}/s"] if size else [])]
