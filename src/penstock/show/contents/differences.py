"""Differences: two texts -> the regions where their words differ, with some words around each. Used by duplicates.py.

White space between words does not count; a character of a script without spaces is a word. Time and memory have a bound
for texts of any size: equal parts are skipped, others are compared 1,000 words at a time, up to 50 times.
"""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from penstock.base.sizes import counted

_SMALL = 2000  # characters; texts of this size are shown whole
_MOST_REGIONS = 5
_MOST_WINDOWS = 50
_WINDOW = 1000  # words
_AROUND = 12  # words before and behind a difference
_CONTEXT = 150  # characters, which have about so many words
_ANCHOR = 5  # equal words at which two texts go on together
_MOST_CHARACTERS = 600  # of a part
_MOST_EQUAL_PAIRS = 50_000  # of words in a window; with more, difflib does not start at frequent words
_NO_SPACES = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"\s*([{_NO_SPACES}]|[^\s{_NO_SPACES}]{{1,200}})")
Part = dict[str, str]  # `both`, where they are equal; `survivor` and `document`, where they differ
Texts = tuple[str, str]
Place = tuple[int, int]  # in the two texts
Spans = list[tuple[int, int]]  # of words
Operation = tuple[str, int, int, int, int]  # of difflib


class Differences(NamedTuple):
    """Regions in order, each a list of parts. `rest` are the characters at the end of each text, if not compared."""

    regions: list[list[Part]]
    rest: Place = (0, 0)


def differences(survivor: str, document: str) -> Differences:
    texts, sizes = (survivor, document), (len(survivor), len(document))
    is_small = max(sizes) <= _SMALL
    at = (0, 0) if is_small else _skipped(texts, (0, 0), sizes)
    end = sizes if is_small else _end(texts, at)
    regions: list[list[Part]] = []
    for _ in range(_MOST_WINDOWS):
        room = _MOST_REGIONS - len(regions)
        spans = [_words(text, first, last + _CONTEXT) for text, first, last in zip(texts, at, end, strict=True)]
        go_on = [len(each) == _WINDOW for each in spans]
        operations = _operations(texts, spans)
        if any(go_on):
            operations = _up_to_anchor(operations)
            if not operations and room:
                to = (spans[0][-1][1], spans[1][-1][1]) if all(go_on) else end
                return _with_rest([*regions, _replaced(texts, at, to)], texts, to if all(go_on) else sizes)
        groups = _groups(operations, _SMALL if is_small else _AROUND)
        regions += [_region(texts, spans, group) for group in groups[:room]]
        if not any(go_on) and len(groups) <= room:
            return Differences(regions)
        if len(groups) > room or not operations:
            at = _behind(spans, groups[room - 1]) if room and operations else at
            break
        at = _skipped(texts, _behind(spans, operations), end)
    return _with_rest(regions, texts, at)


def _with_rest(regions: list[list[Part]], texts: Texts, at: Place) -> Differences:
    return Differences(regions, (len(texts[0]) - at[0], len(texts[1]) - at[1]))


def _words(text: str, first: int, last: int) -> Spans:
    """Words that begin before `last`, up to the size of a window."""
    spans: Spans = []
    while len(spans) < _WINDOW and (found := _WORD.match(text, first)) and found.start(1) < last:
        spans.append(found.span(1))
        first = found.end()
    return spans


def _operations(texts: Texts, spans: Sequence[Spans]) -> list[Operation]:
    low, high = ([text[first:last] for first, last in each] for text, each in zip(texts, spans, strict=True))
    counts = Counter(high)
    is_many = sum(counts[word] for word in low) > _MOST_EQUAL_PAIRS
    return [*SequenceMatcher(None, low, high, autojunk=is_many).get_opcodes()]


def _up_to_anchor(operations: list[Operation]) -> list[Operation]:
    """Operations up to the last that is an anchor; none if there is no such behind a difference."""
    ends = [number for number, each in enumerate(operations, 1) if each[0] == "equal" and each[2] - each[1] >= _ANCHOR]
    return operations[: ends[-1]] if ends and ends[-1] in (len(operations), *ends[1:]) else []


def _groups(operations: Sequence[Operation], around: int) -> list[list[Operation]]:
    """Differences that stand close to each other, with some equal words before and behind."""
    groups: list[list[Operation]] = [[]]
    for kind, low, high, first, last in operations:
        if kind == "equal" and high - low > 2 * around:
            groups[-1].append((kind, low, low + around, first, first + around))
            groups.append([(kind, high - around, high, last - around, last)])
        else:
            groups[-1].append((kind, low, high, first, last))
    return [group for group in groups if any(each[0] != "equal" for each in group)]


def _region(texts: Texts, spans: Sequence[Spans], group: Sequence[Operation]) -> list[Part]:
    parts = []
    for kind, low, high, first, last in group:
        survivor, document = _between(texts[0], spans[0][low:high]), _between(texts[1], spans[1][first:last])
        both = {"both": " ".join(survivor.split())}
        parts.append(both if kind == "equal" else {"survivor": _short(survivor), "document": _short(document)})
    return parts


def _replaced(texts: Texts, at: Place, end: Place) -> list[Part]:
    """All words up to a place as one difference: no equal words are close enough."""
    start = _moved(at, _equal(texts, at, min(end[0] - at[0], end[1] - at[1])))
    survivor, document = (_short(text[first:last]) for text, first, last in zip(texts, start, end, strict=True))
    before = texts[0][at[0] : start[0]]
    behind, other = (text[last : last + _CONTEXT] for text, last in zip(texts, end, strict=True))
    both = [{"both": _short(each)} for each in (before, behind if behind == other else "")]
    parts = [both[0], {"survivor": survivor, "document": document}, both[1]]
    return [part for part in parts if any(part.values())]


def _between(text: str, words: Spans) -> str:
    return text[words[0][0] : words[-1][1]] if words else ""


def _short(text: str) -> str:
    """The text with single spaces; only its beginning if it is long."""
    shown, cut = " ".join(text[:_MOST_CHARACTERS].split()), len(text) - _MOST_CHARACTERS
    return f"{shown} ... ({counted(cut, 'more character')})" if cut > 0 else shown


def _behind(spans: Sequence[Spans], operations: Sequence[Operation]) -> Place:
    """End of the last words of the operations, which are equal."""
    _, _, low, _, high = operations[-1]
    return spans[0][low - 1][1], spans[1][high - 1][1]


# Where the texts are equal.


def _skipped(texts: Texts, at: Place, end: Place) -> Place:
    """Where the texts begin to differ, or some words before."""
    return _moved(at, _equal(texts, at, min(end[0] - at[0], end[1] - at[1]), less=_CONTEXT))


def _end(texts: Texts, at: Place) -> Place:
    """Where the last difference ends."""
    sizes = len(texts[0]), len(texts[1])
    return _moved(sizes, -_equal(texts, sizes, min(sizes[0] - at[0], sizes[1] - at[1]), is_back=True))


def _moved(place: Place, count: int) -> Place:
    return place[0] + count, place[1] + count


def _equal(texts: Texts, at: Place, most: int, less: int = 0, is_back: bool = False) -> int:
    """How many characters are equal behind a place, or before it; `less` are left out, and a word that is not whole."""

    def pieces(first: int, size: int) -> list[str]:
        starts = (place - first - size if is_back else place + first for place in at)
        return [text[max(0, start) : max(0, start + size)] for text, start in zip(texts, starts, strict=True)]

    count = 0
    for size in (1 << 16, 1 << 8, 1):
        while count + size <= most and len(set(pieces(count, size))) == 1:
            count += size
    count = max(0, count - less)
    for fewer in range(count, max(0, count - _CONTEXT), -1):
        if not "".join(pieces(fewer - 1, 1)).strip() or not "".join(pieces(fewer, 1)).strip():
            return fewer
    return count if count > _CONTEXT else 0
