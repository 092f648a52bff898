"""Phases: batches whose mixture and size change during a run, and `for` loops that are one epoch each."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import ConfigError
from penstock.loader.compiled import order as compiled_order
from penstock.loader.consumers.ahead import Ahead
from penstock.loader.order.order import Order, Stream
from penstock.loader.order.phases import Phase, Phases
from tests.loader.making import Datasets, hash_of

PHASES = [
    {"from": 0, "weights": [1, 0]},
    {"from": 3, "weights": [0.7, 0.3], "batch_size": 12},
    {"from": 10, "weights": [1, 2]},
]


@st.composite
def runs(draw: Any) -> tuple[Phases, int]:
    """Phases over datasets of a few records, and a batch somewhere in the last of them."""
    streams = tuple(Stream((draw(st.integers(1, 30)), draw(st.integers(0, 9)))) for _ in range(draw(st.integers(1, 3))))
    before, skipped, first, made = (0,) * len(streams), (), 0, []
    for _ in range(draw(st.integers(1, 4))):
        shares = tuple(draw(st.integers(0, 5)) for _ in streams)
        shares = (1,) if len(streams) == 1 else shares if any(shares) else (1,) * len(streams)
        steps, size = draw(st.integers(1, 9)), draw(st.integers(1, 7))
        order = Order(streams, shares, seed=3, before=before, skipped=skipped, end=steps * size)
        made.append(Phase(first, size, order))
        before, skipped, first = order.taken(order.end), order.skipped_after(order.end), first + steps
    return Phases(tuple(made)), first


def rows_of(phases: Phases, steps: int) -> list[tuple[int, int, int]]:
    """(dataset, epoch, row in it) of every row of the first batches."""
    places = []
    for step in range(steps):
        phase = phases.each[phases.number_at(step)]
        places += [phase.order.place(phase.row_of(step) + row) for row in range(phase.batch_size)]
    return places


@given(runs())
def test_every_dataset_is_passed_row_by_row_through_all_phases(run):
    phases, steps = run
    streams, found = phases.first.order.streams, rows_of(phases, steps)
    end = phases.last.row_of(steps)
    taken, skipped = phases.last.order.taken(end), phases.last.order.skipped_after(end)
    assert len(set(found)) == len(found)
    for dataset, stream in enumerate(streams):
        own = [epoch * stream.rows + row for number, epoch, row in found if number == dataset]
        assert len(own) == taken[dataset]
        assert list(skipped[dataset]) == sorted(skipped[dataset])
        assert sorted([*own, *skipped[dataset]]) == list(range(len(own) + len(skipped[dataset])))


@given(runs())
def test_kernels_draw_the_same_in_every_phase(run):
    phases, _ = run
    first = compiled_order.make_table(phases.first.order)
    for phase in phases.each:
        table, rows = compiled_order.of_phase(first, phase.order), phase.order.end
        expected, found = phase.order.draw(0, rows), compiled_order.draw(table, 0, rows)
        for name in ("shards", "records", "keys"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


@pytest.fixture
def paths(datasets: Datasets) -> list[str]:
    return [str(datasets.rows), str(datasets.more_rows)]


def load(paths: Any, **options: Any) -> penstock.Loader:
    return penstock.load(paths, **{"batch_size": 8, "workers": 0, **options})


def test_batches_follow_the_phases(paths):
    loader, first = load(paths, phases=PHASES), load(paths[0])
    assert [hash_of(loader.batch(k)) for k in range(3)] == [hash_of(first.batch(k)) for k in range(3)]
    assert [len(next(loader)["inputs"]) for _ in range(12)] == [8] * 3 + [12] * 7 + [8] * 2
    one, two = loader.stats().datasets
    assert one.rows + two.rows == 3 * 8 + 7 * 12 + 2 * 8
    assert one.rows > 3 * 8 + 0.69 * 84
    assert (one.path, one.epochs) == (paths[0], one.rows / 700)


@pytest.mark.parametrize(
    "options", [{"epochs": 1}, {"max_epochs": 2}, {"max_epochs": [None, 1], "weights": [0.9, 0.1]}]
)
def test_rows_that_only_fill_the_last_batch_are_not_counted(paths, options):
    path = paths if "weights" in options else paths[0]
    loader = load(path, batch_size=48, remainder="pad", **options)
    drawn = sum(int((batch["inputs_segmentation"][:, 0] > 0).sum()) for batch in loader)
    assert drawn % 48
    assert sum(each.rows for each in loader.stats().datasets) == drawn
    if path is not paths:
        (only,) = loader.stats().datasets
        assert (only.rows, only.epochs) == (drawn, options.get("max_epochs", 1))


def test_a_run_that_ended_with_padding_is_not_made_longer_behind_it(paths):
    """The records in place of the padding would never be given."""
    loader = load(paths[0], batch_size=48, remainder="pad", epochs=1)
    *_, before, state = [loader.state() for _ in loader]
    assert "padded" not in before
    longer = load(paths[0], batch_size=48, remainder="pad", epochs=2)
    with pytest.raises(ConfigError, match=f"{state['padded']} rows are padding"):
        longer.restore(json.loads(json.dumps(state)))
    longer.restore(before)
    assert longer.step == state["step"] - 1
    load(paths[0], batch_size=48, remainder="pad", epochs=1).restore(state)


def test_phases_that_come_after_padding_are_refused(paths):
    phases = [{"from": 0, "weights": [4, 1]}]
    options = {"batch_size": 19, "remainder": "pad", "max_epochs": [None, 1]}
    loader = load(paths, phases=phases, **options)
    for _ in range(loader.steps):
        next(loader)
    assert loader.state()["padded"]
    with pytest.raises(ConfigError, match="rows are padding"):
        loader.restore(loader.state(), [*phases, {"from": loader.steps, "weights": [1, 0]}])


def test_a_state_of_batches_ahead_has_the_phases_that_the_consumer_has_begun(paths):
    loader = load(paths, phases=PHASES)
    batches = Ahead(loader, lambda batch: lambda: batch, ahead=2)
    for step in range(12):
        assert batches.state() == load(paths, phases=PHASES).state_at(step)
        load(paths, phases=PHASES).restore(batches.state())
        next(batches)


def test_one_batch_can_be_left_out_wherever_phases_begin(paths):
    loader = load(paths, phases=PHASES)
    for step in range(12):
        loader.restore(loader.state_at(step))
        loader.restore(loader.state_at(loader.step + 1))
        assert hash_of(next(loader)) == hash_of(loader.batch(step + 1))


def test_ranks_share_the_batches_of_every_phase(paths):
    whole = load(paths, phases=PHASES)
    ranks = [load(paths, phases=PHASES, rank=rank, world=4) for rank in range(4)]
    for k in range(14):
        parts = np.concatenate([rank.batch(k)["inputs"] for rank in ranks])
        np.testing.assert_array_equal(parts, whole.batch(k)["inputs"])


@pytest.mark.parametrize("step", range(14))
def test_a_state_restores_into_phases_that_agree_so_far(paths, step):
    loader = load(paths, phases=PHASES)
    for _ in range(step):
        next(loader)
    state = json.loads(json.dumps(loader.state()))
    longer = [*PHASES, {"from": 14, "weights": [1, 1]}]
    expected = [hash_of(loader.batch(k)) for k in range(step, 14)]
    for workers in (0, 2):
        with load(paths, phases=longer, workers=workers) as other:
            other.restore(state)
            assert [hash_of(next(other)) for _ in range(step, 14)] == expected
    same = load(paths, phases=PHASES)
    same.restore(state, phases=longer)
    assert [hash_of(next(same)) for _ in range(step, 14)] == expected
    assert same.arguments["phases"] == longer


def test_a_run_without_phases_may_go_on_with_some(paths):
    plain = load(paths)
    for _ in range(5):
        next(plain)
    phases = [{"from": 0}, {"from": 5, "batch_size": 16}]
    plain.restore(plain.state(), phases=phases)
    assert len(next(plain)["inputs"]) == 16
    found = rows_of(plain._parts.phases, 20)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("step", [1, 3, 7, 11])
def test_batches_do_not_depend_on_where_a_later_phase_begins(paths, step):
    """With weights of 3 to 7, a phase that begins at any of these batches cuts a block of ten rows."""
    plain = load(paths, weights=[3, 7])
    expected = [hash_of(plain.batch(k)) for k in range(step)]
    for _ in range(step):
        next(plain)
    plain.restore(plain.state(), phases=[{"from": 0}, {"from": step, "weights": [1, 1]}])
    assert [hash_of(plain.batch(k)) for k in range(step)] == expected


def test_a_phase_shorter_than_its_block_has_its_rows_where_epochs_are_limited(paths):
    """No whole block of 303 rows is in one epoch of 300: the rows of such a phase were zeros."""
    phases = [{"from": 0, "weights": [1, 302]}, {"from": 2, "weights": [1, 0]}]
    loader = load(paths, phases=phases, max_epochs=[None, 1])
    assert all(loader.batch(k)["inputs"].any(axis=1).all() for k in range(3))
    with pytest.raises(ConfigError, match=r"dataset 2 \(.+\) would be read 3\.\d+ times, but max_epochs allows 1"):
        load(paths, phases=[{**phases[0], "weights": [1, 999]}, phases[1]], max_epochs=[None, 1])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            [PHASES[0], {**PHASES[1], "weights": [1, 1]}, PHASES[2]],
            r"phase 2 was .*shares \[7, 3\].*is .*shares \[1, 1\]",
        ),
        ([PHASES[0], {**PHASES[1], "from": 4}], r"phase 2 was from 3.* and is from 4"),
        (PHASES[:1], r"phase 2 was from 3.* and is not there"),
        ([{"from": 0, "weights": [1, 1]}, *PHASES[1:]], r"shares was \[1, 0\] and is \[1, 1\]"),
        ([{**PHASES[0], "batch_size": 4}, *PHASES[1:]], "batch_size was 8 and is 4"),
    ],
)
def test_phases_that_made_other_batches_are_refused_by_name(paths, other, words):
    loader = load(paths, phases=PHASES)
    for _ in range(6):
        next(loader)
    before = hash_of(loader.batch(6))
    with pytest.raises(ConfigError, match=words):
        loader.restore(loader.state(), phases=other)
    with pytest.raises(ConfigError, match=words):
        load(paths, phases=other).restore(loader.state())
    assert hash_of(next(loader)) == before


@pytest.mark.parametrize(
    ("phases", "words"),
    [
        ([], "not a list of phases"),
        ("phases", "not a list of phases"),
        ({"from": 0}, "not a list of phases"),
        ([{"weights": [1, 1]}], "no 'from'"),
        ([{"from": 1}], "must be a whole number 0"),
        ([{"from": 0}, {"from": 0}], "above 0, where the phase before begins"),
        ([{"from": 0}, {"from": 5}, {"from": 4}], "above 5"),
        ([{"from": 0, "weight": [1, 1]}], "unknown key, 'weight'"),
        ([{"from": 0, "batch_size": 0}], "not a whole number above 0"),
        ([{"from": 0, "weights": [1]}], "1 numbers for 2 datasets"),
        ([{"from": 0, "weights": [0, 0]}], r"all weights are 0\n *where: load\(phases=...\), phase 1"),
        ([{"from": 0}, {"from": 5, "weights": [1, -1]}], r"one is -1\n *where: load\(phases=...\), phase 2"),
        ([{"from": 0, "weights": [1, 10**9]}, {"from": 5}], "too far apart"),
    ],
)
def test_phases_that_cannot_be_are_refused(paths, phases, words):
    with pytest.raises(ConfigError, match=words):
        load(paths, phases=phases)


def test_a_batch_of_a_phase_that_ranks_cannot_share_is_refused(paths):
    with pytest.raises(ConfigError, match="batch_size=9 rows cannot be divided evenly by world=4"):
        load(paths, world=4, phases=[{"from": 0}, {"from": 5, "batch_size": 9}])


# Epochs.


def test_a_phase_that_needs_more_epochs_than_allowed_is_refused_with_the_numbers(paths):
    phases = [{"from": 0, "weights": [1, 0]}, {"from": 200, "weights": [0, 1]}]
    name = rf"dataset 1 \({re.escape(str(paths[0]))}\)"
    told = r"would be read 2\.29 times, but max_epochs allows 2 \(1,600 rows of 700\)"
    with pytest.raises(ConfigError, match=f"{name} {told}"):
        load(paths, phases=phases, max_epochs=[2, None])
    load(paths, phases=phases, max_epochs=[3, None])


def test_a_run_ends_before_a_dataset_is_passed_more_often_than_allowed(paths):
    loader = load(paths, max_epochs=[1, None], weights=[1, 1])
    assert len(loader) == 2 * 700 // 8
    rows = Counter(place[:2] for place in rows_of(loader._parts.phases, len(loader)))
    assert rows[0, 0] == 700
    assert (0, 1) not in rows
    with pytest.raises(ConfigError, match="3 numbers for 2 datasets"):
        load(paths, max_epochs=[1, 2, 3])
    with pytest.raises(ConfigError, match="max_epochs"):
        load(paths, max_epochs=1, epochs=1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batch_size", [7, 8, 300, 2000])
def test_each_for_loop_is_an_epoch(paths, batch_size, workers):
    """A batch in which an epoch ends belongs to it: nothing is left out, and no batch is another than batch(k)."""
    with load(paths[0], batch_size=batch_size, workers=workers) as loader:
        hashes, ends = [], []
        for _ in range(3):
            length, count = len(loader), 0
            for batch in loader:
                hashes.append(hash_of(batch))
                count += 1
            assert count == length
            ends.append(loader.step)
        assert hashes == [hash_of(loader.batch(k)) for k in range(len(hashes))]
    if batch_size < 700:
        assert ends == [-(-epoch * 700 // batch_size) for epoch in (1, 2, 3)]


def test_a_loop_that_was_left_goes_on_with_the_rest_of_its_epoch(paths):
    loader = load(paths[0], batch_size=100)
    for batch in loader:
        assert len(batch["inputs"]) == 100
        break
    state = loader.state()
    assert sum(1 for _ in loader) == 6
    other = load(paths[0], batch_size=100)
    other.restore(state)
    assert sum(1 for _ in other) == 6
    assert sum(1 for _ in other) == 7


def test_a_loop_over_a_loader_that_has_ended_says_so(paths):
    loader = load(paths[0], epochs=2, batch_size=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(1 for _ in loader) == 14
    with pytest.warns(UserWarning, match="all 14 batches of this loader were given"):
        assert list(loader) == []


def test_phases_know_no_epochs(paths):
    loader = load(paths, phases=PHASES)
    with pytest.raises(TypeError, match="no end"):
        len(loader)
    batches = iter(loader)
    assert sum(1 for _ in zip(range(200), batches, strict=False)) == 200
