"""Differences of two texts are those of their words, and cost no more for huge texts."""

import random
import time

import pytest

from penstock.show.contents.differences import differences

DRAW = random.Random(1)
WORDS = [f"word{DRAW.randrange(3000)}" for _ in range(20_000)]


def changed(survivor: list[str], document: list[str]) -> list[tuple[str, str]]:
    """The parts that differ."""
    found = differences(" ".join(survivor), " ".join(document))
    return [(part["survivor"], part["document"]) for region in found.regions for part in region if "both" not in part]


def with_words(*places: int) -> list[str]:
    return [f"new{place}" if place in places else word for place, word in enumerate(WORDS)]


def test_small_texts_are_shown_whole():
    assert differences("the old mill", "the new  mill").regions == [
        [{"both": "the"}, {"survivor": "old", "document": "new"}, {"both": "mill"}]
    ]


@pytest.mark.parametrize("document", ["the old mill", "the\n old\tmill "])
def test_white_space_is_no_difference(document):
    assert differences("the old mill", document) == ([], (0, 0))


def test_a_text_without_words_is_compared():
    assert differences("", "mill").regions == [[{"survivor": "", "document": "mill"}]]
    assert differences("", " ") == ([], (0, 0))


def test_characters_of_scripts_without_spaces_are_words():
    (parts,) = differences("水は古い水車へ流れる", "水は新い水車へ流れる").regions
    assert {"survivor": "古", "document": "新"} in parts


@pytest.mark.parametrize("places", [(0,), (19_999,), (100, 10_000), (0, 100, 10_000, 19_999), (5, 1005, 2005, 3005)])
def test_changed_words_are_found_wherever_they_are(places):
    assert changed(WORDS, with_words(*places)) == [(WORDS[place], f"new{place}") for place in places]


def test_each_region_has_some_words_around():
    (parts,) = differences(" ".join(WORDS), " ".join(with_words(10_000))).regions
    before, _, behind = parts
    assert all(12 <= len(each["both"].split()) <= 24 for each in (before, behind))


@pytest.mark.parametrize("count", [1, 100, 5000])
def test_words_that_only_one_text_has_are_one_difference(count):
    longer = [*WORDS[:5000], *["more"] * count, *WORDS[5000:]]
    ((survivor, document),) = changed(WORDS, longer)
    assert (survivor, document.startswith("more")) == ("", True)
    assert len(document) < 1000
    ((survivor, document),) = changed(longer, WORDS)
    assert (survivor.startswith("more"), document) == (True, "")


def test_what_is_not_compared_is_counted():
    found = differences(" ".join(WORDS), " ".join(with_words(*range(100, 19_000, 1000))))
    assert len(found.regions) == 5
    assert 110_000 < found.rest[0] < 160_000
    shown = " ".join(WORDS)[: -found.rest[0]].split()
    assert shown[4100] in found.regions[-1][1]["survivor"]


# Made when they are asked for: together they are 400 MB.
HUGE = {
    "one word": lambda: (" ".join(WORDS) * 300, f"{' '.join(WORDS) * 150} new {' '.join(WORDS) * 150}"),
    "no spaces": lambda: ("x" * 50_000_000, "x" * 50_000_000 + "y"),
    "nothing in common": lambda: ("ab" * 20_000_000, "ba " * 10_000_000),
    "only white space": lambda: (" " * 20_000_000, "\n" * 20_000_000),
    "other white space": lambda: ("a b " * 5_000_000, "a\nb\n" * 5_000_000),
    "few words": lambda: [" ".join(DRAW.choices("abc", k=1_000_000)) for _ in range(2)],
    "every second word": lambda: [" ".join(f"x {letter}{n}" for n in range(500_000)) for letter in "yz"],
}


@pytest.mark.proof
@pytest.mark.parametrize("name", HUGE)
def test_huge_texts_are_compared_in_seconds_and_not_in_hours(name):
    survivor, document = HUGE[name]()
    begin = time.process_time()
    found = differences(survivor, document)
    assert time.process_time() - begin < 60
    assert sum(len(text) for region in found.regions for part in region for text in part.values()) < 20_000
