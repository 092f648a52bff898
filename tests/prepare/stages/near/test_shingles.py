"""Shingles: hashes of the same sets as plain Python makes, wherever a document lies, and however it is portioned."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.prepare.stages.dedup.near import shingles, units
from penstock.prepare.stages.dedup.near.shingles import Giant, Shingling
from tests.prepare.stages.near.texts import SPACES, texts
from tests.promises import near_reference
from tests.promises.near_reference import Near

SHINGLINGS = st.sampled_from([(1, 0), (2, 0), (5, 0), (0, 1), (0, 3), (0, 8)])


def sets_of(array: pa.Array, shingling: tuple[int, int]) -> list[set[int]]:
    """Of each document, whether it came whole or in portions."""
    found: dict[int, set[int]] = {}
    for each in Shingling(*shingling).of(array):
        if isinstance(each, Giant):
            assert each.document not in found
            found[each.document] = {int(one) for portion in each.portions() for one in portion}
            continue
        for document, hashes in zip(each.documents.tolist(), np.split(each.hashes, each.bounds[1:]), strict=True):
            assert document not in found
            found[document] = set(hashes.tolist())
    assert sorted(found) == list(range(len(array)))
    return [found[document] for document in range(len(array))]


@contextmanager
def portions_of(size: int) -> Iterator[None]:
    """A document of more bytes than these is a giant, which comes in portions of as many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shingles, "PORTION_BYTES", size)
        patch.setattr(units, "PORTION_BYTES", size)
        patch.setattr(shingles, "_RANGE_BYTES", 12 * size)
        yield


def assert_same_sets(hashed: list[set[int]], documents: list[str | None], shingling: tuple[int, int]) -> None:
    """As many shingles in each, and as many shared by each two."""
    expected = [near_reference.shingles(text, Near(words=shingling[0], characters=shingling[1])) for text in documents]
    for one, found in enumerate(hashed):
        assert len(found) == len(expected[one]), documents[one]
        for other in range(one):
            shared = len(expected[one] & expected[other])
            assert len(found & hashed[other]) == shared, (documents[one], documents[other])


@given(documents=st.lists(st.none() | texts, max_size=8), shingling=SHINGLINGS)
def test_shingles_are_the_sets_of_plain_python(documents, shingling):
    assert_same_sets(sets_of(pa.array(documents, pa.string()), shingling), documents, shingling)


@given(documents=st.lists(texts, max_size=8), shingling=st.sampled_from([(5, 8), (2, 3), (1, 1)]))
def test_the_script_of_most_of_a_document_decides_what_its_shingles_are_of(documents, shingling):
    for text in documents:  # which side half and half belongs to is nobody's business
        characters = "".join(text.split())
        unspaced = [unicodedata.name(each, "").startswith(near_reference.UNSPACED) for each in characters]
        assume(2 * sum(unspaced) != len(characters) or not characters)
    assert_same_sets(sets_of(pa.array(documents, pa.string()), shingling), documents, shingling)


@given(documents=st.lists(texts, min_size=1, max_size=6), shingling=SHINGLINGS, data=st.data())
def test_a_document_has_the_same_hashes_wherever_it_lies(documents, shingling, data):
    first = data.draw(st.integers(0, len(documents)))
    last = data.draw(st.integers(first, len(documents)))
    whole = sets_of(pa.array(documents, pa.string()), shingling)
    assert sets_of(pa.array(documents, pa.large_string()).slice(first, last - first), shingling) == whole[first:last]
    alone = [sets_of(pa.array([text], pa.string()), shingling)[0] for text in documents]
    assert alone == whole


@given(documents=st.lists(texts, max_size=6), shingling=SHINGLINGS, size=st.integers(4, 60))
def test_portions_of_giant_documents_give_the_set_that_the_whole_gives(documents, shingling, size):
    array = pa.array(documents, pa.string())
    whole = sets_of(array, shingling)
    with portions_of(size):
        assert sets_of(array, shingling) == whole


@given(text=texts, more=texts, shingling=SHINGLINGS, size=st.integers(4, 20))
def test_the_sorted_set_of_a_giant_ascends_without_repeats_and_is_that_of_its_portions(text, more, shingling, size):
    array = pa.array([f"{text}{more}" * 2, f"{more} {text}"], pa.string())
    whole = sets_of(array, shingling)
    with portions_of(size), pytest.MonkeyPatch.context() as patch:
        patch.setattr(shingles, "CHUNK", 3)
        for each in Shingling(*shingling).of(array):
            if isinstance(each, Giant):
                chunks = list(each.sorted_set())
                found = [int(one) for chunk in chunks for one in chunk]
                assert found == sorted(whole[each.document])
                assert max(map(len, chunks)) <= 3


@pytest.mark.parametrize("shingling", [(2, 0), (0, 3)])
def test_every_white_space_of_unicode_ends_a_word(shingling):
    documents = [f"one{space}two" for space in SPACES]
    hashed = sets_of(pa.array(documents), shingling)
    assert len(SPACES) >= 29
    assert all(found == hashed[0] for found in hashed)


def test_shingles_of_words_and_of_characters_are_never_equal():
    """A document of one word, and one of the same letters compared by characters."""
    (words,), (characters,) = (sets_of(pa.array(["水"]), each) for each in ((1, 0), (0, 1)))
    assert not words & characters


def test_a_run_of_one_word_is_one_shingle_and_a_few_words_are_other_ones():
    hashed = sets_of(pa.array(["a " * 100, "a a a", "a a", "a", "", " "]), (3, 0))
    assert [len(found) for found in hashed] == [1] * 6
    assert hashed[0] == hashed[1]
    assert hashed[4] == hashed[5]
    assert len(set(map(frozenset, hashed))) == 4
