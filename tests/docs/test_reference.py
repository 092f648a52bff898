"""The pages of docs/reference say what the code says."""

import pytest

import penstock
from tests.docs.page import DOCS
from tools import reference

REFERENCE = DOCS / "reference"


def test_the_made_parts_are_up_to_date():
    assert [page.name for page in reference.outdated(REFERENCE)] == [], "run `make reference`"


@pytest.mark.parametrize("part", reference.PARTS)
def test_every_made_part_stands_on_a_page(part):
    assert [page for page in REFERENCE.glob("*.md") if f"<!-- made: {part} -->" in page.read_text()]


def test_a_changed_part_is_noticed(tmp_path):
    changed = (REFERENCE / "errors.md").read_text().replace("a file operation failed", "something else")
    (tmp_path / "errors.md").write_text(changed)
    assert [page.name for page in reference.outdated(tmp_path)] == ["errors.md"]


def test_every_public_name_has_a_section():
    page = (REFERENCE / "python.md").read_text()
    assert [name for name in penstock.__all__ if f"\n## {name}\n" not in page] == []
