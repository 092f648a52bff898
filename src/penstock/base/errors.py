"""Errors: what happened, where, the numbers, and the next step.

PenstockError
├── ConfigError      2   a mistake in the job file, the options or the command line
├── PlanError        3   the job does not fit in its memory or on the disk
├── InputError       4   a file or row of the input cannot be read
├── OutputError      5   the output folder is in use, foreign, or made by another job
├── IntegrityError   6   bytes on disk differ from the bytes that were written
├── TaskError        7   a task died, hung, or its code raised an error
├── FileError        8   a file operation failed: disk full, I/O error, no permission
└── Interrupted    130   stopped by Ctrl-C or SIGTERM; the same command resumes

The number is the exit code of the command line. Code 1 is a bug in penstock.
"""

import errno
from typing import Any


class PenstockError(Exception):
    """Base class of all errors. `what` is one sentence, `where` the file or option, `next_step` what to try.

    `str(error)` and its notes can be printed: control characters in names and values of the data are escaped.
    """

    exit_code = 1

    def __init__(self, what: str, where: str | None = None, next_step: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.next_step = next_step

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.next_step:
            lines.append(f"  try: {self.next_step}")
        return printable_lines("\n".join(lines))

    def add_note(self, note: str) -> None:
        """Add words that a traceback prints below the error.

        Args:
            note: One line, or a stack.
        """
        super().add_note(printable_lines(note))

    def __reduce__(self) -> Any:
        # Errors cross from a worker to the driver; the default reduce would lose `where` and the notes.
        return (_rebuild, (type(self), self.what, self.where, self.next_step, self.notes))

    @property
    def name(self) -> str:
        """Name by which it can be caught: `penstock.InputError`."""
        return next(kind.__name__ for kind in type(self).__mro__ if kind.__module__ == __name__)

    @property
    def notes(self) -> list[str]:
        return list(getattr(self, "__notes__", []))

    def as_dict(self) -> dict[str, Any]:
        """The error as `--json` prints it."""
        return {
            "error": self.name,
            "what": self.what,
            "where": self.where,
            "next_step": self.next_step,
            "notes": self.notes,
            "exit_code": self.exit_code,
        }


def _rebuild(
    kind: type[PenstockError], what: str, where: str | None, next_step: str | None, notes: list[str]
) -> PenstockError:
    error = kind(what, where, next_step)
    for note in notes:
        error.add_note(note)
    return error


class ConfigError(PenstockError):
    """A mistake in the job, its options or the arguments of a call."""

    exit_code = 2


class PlanError(PenstockError):
    """The job, or the batches of a loader, do not fit in memory, or the output does not fit on the disk."""

    exit_code = 3


class InputError(PenstockError):
    """A file or a row of the input cannot be read."""

    exit_code = 4


class OutputError(PenstockError):
    """The output folder is in use, is not a dataset, or was made by another job."""

    exit_code = 5


class IntegrityError(PenstockError):
    """Bytes on disk differ from the bytes that were written."""

    exit_code = 6


class TaskError(PenstockError):
    """A task died or hung, or its code raised an error. A run resumes if it is started again."""

    exit_code = 7


class FileError(PenstockError):
    """A file operation failed: the disk is full, an I/O error, no permission. A run resumes if it is started again."""

    exit_code = 8


class Interrupted(PenstockError):
    """Stopped by Ctrl-C or SIGTERM. A run resumes if it is started again."""

    exit_code = 130


_NEXT_STEP = {
    errno.ENOSPC: "free some space or choose another `output:`, then run the same command: it resumes from here",
    errno.EDQUOT: "your disk quota is used up: free some space, then run the same command",
    errno.EACCES: "check the owner and permissions of that path",
    errno.EROFS: "that file system is read-only: choose another `output:`",
    errno.EEXIST: "a file has that name: choose another place, or move the file away",
    errno.ENOTDIR: "a file stands where a folder must be: choose another place, or move the file away",
    errno.EMFILE: "raise the open-file limit (`ulimit -n 4096`), then run the same command",
}


def file_error(error: OSError, action: str, path: str) -> FileError:
    """Say which path an OSError came from, and what a person can do about it."""
    reason = error.strerror or str(error)
    name = errno.errorcode.get(error.errno or 0, "OSError")
    next_step = _NEXT_STEP.get(error.errno or 0, "check the disk, then run the same command: it resumes from here")
    return FileError(f"cannot {action}: {reason} ({name})", where=path, next_step=next_step)


def printable(text: str) -> str:
    """The text with control characters escaped, so that a terminal does not obey them."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def printable_lines(text: str) -> str:
    """Like `printable`, but lines stay lines."""
    return "\n".join(map(printable, text.split("\n")))


def did_you_mean(wrong: str, known: list[str]) -> str:
    """`. Did you mean 'column'?`, or nothing when no known name is close."""
    import difflib

    close = difflib.get_close_matches(wrong, known, n=1, cutoff=0.6)
    return f" Did you mean '{close[0]}'?" if close else ""
