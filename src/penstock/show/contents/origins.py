"""Origins: a batch of a dataset -> which documents or samples it holds, by file and position."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.sizes import counted, format_count
from penstock.show.contents.values import short
from penstock.show.loading import Wanted
from penstock.show.tables import make_list, make_table

Facts = dict[str, Any]
_SHOWN_ROWS = 3
_MOST_CHARACTERS = 60  # of a text on a screen


def origin_facts(path: str, split: str | None, view: Mapping[str, Any], inputs: Sequence[str] | None) -> Facts:
    """`view` has the number of the batch, how many of its rows to show, and options of load(); None: as usual."""
    options = {name: value for name, value in view.items() if value is not None}
    batch, rows = options.pop("batch", 0), options.pop("rows", _SHOWN_ROWS)
    wanted = Wanted(path=path, split=split, workers="0", **options)
    with wanted.open() as loader:
        found = [each._asdict() for each in loader.origin(batch, inputs)]
    return {
        "path": path,
        "batch": batch,
        "batch_size": wanted.batch_size,
        "seed": wanted.seed,
        "shown_rows": rows,
        "segments": found,
    }


def origin_tables(facts: Facts) -> Iterator[RenderableType]:
    segments, rows = facts["segments"], facts["shown_rows"]
    size = f"{counted(facts['batch_size'], 'row')}, {counted(len(segments), 'segment')}"
    yield make_list([("path", f"{facts['path']}, seed {facts['seed']}"), ("batch", f"{facts['batch']:,}: {size}")])
    has_lines, has_hashes = (any(each[name] is not None for each in segments) for name in ("line", "hash"))
    more = [*([">line"] if has_lines else []), *(["hash"] if has_hashes else [])]
    table = make_table(">row", ">segment", "file", ">position", *more, ">tokens", "text")
    for each in segments:
        if each["row"] < rows:
            line = ["" if each["line"] is None else format_count(each["line"])] if has_lines else []
            line += [each["hash"] or ""] if has_hashes else []
            numbers = format_count(each["row"]), format_count(each["segment"])
            is_known = each["file"] is not None
            place = (short(each["file"], _MOST_CHARACTERS), format_count(each["position"])) if is_known else ("", "")
            text = short(each["document"] or each["text"] or "", _MOST_CHARACTERS)
            table.add_row(*numbers, *place, *line, format_count(each["tokens"]), text)
    yield table
    for problem, count in Counter(each["problem"] for each in segments if each["problem"]).items():
        yield Text(f"{counted(count, 'segment')} without the document: {problem}", style="dim")
    if facts["batch_size"] > rows:
        yield Text(
            f"... {counted(rows, 'row')} of {facts['batch_size']:,}; --rows N shows more, --json all", style="dim"
        )
