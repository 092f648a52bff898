"""Engines are large, and other tests of the same process plan jobs within little memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.prepare.budget.means import give_back_memory
from penstock.prepare.tokenizers import open_once


@pytest.fixture(autouse=True, scope="module")
def _leave_little_behind() -> Iterator[None]:
    yield
    open_once.cache_clear()
    give_back_memory()
