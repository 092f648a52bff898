"""Source: the worker's half of a Reader, which gives the stages of a fold the rows of one task. Used by work.py.

What it cannot read becomes the error that stops the job, or a line in rejected/.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from penstock.base.errors import InputError, printable
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes import Lost, Report, Task, TaskInput, Work
from penstock.prepare.passes.folds.chain import Chain, Count
from penstock.prepare.rows.rows import Rows, SetAside, rejected_line
from penstock.prepare.samples.fitting import (
    DOES_NOT_FIT,
    LENGTHS_DIFFER,
    MISSING_KEY,
    NOT_A_BATCH,
    UNEXPECTED_KEY,
    WRONG_SHAPE,
    WRONG_TYPE,
)
from penstock.prepare.sources import UnreadablePart
from penstock.prepare.sources.reading.bad_records import TOO_LARGE_RECORD
from penstock.prepare.sources.reading.bad_text import REASON as NOT_UTF8
from penstock.prepare.sources.slices import Segment
from penstock.prepare.stages.stage import Stage
from penstock.shards.manifest import Step

_ADVICE = {  # what to do about a record or sample, by reason
    NOT_UTF8: "name the encoding of the file beside the input's path: `encoding: cp1252`; if only this row is damaged, "
    "fix it or set `bad_utf8: repair`",
    TOO_LARGE_RECORD: "allow more `memory:`",
    MISSING_KEY: "yield it in every sample, or give a default: `missing: {column: -1}`, or null",
    UNEXPECTED_KEY: "add it to `schema:`, or leave it out of the sample",
    WRONG_SHAPE: "yield one shape, or declare the right one under `schema:` (float32[*] takes any length)",
    WRONG_TYPE: "yield what the type takes, or declare another under `schema:`; if the value may be None, add "
    "`missing: {column: null}` to the input, with the name of the column",
    NOT_A_BATCH: "yield a dict for one sample, and penstock.Batch for columns of many",
    LENGTHS_DIFFER: "yield arrays and lists of one length, the number of samples of the batch",
    DOES_NOT_FIT: "declare a type under `schema:` that holds it",
}


@dataclass
class Attempt:
    """A task that is being done."""

    work: Work
    task: Task
    settings: Settings
    report: Report
    chain: Chain
    unreadable: list[UnreadablePart]  # parts of files that were found to be, and are passed over
    lost: list[UnreadablePart] = field(default_factory=list)  # parts, likewise, that were counted
    read: Count = field(default_factory=Count)
    rows: Count = field(default_factory=Count)  # that a user's function was given


class Source(Protocol):
    """Base class: a source that reads no files."""

    @property
    def reducers(self) -> dict[int, Stage]:  # stages that run inside the reader, whose fits it feeds itself
        return {}

    def ready(self, root: str) -> Self:  # noqa: ARG002
        """Get ready, in the driver, for the tasks that will read what earlier passes have left."""
        return self

    def may_lose(self, title: str) -> bool:  # noqa: ARG002
        """Whether the job continues without a part or file that has this title."""
        return False

    def given_up(self, piece: TaskInput, lost: Lost) -> list[UnreadablePart]:  # noqa: ARG002
        return []

    def files(self, piece: TaskInput) -> list[tuple[int, str]]:  # noqa: ARG002
        """(source, path), in the order they are read."""
        return []

    def rejected_name(self, number: int) -> str: ...
    def rows(self, attempt: Attempt) -> Iterator[Rows]: ...  # counted
    def steps(self, attempt: Attempt) -> dict[str, Step]: ...  # of what was read


def refusal(part: UnreadablePart) -> InputError:
    """The error of a part that stops the job."""
    rows = f" of {part.rows:,} rows" if part.rows >= 0 else ""
    return InputError(
        f"{part.title}{rows}: {part.reason}",
        where=f"{part.segment.location}, row {part.ordinal:,}" if part.rows >= 0 else part.segment.location,
        next_step="replace the file, or set `on_bad_input: set_aside` to continue without that part",
    )


def refuse_bad_records(rows: Rows, segment: Segment) -> None:
    for aside in (*rows.set_aside, *(rows.made_of[1] if rows.made_of else ())):
        raise _bad_record(aside, segment)


def unreadable_rows(part: UnreadablePart) -> SetAside:
    rows = part.rows if part.rows >= 0 else None
    facts: dict[str, Any] = {"row_group": part.part} if part.title.startswith("unreadable") else {}
    facts |= {"rows": rows, **({"traceback": part.trace} if part.trace else {})}
    line = rejected_line(part.segment.source, part.name, part.ordinal, part.title, detail=part.reason, **facts)
    return SetAside(part.title, max(part.rows, 0), (line,))


def _bad_record(aside: SetAside, segment: Segment) -> InputError:
    line = aside.kept[0]
    if "sample" in line:
        item = "" if line["file"] == segment.path else f"{line['file']}, "
        place = f"{item}sample {line['sample']:,}, key {line['key']!r}"
    else:
        shown = line.get("raw") or (json.dumps(line["row"], ensure_ascii=False) if "row" in line else "")
        place = f"line {line['line']:,}" if "line" in line else f"row {line['position']:,}"
        place += f": {printable(shown[:200])}" if shown else ""
    advice = aside.advice or _ADVICE.get(aside.reason, "fix the record")
    return InputError(
        f"{aside.reason}: {line.get('detail', '')}".rstrip(": "),
        where=f"{segment.location}, {place}",
        next_step=f"{advice}, or set `on_bad_input: set_aside` to keep it in rejected/ and continue",
    )
