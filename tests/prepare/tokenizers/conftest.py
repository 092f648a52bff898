"""Engines are large, and other tests of the same process plan jobs within little memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.prepare.budget.heap import give_back_memory
from penstock.prepare.stages.tokenize import forget_tokenizer


@pytest.fixture(autouse=True, scope="module")
def _leave_little_behind() -> Iterator[None]:
    yield
    forget_tokenizer()
    give_back_memory()
