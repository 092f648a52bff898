"""Signatures: bands agree as often as the similarity says, and a document has its keys whatever is hashed beside it."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.prepare.stages.dedup.near import signatures
from penstock.prepare.stages.dedup.near.shingles import Giant, Hashed, Shingling
from penstock.prepare.stages.dedup.near.signatures import Banding
from tests.prepare.stages.near.test_shingles import portions_of
from tests.prepare.stages.near.texts import texts

BANDINGS = st.sampled_from([Banding(1, 1), Banding(20, 6), Banding(60, 2), Banding(7, 3)])
SETS = st.lists(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30), min_size=1, max_size=8)


def keys_of(sets: list[list[int]], banding: Banding) -> np.ndarray:
    counts = [len(each) for each in sets]
    bounds = np.cumsum([0, *counts[:-1]])
    return banding.keys(Hashed(np.arange(len(sets)), np.array([one for each in sets for one in each], "u8"), bounds))


@given(sets=SETS, banding=BANDINGS, chance=st.randoms(use_true_random=False))
def test_keys_depend_on_the_set_alone(sets, banding, chance):
    """Neither on its order and repeats, nor on the documents beside it."""
    together = keys_of(sets, banding)
    assert together.shape == (len(sets), banding.bands)
    for number, each in enumerate(sets):
        mixed = [*each, *chance.sample(each, chance.randrange(len(each) + 1))]
        chance.shuffle(mixed)
        assert np.array_equal(keys_of([mixed], banding)[0], together[number])


@given(sets=SETS, banding=BANDINGS, at_once=st.integers(1, 1000))
def test_how_many_values_are_in_memory_decides_no_key(sets, banding, at_once):
    expected = keys_of(sets, banding)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signatures, "_AT_ONCE", at_once)
        assert np.array_equal(keys_of(sets, banding), expected)


@given(documents=st.lists(texts, min_size=1, max_size=4), size=st.integers(4, 40), banding=BANDINGS)
def test_a_giant_document_has_the_keys_that_it_has_as_a_whole(documents, size, banding):
    array = pa.array(documents, pa.string())
    expected = keys_in(array, banding)
    with portions_of(size):
        assert keys_in(array, banding) == expected


def keys_in(array: pa.Array, banding: Banding) -> dict[int, list[int]]:
    found = {}
    for each in Shingling(2, 3).of(array):
        if isinstance(each, Giant):
            found[each.document] = banding.giant_keys(each)[0].tolist()
        else:
            found |= dict(zip(each.documents.tolist(), banding.keys(each).tolist(), strict=True))
    return found


def test_a_giant_of_very_many_shingles_has_the_keys_that_it_has_as_a_whole():
    """Of more than one round could leave empty: it goes through one round alone."""
    chance = np.random.default_rng(1)
    text = " ".join(map(str, chance.integers(0, 10**9, 60_000)))
    array = pa.array([text])
    banding = Banding(20, 6)
    (whole,) = [banding.keys(each) for each in Shingling(5, 0).of(array)]
    with portions_of(1 << 16):
        (giant,) = Shingling(5, 0).of(array)
        assert isinstance(giant, Giant)
        assert np.array_equal(banding.giant_keys(giant), whole)


# Chances. Every pair has hashes of its own; the bound is six deviations of what was measured, over all pairs.

SHARES = [(1, 0, 1), (2, 0, 1), (1, 1, 1), (3, 1, 0), (8, 1, 1), (20, 5, 5), (90, 0, 30), (90, 10, 10), (400, 20, 80)]


def pairs_of(shared: int, one: int, other: int, pairs: int, seed: int) -> tuple[list[list[int]], float]:
    """Pairs of sets, one behind the other, with so many shared hashes and of their own; and their similarity."""
    chance = random.Random(seed)
    sets = []
    for _ in range(pairs):
        both = [chance.getrandbits(64) for _ in range(shared)]
        sets += [both + [chance.getrandbits(64) for _ in range(own)] for own in (one, other)]
    return sets, shared / (shared + one + other)


@pytest.mark.parametrize(("shared", "one", "other"), SHARES)
@pytest.mark.parametrize("banding", [Banding(20, 6), Banding(60, 2), Banding(120, 1)], ids=str)
def test_a_band_agrees_with_the_chance_of_similarity_to_the_power_of_its_rows(shared, one, other, banding):
    sets, similarity = pairs_of(shared, one, other, 600, seed=shared + one)
    keys = keys_of(sets, banding)
    agreed = (keys[0::2] == keys[1::2]).mean(axis=1)
    deviation = max(float(agreed.std()) / math.sqrt(len(agreed)), 1e-3)
    assert abs(float(agreed.mean()) - similarity**banding.rows) < 6 * deviation


@pytest.mark.parametrize(("shared", "one", "other"), SHARES)
@pytest.mark.parametrize("banding", [Banding(20, 6), Banding(5, 3)], ids=str)
def test_pairs_are_detected_at_least_as_often_as_is_said(shared, one, other, banding):
    """Places are filled without replacement, so they agree more evenly than `detection` assumes."""
    sets, similarity = pairs_of(shared, one, other, 600, seed=7 * shared + other)
    keys = keys_of(sets, banding)
    detected = float((keys[0::2] == keys[1::2]).any(axis=1).mean())
    expected = banding.detection(similarity)
    deviation = math.sqrt(expected * (1 - expected) / 600) + 1e-3
    assert detected > expected - 5 * deviation
    if shared > 50:  # of few shingles, what happens to one happens to many places
        assert abs(detected - expected) < 0.1


def test_detection_is_the_chance_that_one_band_of_all_agrees():
    assert Banding(20, 6).detection(0.8) == pytest.approx(1 - (1 - 0.8**6) ** 20)
    assert Banding(1, 1).detection(0.3) == pytest.approx(0.3)
    assert (Banding(20, 6).detection(1.0), Banding(20, 6).detection(0.0)) == (1, 0)


def test_unrelated_documents_share_no_key():
    chance = random.Random(3)
    keys = keys_of([[chance.getrandbits(64) for _ in range(50)] for _ in range(2000)], Banding(20, 6))
    assert len(np.unique(keys)) == keys.size


def test_keys_of_different_bands_differ():
    """A document of one shingle has the same in every place."""
    keys = keys_of([[5]], Banding(60, 2))
    assert len(np.unique(keys)) == 60


def test_keys_are_what_they_always_were():
    """Other numbers are another version: of two documents at the threshold, others would be found."""
    keys = keys_of([[1], [1, 2, 3], list(range(500))], Banding(4, 3))
    assert [int(np.bitwise_xor.reduce(row)) for row in keys] == PINNED


PINNED = [14341956405955249951, 8365608991155968143, 3011340737033059743]
