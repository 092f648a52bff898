"""Writing: a page -> a file that appears whole, where no other file is lost. `penstock.report` is here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rich.text import Text

from penstock.base.errors import OutputError, file_error
from penstock.base.paths import local_path
from penstock.base.sizes import format_size
from penstock.base.stores import is_served
from penstock.base.stores.store import STATE
from penstock.shards.dataset import is_bare
from penstock.show.report.drawing.page import MARK
from penstock.show.report.gathering.facts import open_finished, report_facts
from penstock.show.report.sections import report_page

_SUFFIX = "-report.html"
_HEAD = 1024  # bytes in which a report says that it is one


def report(path: str | os.PathLike[str], output: str | os.PathLike[str] | None = None) -> str:
    """Write the report of a finished dataset as one HTML file, and return the path of that file.

    The page loads nothing and runs no script. An earlier report is replaced, any other file is left alone.

    Args:
        path: Folder that `penstock.run` wrote.
        output: File to write. Default: beside the dataset; that of `data/prepared` is `data/prepared-report.html`.

    Returns:
        Path of the report.
    """
    return str(write_report(path, output)["report"])


def write_report(path: str | os.PathLike[str], output: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Write the report, and return its facts; `report` among them is the file."""
    store, manifest = open_finished(path)
    place = report_place(path, output)
    refuse_place(place, path)
    facts = report_facts(store, manifest)
    write_page(place, report_page(facts))
    return {"report": place, **facts}


def report_lines(facts: dict[str, Any]) -> Iterator[Text]:
    """Words of the command, when the file is there."""
    size = format_size(os.path.getsize(facts["report"]))
    yield Text(f"wrote {facts['report']}, {size}, of dataset {facts['dataset']}", style="green")
    for sentence in facts["run"]["unknown"]:
        yield Text(sentence)


def refuse_bench_place(place: str, path: str) -> None:
    """Refuse, before minutes are spent on measuring, a place where the report cannot be written."""
    refuse_place(os.path.abspath(place), None if is_bare(path) else path)


def write_bench_report(facts: dict[str, Any], output: str) -> None:
    """Write the report of a benchmark, and note the file in the facts."""
    from penstock.show.report.bench_page import bench_page  # here: a dataset's report needs no loader

    place = os.path.abspath(output)
    write_page(place, bench_page(facts))
    facts["report"] = place


def report_place(path: str | os.PathLike[str], output: str | os.PathLike[str] | None) -> str:
    """The file to write. Beside the dataset, or for one in an object store in this folder."""
    if output is not None:
        return os.path.abspath(local_path(output, is_output=True))
    text = os.fspath(path)
    root = os.path.basename(text.rstrip("/")) if is_served(text) else os.path.realpath(text)
    return os.path.abspath(f"{root}{_SUFFIX}")


def refuse_place(place: str, path: str | os.PathLike[str] | None = None) -> None:
    """Refuse, before anything is read, a file that is no report, a folder, and a place inside the dataset."""
    if os.path.isdir(place):
        raise OutputError("this is a folder, but the report is a file", where=place, next_step="-o report.html")
    if path is not None and not is_served(os.fspath(path)):
        _refuse_inside(place, os.path.realpath(path))
    if os.path.lexists(place) and not _is_report(place):
        raise OutputError(
            "a file of that name exists already, and it is not a report of penstock; it is not overwritten",
            where=place,
            next_step="another name: -o other-report.html",
        )
    folder = os.path.dirname(place)
    if not os.path.isdir(folder):
        raise OutputError("there is no such folder", where=folder, next_step=f"mkdir -p {folder}")


def _refuse_inside(place: str, dataset: str) -> None:
    real = os.path.join(os.path.realpath(os.path.dirname(place)), os.path.basename(place))
    inside = os.path.relpath(real, dataset).split(os.sep)
    if inside[0] not in (os.pardir, STATE):
        raise OutputError(
            "this place is inside the dataset, where `penstock verify` reports every foreign file",
            where=place,
            next_step=f"a place beside the dataset: -o {dataset}{_SUFFIX}",
        )


def _is_report(place: str) -> bool:
    if not os.path.isfile(place):
        return False
    try:
        with open(place, "rb") as file:
            return MARK.encode() in file.read(_HEAD)
    except OSError as error:
        raise file_error(error, "read", place) from error


def write_page(place: str, page: str) -> None:
    """Write beside, sync, rename."""
    temporary = f"{place}.{os.urandom(8).hex()}.part"
    try:
        with open(temporary, "xb") as file:
            file.write(page.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    except OSError as error:
        raise file_error(error, "write", place) from error
    finally:
        with suppress(FileNotFoundError):  # it was renamed
            os.unlink(temporary)
