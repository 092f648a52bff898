"""Split pattern: the regular expression that cuts a text into words -> between which characters it surely cuts.

A pattern is taken apart into atoms (each matches one character) and which atom may follow which, as Glushkov did. If no
atom that matches the character before a place can be followed by one that matches the character after it, then no match
reaches over that place, whatever stands around it; and where none looks over it either, both sides are split alike,
together or apart. Only a few characters are asked about, so an atom is the set of those that it matches.

What is not understood (anchors, look-behind, back references, possessive counts) is refused.
"""

import re
import string
import unicodedata
from dataclasses import dataclass, field

LETTERS = frozenset(string.ascii_letters)
HAN = frozenset("\u4e00\u8fff")  # the ends of a range within which no pattern may tell one character from another
CHARACTERS = LETTERS | HAN | {" ", "\n"}
_CLASSES = {"s": frozenset(" \n"), "w": LETTERS | HAN, "d": frozenset[str]()}  # the capital letter is all others
_ESCAPES = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v"}
_CATEGORIES = re.compile(r"[LMNPSZC][a-z]?")
_COUNT = re.compile(r"\{(\d+)(,?)(\d*)\}")
_MARKS = {"*": (True, True), "+": (True, False), "?": (False, True)}  # whether more than one, whether none
_LINE_ENDS = (r"\s*[\r\n]+", r"\s*[\r\n]")
_SPACES_BUT_LAST = r"\s+(?!\S)"


class NotUnderstood(Exception):
    pass


@dataclass
class _Part:
    """A piece of a pattern: whether it matches nothing at all, and atoms that can begin and end a match of it."""

    nullable: bool
    first: frozenset[int] = frozenset()
    last: frozenset[int] = frozenset()


@dataclass
class SplitPattern:
    """Raises NotUnderstood for a pattern that is none of the simple ones."""

    source: str
    _atoms: list[frozenset[str]] = field(default_factory=list)
    _follow: set[tuple[int, int]] = field(default_factory=set)
    _peeking: set[int] = field(default_factory=set)  # atoms after which a match looks at the next character
    _place: int = 0
    _ignore_case: bool = False

    def __post_init__(self) -> None:
        self._outermost: list[str] = []  # alternatives, as they are written
        whole = self._alternatives(self._outermost)
        if self._place < len(self.source):
            raise NotUnderstood(self.source)
        self._single = [self._atoms[atom] for atom in whole.first & whole.last - self._peeking]

    def keeps_apart(self, before: frozenset[str], after: frozenset[str]) -> bool:
        """Whether a text may be cut between any of `before` and any of `after`, and no match changes."""
        over = any(self._atoms[left] & before and self._atoms[right] & after for left, right in self._follow)
        looking = any(self._atoms[atom] & before for atom in self._peeking)
        return not over and (not looking or (before == {"\n"} and self._ends_lines_first()))

    def always_matches(self, characters: frozenset[str]) -> bool:
        """Whether each of them alone begins a match, if none reaches over it: then it begins one."""
        return characters <= frozenset[str]().union(*self._single)

    def _ends_lines_first(self) -> bool:
        """White space up to the last end of line is taken before what would look behind it."""
        alternatives = [each.replace("\r", r"\r").replace("\n", r"\n") for each in self._outermost]
        ends = [place for place, each in enumerate(alternatives) if each in _LINE_ENDS]
        looks = [place for place, each in enumerate(alternatives) if "(?!" in each]
        return bool(ends) and all(place > ends[0] and alternatives[place] == _SPACES_BUT_LAST for place in looks)

    # The parser: each method takes what it names off the front of what is left.

    def _alternatives(self, written: list[str]) -> _Part:
        parts: list[_Part] = []
        while not parts or self._take("|"):
            start = self._place
            parts.append(self._sequence())
            written.append(self.source[start : self._place])
        first, last = (frozenset[int]().union(*(getattr(part, end) for part in parts)) for end in ("first", "last"))
        return _Part(any(part.nullable for part in parts), first, last)

    def _sequence(self) -> _Part:
        whole = _Part(nullable=True)
        while self._place < len(self.source) and self.source[self._place] not in "|)":
            if self._take(r"(?!\S)"):
                self._peeking |= whole.last
                continue
            part = self._counted()
            self._follow |= {(left, right) for left in whole.last for right in part.first}
            first = whole.first | part.first if whole.nullable else whole.first
            last = whole.last | part.last if part.nullable else part.last
            whole = _Part(whole.nullable and part.nullable, first, last)
        return whole

    def _counted(self) -> _Part:
        part = self._one()
        if count := _COUNT.match(self.source, self._place):
            self._place = count.end()
            repeated, nullable = count[2] == "," or int(count[1]) > 1, int(count[1]) == 0
        else:
            repeated, nullable = next((each for mark, each in _MARKS.items() if self._take(mark)), (False, False))
        if self.source[self._place : self._place + 1] in ("*", "+", "{") and self._place < len(self.source):
            raise NotUnderstood(self.source)
        self._take("?")  # as few as possible: the same matches, in another order
        if repeated:
            self._follow |= {(left, right) for left in part.last for right in part.first}
        return _Part(part.nullable or nullable, part.first, part.last)

    def _one(self) -> _Part:
        if self._take("("):
            return self._group()
        if self._take("["):
            return self._atom(self._class())
        if self._take("\\"):
            return self._atom(self._escape())
        if self._take("."):
            return self._atom(CHARACTERS - {"\n"})
        if (character := self._next()) in "^$*+?{)]}":
            raise NotUnderstood(self.source)
        return self._atom(self._literal(character))

    def _group(self) -> _Part:
        kept = self._ignore_case
        if self._take("?i:"):
            self._ignore_case = True
        elif not self._take("?:") and self.source[self._place : self._place + 1] == "?":
            raise NotUnderstood(self.source)
        part = self._alternatives([])
        self._ignore_case = kept
        if not self._take(")"):
            raise NotUnderstood(self.source)
        return part

    def _class(self) -> frozenset[str]:
        negated = self._take("^")
        matched: frozenset[str] = frozenset()
        while not self._take("]"):
            character = self._next()
            if character == "[" or (character == "&" and self.source[self._place : self._place + 1] == "&"):
                raise NotUnderstood(self.source)
            if character == "\\":
                matched |= self._escape()
            elif self.source.startswith("-", self._place) and self.source[self._place + 1 :][:1] not in ("]", ""):
                self._next()
                matched |= self._range(character, self._next())
            else:
                matched |= self._literal(character)
        return CHARACTERS - matched if negated else matched

    def _range(self, low: str, high: str) -> frozenset[str]:
        han_low, han_high = min(HAN), max(HAN)
        if high in "\\[" or han_low < low <= han_high or han_low <= high < han_high:
            raise NotUnderstood(self.source)
        return frozenset(character for character in CHARACTERS if low <= character <= high)

    def _escape(self) -> frozenset[str]:
        kind = self._next()
        if kind in "pP":
            return self._category(kind == "P")
        if kind.lower() in _CLASSES:
            matched = _CLASSES[kind.lower()]
            return matched if kind.islower() else CHARACTERS - matched
        if kind in _ESCAPES:
            return self._literal(_ESCAPES[kind])
        if kind.isalnum():
            raise NotUnderstood(self.source)
        return self._literal(kind)

    def _category(self, negated: bool) -> frozenset[str]:
        end = self.source.find("}", self._place)
        name = self.source[self._place + 1 : end].removeprefix("^")
        if self.source[self._place : self._place + 1] != "{" or end < 0 or not _CATEGORIES.fullmatch(name):
            raise NotUnderstood(self.source)
        negated ^= self.source[self._place + 1] == "^"
        self._place = end + 1
        matched = frozenset(each for each in CHARACTERS if unicodedata.category(each).startswith(name))
        return CHARACTERS - matched if negated else matched

    def _literal(self, character: str) -> frozenset[str]:
        if min(HAN) < character < max(HAN):
            raise NotUnderstood(self.source)
        both = {character.lower(), character.upper()} if self._ignore_case else {character}
        return CHARACTERS & both

    def _atom(self, matched: frozenset[str]) -> _Part:
        self._atoms.append(matched)
        number = frozenset({len(self._atoms) - 1})
        return _Part(False, number, number)

    def _take(self, text: str) -> bool:
        found = self.source.startswith(text, self._place)
        self._place += len(text) if found else 0
        return found

    def _next(self) -> str:
        if self._place >= len(self.source):
            raise NotUnderstood(self.source)
        self._place += 1
        return self.source[self._place - 1]
