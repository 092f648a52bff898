"""Side by side: two documents and their differences -> two columns, or one above the other where there is no room."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from penstock.base.errors import printable, printable_lines
from penstock.show.contents.differences import Part

_LEAST_WIDTH = 80
_SIDES = {"survivor": ("[+", "+]", "green"), "document": ("[-", "-]", "red")}  # read where there are no colours, too


@dataclass(frozen=True)
class SideBySide:
    """`heads` are lines above each of the two documents; there are no regions where the texts are not known."""

    heads: tuple[str, str]
    regions: Sequence[Sequence[Part]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = [self._cell(head, side) for head, side in zip(self.heads, _SIDES, strict=True)]
        if options.max_width < _LEAST_WIDTH:
            yield from cells
            return
        table = Table.grid(padding=(0, 3, 0, 0), expand=True)
        for _ in cells:
            table.add_column(ratio=1, overflow="fold")
        table.add_row(*cells)
        yield table

    def _cell(self, head: str, side: str) -> Text:
        first, last, colour = _SIDES[side]
        cell = Text(printable_lines(head), style="bold")
        for number, region in enumerate(self.regions):
            cell.append("\n...\n" if number else "\n")
            words = [
                Text(f"{first}{printable(part[side])}{last}", colour) if side in part else Text(printable(part["both"]))
                for part in region
                if part.get(side) or "both" in part
            ]
            cell.append_text(Text(" ", style="not bold").join(words))
        return cell
