"""For the promise tests: a driver that dies where it is told, one for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.promises.killing import Die, dying_drivers


@pytest.fixture(scope="session")
def die() -> Iterator[Die]:
    with dying_drivers() as die:
        yield die
