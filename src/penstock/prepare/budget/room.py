"""Room: how much of the allowed memory one row may take. docs/decisions/0019-rows-too-large-for-memory.md

What is too large is set aside, or ends the job, by limits that follow from `memory:` alone: no number of workers, and
as far as it can be nothing that was measured, decides what a dataset holds.
"""

from dataclasses import dataclass

LARGE_ROW = 16 << 20  # bytes: a row with more text has a batch of its own, and its tokens are not held in memory
_ALONE_SHARE = 8  # an eighth, for a row that a stage works on in one go
_LEAST_LINE_SHARE = 64
_WHATEVER_IS_READ = 400_000_000  # bytes that a job with a large tokenizer holds
_ROW_SHARE = 4  # Arrow holds a Parquet page, its text and what it had to grow from: three times a row
_LINE_COPIES = 12  # six on its way through a worker, perhaps in two at once


@dataclass(frozen=True)
class Room:
    """Bytes that a task may hold for one row that is too large for a batch: beside other tasks, and by itself.

    A task that is alone already has `shared` no smaller than `alone`. No stage may raise MustBeAlone then.
    """

    shared: int
    alone: int


NOBODY_COUNTS = Room(1 << 62, 1 << 62)


class MustBeAlone(BaseException):
    """A row takes more room than a task has beside others: it is done again when no other runs."""


def alone_room(allowed: int) -> int:
    return allowed // _ALONE_SHARE


def most_line_bytes(allowed: int) -> int:
    """Upper bound for the bytes of a line, which has to be found, parsed and cleaned in memory."""
    return max(allowed // _LEAST_LINE_SHARE, (allowed - _WHATEVER_IS_READ) // _LINE_COPIES)


def most_row_bytes(allowed: int) -> int:
    """Upper bound for the text in a row of a binary file. Decoding takes three times that."""
    return allowed // _ROW_SHARE
