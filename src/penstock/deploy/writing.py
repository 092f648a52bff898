"""Writing: the text of a script or an app -> a file. An existing file with other contents is not replaced."""

import os
import re
import sys
from pathlib import Path

from penstock.base.errors import OutputError, file_error


def write_new(path: str, text: str) -> None:
    """Write the file. Names of files need not be UTF-8, so neither need the text."""
    data = text.encode("utf-8", "surrogateescape")
    place = os.path.abspath(path)
    try:
        if os.path.lexists(place) and Path(place).read_bytes() == data:
            return
        with open(place, "xb") as file:
            file.write(data)
    except FileExistsError:
        raise OutputError(
            "this file exists already with other contents, and is not overwritten",
            where=place,
            next_step="choose another name with -o, or remove the file",
        ) from None
    except OSError as error:
        raise file_error(error, "write", place) from error


def own_version() -> str:
    """The version of penstock. `import penstock` here would depend on every layer."""
    return str(sys.modules["penstock"].__version__)


def job_stem(job: str) -> str:
    """The name of the job file without its ending."""
    return os.path.splitext(os.path.basename(job))[0]


def plain_name(job: str, longest: int) -> str:
    """The name of a job file without its ending, with letters, digits and hyphens only: for names in a scheduler."""
    return re.sub(r"[^A-Za-z0-9]+", "-", job_stem(job)).strip("-")[:longest].rstrip("-") or "job"
