"""The blocks of docs/ that need a library, such as torch or jax, run with it among the others of their page."""

from __future__ import annotations

import pytest

from tests.docs.page import blocks, pages
from tests.docs.test_pages import everything, named, run_page

LIBRARIES = frozenset({"datasets", "jax", "megatron", "torch", "torchdata", "transformers"})
PAGES = [page for page in pages() if any(block.needs for block in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_blocks_that_need_a_library_run_with_it(page, tmp_path):
    run_page(page, tmp_path, *LIBRARIES)


def test_every_library_that_a_block_needs_is_one_of_these():
    assert frozenset().union(*(block.needs for block in everything())) == LIBRARIES
