"""Tables: the one look that all of penstock's tables have."""

from collections.abc import Iterable, Iterator
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from penstock.base.errors import printable_lines
from penstock.base.sizes import counted, format_count, format_size
from penstock.prepare.survey.listing import EXPORT, HIDDEN, NO_ENDING, OWN, PENSTOCK

_MOST_ROWS = 40
_MOST_UNREAD = 6


def by_workers(workers: int) -> str:
    return counted(workers, "worker") if workers else "inside the driver"


def input_words(source: dict[str, Any]) -> str:
    """`6 files, 10.2 MB`, or `3,000 items`, or both."""
    files = [f"{counted(source['files'], 'file')}, {format_size(source['bytes'])}"]
    items = [counted(source["items"], "item")] if source["items"] else []
    return ", ".join((files if source["files"] or not items else []) + items)


def unread_words(unread: list[dict[str, Any]]) -> str:
    """`100 .txt files (notes/a.txt), 1 FIFO (pipe)`: what the input has that is not read, with the first of each."""
    words = [f"{format_count(each['count'])} {_unread_noun(each)} ({each['first']})" for each in unread[:_MOST_UNREAD]]
    more = len(unread) - _MOST_UNREAD
    return ", ".join([*words, *([f"and {counted(more, 'other kind')}; --json lists all"] if more > 0 else [])])


def not_seen_words(columns: list[str]) -> str:
    """Columns of `types:` that may be misspelled."""
    return f"{', '.join(columns)}: declared in `types:`, and in none of the first rows"


def _unread_noun(unread: dict[str, Any]) -> str:
    what, plural = unread["what"], "" if unread["count"] == 1 else "s"
    if what.startswith("."):
        return f"{what} file{plural}"
    if what == NO_ENDING:
        return f"file{plural} without an ending"
    if what == HIDDEN:
        return f"hidden file{plural} or folder{plural}"
    noun, space, rest = what.partition(" ") if what in (OWN, PENSTOCK, EXPORT) else (what, "", "")
    return f"{noun}{plural}{space}{rest}"


class _Table(Table):
    """A table whose cells have the width that they are shown with: escape codes of data are written out first."""

    def add_row(self, *cells: RenderableType | None, **options: Any) -> None:
        super().add_row(*(printable_lines(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def make_table(*columns: str) -> Table:
    """A table with these headers; one that starts with `>` is aligned to the right, as numbers are."""
    table = _Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        number = column.startswith(">")
        table.add_column(
            printable_lines(column.lstrip(">")), justify="right" if number else "left", no_wrap=number, overflow="fold"
        )
    return table


def filled(table: Table, rows: Iterable[tuple[str, ...]], noun: str) -> Iterator[RenderableType]:
    """The table with the first rows, and how many more there are: a screen is short, a dataset may be wide."""
    rows = list(rows)
    for row in rows[:_MOST_ROWS]:
        table.add_row(*row)
    yield table
    if len(rows) > _MOST_ROWS:
        yield Text(f"... and {counted(len(rows) - _MOST_ROWS, noun)} more; --json lists all", style="dim")


def make_list(pairs: Iterable[tuple[str, str]]) -> Table:
    """Names on the left, what they are on the right."""
    table = _Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(name, value)
    return table


def split_table(splits: dict[str, dict[str, int]]) -> Table:
    table = make_table("split", ">records", ">bytes", ">shards")
    for name, facts in splits.items():
        row = (format_count(facts["records"]), format_size(facts["bytes"]), format_count(facts["shards"]))
        table.add_row(name, *row)
    return table


def account_table(*accounts: list[dict[str, Any]]) -> Table:
    """`in = out + set aside` of each step, one line per reason, and what it makes of the out."""
    table = make_table("step", "unit", ">in", ">= out", ">+ set aside", "reason")
    for account in accounts:
        for step in account:
            _add_step(table, step)
        table.add_section()
    return table


def _add_step(table: Table, step: dict[str, Any]) -> None:
    reasons = list(step["set_aside"].items()) or [("", 0)]
    head = (step["step"], step["unit"], format_count(step["taken"]), format_count(step["given"]))
    for number, (reason, count) in enumerate(reasons):
        table.add_row(*(head if number == 0 else ("",) * 4), format_count(count), why(step["step"], reason))
    for unit, count in step.get("made", {}).items():
        table.add_row("  makes", unit, "", format_count(count), "", "")


def why(step: str, reason: str) -> str:
    """A reason as it is shown. `filter` keeps rows by a condition, and sets aside those for which it does not hold."""
    return f"not: {reason}" if step == "filter" and reason else reason


def balance_line(account: list[dict[str, Any]]) -> Text:
    if all(step["balances"] for step in account):
        return Text("in = out + set aside, in every step", style="green")
    return Text("in = out + set aside does NOT hold: this is a bug in penstock", style="bold red")
