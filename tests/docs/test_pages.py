"""Every command and code block of docs/ does what its page says."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.page import DOCS, LANGUAGES, MARKS, Block, blocks, pages

ROOT = DOCS.parent
# Blocks that nothing runs, by page. A page says above each of them why.
NOT_RUN = {
    "coming-from/krill": 1,
    "how-to/modal": 3,
    "how-to/slurm": 2,
    "how-to/training-loops": 1,
    "reference/exports": 2,
    "start/install": 2,
}
# Folders whose pages `make test` and `make proofs` run. `make promises` runs the others.
MARKS_BY_FOLDER = {"start": [], "tutorials": [pytest.mark.proof]}


def run_page(page: Path, folder: Path, *libraries: str) -> None:
    """Run the page's blocks in an empty folder, offline, with the `penstock` of this environment."""
    found = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {"PYTHONPATH": found, "PATH": programs, "COLUMNS": "110", "HF_HUB_OFFLINE": "1", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "tests.docs.running", str(page), *libraries]
    done = subprocess.run(command, cwd=folder, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def everything() -> list[Block]:
    return [block for page in pages() for block in blocks(page)]


def named(page: Path) -> str:
    return str(page.relative_to(DOCS).with_suffix(""))


def cases() -> list[object]:
    run = [page for page in pages() if any(block.language != "text" for block in blocks(page))]
    thorough = [pytest.mark.proof, pytest.mark.thorough]
    return [pytest.param(page, id=named(page), marks=MARKS_BY_FOLDER.get(page.parent.name, thorough)) for page in run]


@pytest.mark.parametrize("page", cases())
def test_the_blocks_of_a_page_run_in_order_in_an_empty_folder(page, tmp_path):
    run_page(page, tmp_path)


def test_every_block_says_its_language():
    assert [block.place for block in everything() if block.language not in LANGUAGES] == []


def test_every_mark_is_one_that_is_understood():
    assert [block.place for block in everything() if block.mark and not MARKS.fullmatch(block.mark)] == []


def test_every_picture_stands_on_a_page():
    text = "".join(page.read_text(encoding="utf-8") for page in pages())
    assert [each.name for each in (DOCS / "pictures").iterdir() if f"pictures/{each.name})" not in text] == []


def test_every_fence_is_part_of_a_block():
    for page in pages():
        fences = sum(line.lstrip().startswith("```") for line in page.read_text(encoding="utf-8").splitlines())
        shown = [block for block in blocks(page) if page.read_text().splitlines()[block.line - 2].startswith("```")]
        assert fences == 2 * len(shown), named(page)


def test_the_blocks_that_nothing_runs_are_these():
    assert Counter(named(block.page) for block in everything() if block.reason_not_run) == NOT_RUN
