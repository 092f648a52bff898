"""Declared: the columns that `types:` of a source names, held against the columns that its first file has."""

from collections.abc import Iterable

from penstock.base.errors import InputError, did_you_mean
from penstock.prepare.sources import File, FileSurvey


class Misnamed(InputError):
    """A name in `types:` is no column of a file: a mistake of the job where it is one of no other file either."""


def missing_column(name: str, known: Iterable[str], file: File) -> Misnamed:
    """The error for a file whose header has no such column."""
    return Misnamed(
        f"input[{file.source}].types names a column {name!r} that is not there.{did_you_mean(name, list(known))}",
        where=f"{file.location}, line 1: {', '.join(known)}",
        next_step="correct the name in `types:`",
    )


def refuse_misspelled(file: File, survey: FileSurvey) -> None:
    """Refuse names that none of the first rows has, and that look like another one. Others may come in later rows."""
    known = [name for name in survey.schema.names if name not in survey.not_seen]
    for name in survey.not_seen:
        column = name.partition(".")[0]
        if column != name and column in known:
            raise Misnamed(
                f"input[{file.source}].types: {name!r} is a field of the column {column!r}, and `types:` is about "
                "whole columns",
                where=file.location,
                next_step=f"take the field with `select: [{name}]`, then give it a type with `cast:`",
            )
        if guess := did_you_mean(name, known):
            raise Misnamed(
                f"input[{file.source}].types: none of the first rows has a field {name!r}.{guess}",
                where=f"{file.location}, whose first rows have: {', '.join(known)}",
                next_step="correct the name in `types:`; for a field that comes later, put a row that has it first",
            )
