"""Registry: one line per source. A source is imported when a job reads it, and not before."""

import os
from dataclasses import dataclass

from penstock.base.errors import InputError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}


@dataclass(frozen=True)
class Entry:
    """A source: the module with its `SOURCE`, and the endings of files that are read with it.

    One with endings can be named in a job, `format: csv`. A note beside tables is no document: a folder stands for its
    documents if it has no tables, or for all `documents` if the job names the format. So it does for files that are
    read `alone`, which other programs may have beside tables. `beside` is the ending of files that belong to files of
    the same name and are read with them.
    """

    module: str
    endings: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    alone: bool = False
    beside: str = ""


SOURCES: dict[str, Entry] = {
    "parquet": Entry("penstock.prepare.sources.parquet", (".parquet", ".pq")),
    "csv": Entry("penstock.prepare.sources.csv", (".csv", ".tsv")),
    "jsonl": Entry("penstock.prepare.sources.jsonl", (".jsonl", ".ndjson", ".json")),
    "arrow": Entry("penstock.prepare.sources.arrow", (".arrow", ".feather")),
    "text": Entry("penstock.prepare.sources.text", (".txt",), documents=(".txt", ".text", ".md")),
    "megatron": Entry("penstock.prepare.sources.datasets.megatron", (".idx",), alone=True, beside=".bin"),
    "mds": Entry("penstock.prepare.sources.datasets.mds", (".mds",), alone=True),
    "npz": Entry("penstock.prepare.sources.npz"),
    "function": Entry("penstock.prepare.sources.function"),
    "items": Entry("penstock.prepare.sources.items"),
    "hub": Entry("penstock.prepare.sources.hub"),
    "dataset": Entry("penstock.prepare.sources.datasets.prepared"),
}


def named_formats() -> tuple[str, ...]:
    """Formats that a job may name."""
    return tuple(name for name, entry in SOURCES.items() if entry.endings)


def known_endings() -> tuple[str, ...]:
    return tuple(ending for entry in SOURCES.values() for ending in entry.endings)


def folder_endings(declared: str) -> tuple[tuple[str, ...], ...]:
    """Groups of endings: a folder stands for the files of the first group of which it has any."""
    entries = [SOURCES[name] for name in named_formats()]
    tables = tuple(ending for entry in entries if not (entry.documents or entry.alone) for ending in entry.endings)
    alone = tuple(ending for entry in entries if entry.alone for ending in entry.endings)
    if declared == "auto":
        return tables, alone, tuple(ending for entry in entries if entry.documents for ending in entry.endings)
    named = SOURCES[declared]
    return (named.endings if named.alone else named.documents or tables,)


def format_of(location: str, declared: str) -> str:
    """The declared format, or the one its name tells."""
    if declared != "auto":
        return declared
    name = location.lower()
    for ending in COMPRESSIONS:
        name = name.removesuffix(ending)
    for format_name, entry in SOURCES.items():
        if name.endswith(entry.endings):
            return format_name
    raise InputError(
        "cannot tell the format from the file name",
        where=location,
        next_step=f"name it in the job: input: {{path: ..., format: {' | '.join(named_formats())}}} "
        f"(known endings: {' '.join(known_endings())}, each also with {' '.join(COMPRESSIONS)})",
    )


def read_with(location: str) -> str:
    """The file that is read together with this one, if its format has such: of `a.idx`, `a.bin`."""
    stem, ending = os.path.splitext(location)
    beside = next((each.beside for each in SOURCES.values() if each.beside and ending.lower() in each.endings), "")
    return f"{stem}{beside}" if beside else ""


def compression_of(location: str) -> str | None:
    return next((kind for ending, kind in COMPRESSIONS.items() if location.lower().endswith(ending)), None)
