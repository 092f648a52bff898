"""Proposal: what was seen of the input -> a commented job file that runs on it."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.base.errors import ConfigError, InputError, printable
from penstock.base.sizes import counted
from penstock.prepare.job.config import Config
from penstock.prepare.job.job_file import read_yaml
from penstock.prepare.sources.registry import SOURCES
from penstock.prepare.survey.agreement import agree
from penstock.prepare.survey.checking import check_stages
from penstock.prepare.survey.first_rows import no_rows
from penstock.show.asking.proposing.drafts import Documents, Draft, Events, PlainRows, Samples
from penstock.show.asking.proposing.looking import Looked
from penstock.show.asking.proposing.quoting import quoted
from penstock.show.asking.proposing.roles import roles_of

_MOST_SHOWN = 40  # columns in the comment
_MOST_DATES = 3
_MOST_NAMES = 5
_VALUE = re.compile(r"-?\d+([.,]\d+)?|\d{4}-\d\d-\d\d.*|\d{1,2}[./]\d{1,2}[./]\d{2,4}.*")


@dataclass(frozen=True)
class Proposal:
    """The text of a job file, and the questions in it that only a person can answer."""

    kind: str
    text: str
    questions: tuple[str, ...]


def propose(looked: Looked, output: str) -> Proposal:
    """The first kind of job that fits the columns and that the stages accept."""
    if not looked.columns:
        raise InputError(
            "these files have no columns",
            where=looked.some[0].location,
            next_step="name files that hold rows; a CSV file begins with the names of its columns",
        )
    if not looked.rows and all(pa.types.is_null(each.type) for each in looked.columns):
        raise InputError(
            "these files have column names but no rows, so the types are unknown",
            where=looked.some[0].location,
            next_step="name files that hold rows, or declare the types in a job: "
            "`input: {path: ..., types: {column: float64}}`",
        )
    roles = roles_of(looked.columns)
    reasons: list[str] = []
    for kind in (Samples, Documents, Events):
        draft = kind(looked, roles, tuple(reasons))
        if not draft.fits:
            continue
        try:
            return _checked(draft, output)
        except (ConfigError, InputError) as error:
            reasons.append(f"not proposed as {draft.kind}: {printable(error.what)}")
    return _checked(PlainRows(looked, roles, tuple(reasons)), output)


def _checked(draft: Draft, output: str) -> Proposal:
    """The draft as text. Raises what planning would raise for it."""
    questions = (*_header_questions(draft.looked), *draft.questions())
    text = _text(draft, output, questions)
    config = Config(read_yaml(text), folder=draft.looked.folder)
    stages = config.build_stages()
    agreed = agree(config, stages, (config.input[0].options(),), draft.looked.some)
    check_stages(config, stages, no_rows(agreed.reading(()).wanted), agreed.schema, agreed.columns)
    return Proposal(draft.kind, text, questions)


def _header_questions(looked: Looked) -> Iterator[str]:
    """Whether a CSV file begins with a row: names that are numbers or dates look like one."""
    names = [each.path for each in looked.columns]
    if looked.format == "csv" and any(_VALUE.fullmatch(name) for name in names):
        shown = ", ".join(map(quoted, names[:_MOST_NAMES]))
        yield f"does a file begin with names? {shown} look like values. If it begins with a row, add a line of names"


def _text(draft: Draft, output: str, questions: Sequence[str]) -> str:
    looked = draft.looked
    lines = [
        f"# Proposed by `penstock init` after a look at {_extent(looked)}.",
        "# `penstock plan` shows what it would do, `penstock run` does it.",
        "# `penstock init` without a path writes a file in which every key is explained.",
        "",
        draft.source(),
        *(f"# {line}" for line in _column_lines(looked)),
        *(f"# not read: {each.count:,} {each.what}, for example {quoted(each.first)}" for each in looked.unread[:3]),
        "",
        f"output: {quoted(output)}",
        "",
        *(f"# {line}" for line in (*draft.reasons, *questions)),
        "stages:",
        *(f"  {line}" for line in draft.stages()),
        "",
        "memory: 80% # of the machine, for the whole process tree; or a size such as 2GB",
        "workers: auto",
        *_bad_input_lines(looked),
    ]
    return "\n".join(lines) + "\n"


def _bad_input_lines(looked: Looked) -> Iterator[str]:
    """`on_bad_input`, so that the job runs on what was seen."""
    for each in looked.agreed.bad[:1]:
        reason = f"{quoted(each.path)}: {printable(each.detail)}"
        yield f"# {len(looked.agreed.bad)} of the files looked at cannot be read, for example {reason}"
    for line in (line for each in looked.bad[:1] for line in each.kept[:1]):
        count = sum(each.count for each in looked.bad)
        place = f"{quoted(line['file'])}, line {line['line']:,}" if line.get("line") else quoted(line["file"])
        why = printable(line.get("detail") or line["reason"])
        yield f"# {counted(count, 'row')} of those looked at cannot be read, for example {place}: {why}"
    if looked.agreed.bad or looked.bad:
        yield "on_bad_input: set_aside # keeps them in rejected/, with the reason; fail stops the run"
    else:
        yield "on_bad_input: fail # or set_aside: keep rows that cannot be read in rejected/, with the reason"


def _extent(looked: Looked) -> str:
    some, every = len(looked.some), looked.file_count
    files = f"{some:,} of {every:,} files" if some < every else counted(every, "file")
    return f"{files}, {looked.rows:,} rows of {looked.format}" if looked.rows else f"{files} of {looked.format}"


def _column_lines(looked: Looked) -> Iterator[str]:
    if SOURCES[looked.format].documents:
        return
    yield "Columns in the first rows:" if looked.rows else "Columns:"
    for column in looked.columns[:_MOST_SHOWN]:
        values = f", {column.distinct:,} {'value' if column.distinct == 1 else 'different values'}"
        values = values if column.distinct else ""
        nulls = f", {column.nulls:,} null" if column.nulls else ""
        yield f"  {quoted(column.path)}: {printable(str(column.type))}{values}{nulls}"
    if len(looked.columns) > _MOST_SHOWN:
        yield f"  and {len(looked.columns) - _MOST_SHOWN:,} more"
    for column in [each for each in looked.columns if each.example_date][:_MOST_DATES]:
        date = quoted(column.example_date)
        yield f"{quoted(column.path)} has dates such as {date}. They are text, and text does not sort by time:"
        yield "  make times of them before you order by them (docs/how-to/own-stage.md)"


def free_output(folder: str) -> str:
    """`prepared`, or the first of prepared-2, prepared-3, ... that is not there."""
    number = 1
    while os.path.lexists(os.path.join(folder, name := "prepared" if number == 1 else f"prepared-{number}")):
        number += 1
    return name
