"""Installed: build the sdist and the wheel, install the wheel into a clean environment, and use it there.

pip takes packages from the index or the folders that it is configured with; nothing else is fetched.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parent.parent
_FIRST_STEPS = """
import penstock
manifest = penstock.run("job.yaml", progress=False)
assert manifest.records("train") + manifest.records("test") == 100, manifest
assert penstock.open("prepared")[0].keys() == {"account_id", "amount"}
assert "site-packages" in penstock.__file__, penstock.__file__
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-installed-") as folder:
        place = Path(folder)
        sdist = _build_sdist(_environment(place / "builder"), place)
        wheel = _build_wheel(place / "builder", sdist, place)
        _refuse_incomplete(wheel)
        python = _environment(place / "clean")
        _run([python, "-m", "pip", "install", "--quiet", str(wheel)], place)
        _use(place / "clean" / "bin", place / "work")
    print(f"{sdist.name} and {wheel.name}: built, installed, used")


def _environment(place: Path) -> str:
    venv.create(place, with_pip=True)
    return str(place / "bin" / "python")


def _build_sdist(python: str, place: Path) -> Path:
    project = tomllib.loads((_CHECKOUT / "pyproject.toml").read_text())
    _run([python, "-m", "pip", "install", "--quiet", *project["build-system"]["requires"]], place)
    copied = place / "checkout"
    tracked = _output(["git", "ls-files", "-z"], _CHECKOUT).rstrip("\0").split("\0")
    for name in tracked:  # a build writes beside its sources: into a copy
        if (_CHECKOUT / name).is_file():
            (copied / name).parent.mkdir(parents=True, exist_ok=True)
            (copied / name).write_bytes((_CHECKOUT / name).read_bytes())
    code = f"import setuptools.build_meta as backend; print(backend.build_sdist({str(place)!r}))"
    return place / _output([python, "-c", code], copied).split()[-1]


def _build_wheel(builder: Path, sdist: Path, place: Path) -> Path:
    """The wheel of the sdist, as a package index would have it."""
    with tarfile.open(sdist) as archive:
        archive.extractall(place / "sdist", filter="data")
    (source,) = (place / "sdist").iterdir()
    code = f"import setuptools.build_meta as backend; print(backend.build_wheel({str(place)!r}))"
    return place / _output([str(builder / "bin" / "python"), "-c", code], source).split()[-1]


def _refuse_incomplete(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(path.relative_to(_CHECKOUT / "src")) for path in (_CHECKOUT / "src").rglob("*.py")}
    missing = sorted({*modules, "penstock/py.typed"} - names)
    assert not missing, f"the wheel lacks {', '.join(missing)}"


def _use(commands: Path, work: Path) -> None:
    """The first five minutes, outside of the checkout."""
    work.mkdir()
    rows = "".join(f"{row % 7},{row}\n" for row in range(100))
    (work / "data.csv").write_text(f"account_id,amount\n{rows}")
    version = _output([str(commands / "penstock"), "--version"], work).strip()
    found = re.search(r'__version__ = "(.+)"', (_CHECKOUT / "src" / "penstock" / "__init__.py").read_text())
    assert found
    assert version == f"penstock {found.group(1)}", version
    _run([str(commands / "penstock"), "init", "data.csv"], work)
    _run([str(commands / "penstock"), "plan", "job.yaml"], work)
    (work / "first.py").write_text(_FIRST_STEPS)
    _run([str(commands / "python"), "first.py"], work)
    _run([str(commands / "penstock"), "verify", "prepared"], work)


def _run(command: list[str], folder: Path) -> None:
    _output(command, folder)


def _output(command: list[str], folder: Path) -> str:
    """Output of a command that knows nothing of the checkout."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
