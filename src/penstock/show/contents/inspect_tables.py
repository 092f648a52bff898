"""Inspect tables: what an output folder or .arrayrecord files hold -> tables on a terminal."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from penstock.base.sizes import format_seconds, format_size
from penstock.show.contents.columns import column_tables
from penstock.show.contents.summary import bin_tables, key_tables, packed_tables
from penstock.show.contents.unfinished import unfinished_lines
from penstock.show.contents.values import record_tables
from penstock.show.running.pass_table import memory_words
from penstock.show.running.result import account_tables, found_lines
from penstock.show.tables import by_workers, filled, input_words, make_list, make_table, split_table


def inspect_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    if not facts["finished"]:
        yield from unfinished_lines(facts)
    elif "paths" in facts:
        from penstock.show.contents.arrayrecord_files import file_tables

        yield from file_tables(facts)
    else:
        yield from _dataset_tables(facts)


def _dataset_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    yield make_list(_lines(facts))
    yield ""
    yield split_table(facts["splits"])
    yield ""
    if facts["group"]:
        yield from key_tables(facts["group"])
        yield ""
    if facts["bins"]:
        yield from bin_tables(facts["bins"])
        yield ""
    if facts["text"]:
        yield from packed_tables(facts["text"])
        yield ""
    yield from column_tables(facts["schema"])
    yield ""
    yield from account_tables(facts)
    rows = [(file["file"], format_size(file["bytes"])) for file in facts["artifacts"] + facts["rejected"]]
    if rows:
        yield ""
        yield from filled(make_table("other files", ">bytes"), rows, "file")
    yield from record_tables(facts)


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    source, run = facts["input"], facts["run"]
    yield "dataset", facts["dataset"]
    yield "output", f"{facts['output']}, {format_size(facts['bytes'])}"
    yield "made from", input_words(source)
    if run:
        yield "made", f"{run['started']}, in {format_seconds(run['seconds'])}, {by_workers(run['workers'])}"
        yield "memory", memory_words(run)
    yield from found_lines(facts)
    yield "stages", ", ".join(next(iter(stage)) for stage in facts["config"]["stages"]) or "none"
