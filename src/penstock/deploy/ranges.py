"""Ranges: values of options that a scheduler accepts. Others are refused with the option and the range."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from penstock.base.errors import ConfigError
from penstock.base.sizes import parse_size


@dataclass(frozen=True)
class Range:
    """The values that an option may have. `words` formats a value for people."""

    option: str
    lowest: float
    highest: float
    reason: str
    words: Callable[[float], str] = "{:,.10g}".format

    def taken(self, value: float, written: object = None) -> float:
        """The value, if it is in the range; `written` is how the user wrote it."""
        if self.lowest <= value <= self.highest:
            return value
        raise ConfigError(
            f"{self.option} {value if written is None else written} is not between {self.words(self.lowest)} and "
            f"{self.words(self.highest)}",
            where=self.option,
            next_step=self.reason,
        )


def size_of(option: str, text: str) -> int:
    """Bytes of a size on the command line."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}", where=option, next_step=f"{option} 32GB") from None


def name_of(option: str, text: str, allowed: str, words: str) -> str:
    """A name that matches `allowed`, a regular expression; `words` describes it."""
    if re.fullmatch(allowed, text):
        return text
    raise ConfigError(f"{option} {text!r} is not a name that can be used there", where=option, next_step=words)
