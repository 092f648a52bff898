"""Imports without garbage collection: it is as it was afterwards, also after an import that failed."""

from __future__ import annotations

import gc

import pytest

from penstock.base.processes.imports import imported_for_good, uncollected


@pytest.fixture(autouse=True)
def thawed():
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_while_modules_are_imported():
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_collecting_goes_on_after_an_import_that_failed():
    with pytest.raises(ModuleNotFoundError), uncollected():
        import no_such_module  # noqa: F401
    assert gc.isenabled()


def test_who_has_turned_collecting_off_keeps_it_off():
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()


def test_only_a_process_of_our_own_is_frozen():
    before = gc.get_freeze_count()
    with uncollected():
        pass
    assert gc.get_freeze_count() == before
    with imported_for_good():
        pass
    assert gc.get_freeze_count() > before
