"""Releases: the same handbooks from two releases of Debian -> a corpus of real near-copies, one source per package.

    older: python3.11-doc, openjdk-17-doc, postgresql-doc-15, linux-doc-6.1     (the release of this machine)
    newer: python3.13-doc, openjdk-21-doc, postgresql-doc-17, linux-doc-6.12    (the one after it)

The newer release is asked of the same archive, with a list of packages of its own: nothing of the machine is changed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.corpus import MADE, Document, downloaded, pages_of, write_set

OLDER = ["python3.11-doc", "openjdk-17-doc", "postgresql-doc-15", "linux-doc-6.1"]
NEWER = ["python3.13-doc", "openjdk-21-doc", "postgresql-doc-17", "linux-doc-6.12"]
RELEASE = "trixie"


def make_releases(folder: Path) -> list[Path]:
    """A folder per package, with its documents in parquet/: the older release first."""
    for name in OLDER:
        _make(folder / name, ["apt-get", "download", name])
    if not all((folder / name / MADE).exists() for name in NEWER):
        asked = _apt_of_newer(folder / "apt")
        for name in NEWER:
            _make(folder / name, [*asked, "download", name])
    return [folder / name for name in OLDER + NEWER]


def _make(folder: Path, command: list[str]) -> None:
    if not (folder / MADE).exists():
        package = downloaded(folder.parent, f"{folder.name}_*.deb", command)
        write_set(folder, sorted(pages_of(package, folder.name), key=_by_id), files=2)


def _by_id(document: Document) -> str:
    return document.id


def _apt_of_newer(folder: Path) -> list[str]:
    """apt-get with lists of its own."""
    for name in ("lists/partial", "cache"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    sources = folder / "sources.list"
    sources.write_text(f"deb {_archive()} {RELEASE} main\n")
    options = {
        "Dir::Etc::SourceList": sources.absolute(),
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": (folder / "lists").absolute(),
        "Dir::Cache": (folder / "cache").absolute(),
    }
    command = ["apt-get", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*command, "update"], check=True, capture_output=True)
    return command


def _archive() -> str:
    """Where this machine has its own release from."""
    asked = ["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages"]
    lines = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split("\n")
    return next(site for site, _, release in (line.partition(" ") for line in lines) if release and "-" not in release)
