"""Costs come back as they were measured, for the same job on the same machine alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.base.stores import open_store
from penstock.prepare.budget.costs import Growth, Measured, Measurement
from penstock.prepare.budget.kept_costs import COSTS, KeptCosts, decode_costs, encode_costs, recall_costs

NUMBERS = some.floats(0, 1e12)
SIZES = some.integers(0, 2**50)
COSTS_OF = some.builds(Measurement, SIZES, SIZES, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
GROWTHS = some.builds(Growth, SIZES, SIZES, NUMBERS, some.tuples(NUMBERS, NUMBERS), NUMBERS, NUMBERS, NUMBERS, NUMBERS)
MEASURED = some.builds(
    Measured,
    some.dictionaries(some.text(max_size=5), COSTS_OF, max_size=3),
    NUMBERS,
    some.none() | GROWTHS,
    NUMBERS,
    some.booleans(),
    some.text(max_size=5),
)


@given(MEASURED)
def test_costs_come_back_as_they_were_measured(measured):
    assert decode_costs(encode_costs(measured)) == replace(measured, remembered=True)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b'{"costs": {}}', b'{"costs": {"a": 1}, "growth": null}'])
def test_what_is_damaged_is_measured_again(data):
    assert decode_costs(data) is None


@given(some.data())
def test_a_flipped_byte_is_measured_again(draw):
    data = bytearray(encode_costs(NEW))
    data[draw.draw(some.integers(0, len(data) - 1))] ^= 1 << draw.draw(some.integers(0, 7))
    assert decode_costs(bytes(data)) in (None, KNOWN)  # KNOWN: white space was hit


def kept(store, measured: Measured) -> KeptCosts:
    costs = KeptCosts(store, measured)
    costs.begin()
    return costs


NEW = Measured({"slices": Measurement(1, 2, 3.0, 4.0, 5.0)}, name="a job here")
KNOWN = replace(NEW, remembered=True)


def test_new_costs_are_there_for_the_run_that_follows_a_kill(tmp_path):
    kept(open_store(tmp_path), NEW)
    assert recall_costs(str(tmp_path), "a job here") == KNOWN
    assert recall_costs(str(tmp_path), "another") is None


def test_remembered_costs_are_trusted_again_only_after_a_run_that_ended(tmp_path):
    store = open_store(tmp_path)
    kept(store, NEW)
    costs = kept(store, KNOWN)
    assert recall_costs(str(tmp_path), "a job here") is None  # if it is killed now
    costs.end()
    assert recall_costs(str(tmp_path), "a job here") == KNOWN


@pytest.mark.parametrize("measured", [NEW, KNOWN])
def test_costs_of_a_run_that_tried_a_task_again_are_forgotten(tmp_path, measured):
    store = open_store(tmp_path)
    kept(store, NEW)
    costs = kept(store, measured)
    costs.doubt()
    costs.doubt()
    costs.end()
    assert recall_costs(str(tmp_path), "a job here") is None


def test_what_was_not_measured_is_not_kept(tmp_path):
    costs = kept(open_store(tmp_path), Measured({}, assumed=True))
    costs.doubt()
    costs.end()
    assert not (tmp_path / COSTS).exists()


def test_the_file_is_for_people_too(tmp_path):
    kept(open_store(tmp_path), NEW)
    assert json.loads((tmp_path / COSTS).read_text())["costs"]["slices"]["worker_bytes"] == 1
