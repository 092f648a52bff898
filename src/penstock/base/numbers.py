"""Numbers: checks whether an option is a number of the wanted kind; and one that keeps how it was written."""

import math
import operator
from decimal import Decimal, InvalidOperation
from numbers import Real
from typing import Any


def is_whole(value: Any, least: int, most: int) -> bool:
    """A whole number of Python or numpy, which True and 3.0 are not."""
    try:
        return not _is_truth(value) and least <= operator.index(value) <= most
    except TypeError:
        return False


def is_positive(value: Any) -> bool:
    """A finite number above 0, of Python or numpy."""
    return isinstance(value, Real) and not _is_truth(value) and bool(0 < value < math.inf)  # type: ignore[operator]


def is_not_finite(value: Any) -> bool:
    """NaN or an infinity, which JSON does not have."""
    return isinstance(value, float) and not math.isfinite(value)


def for_json(value: Any) -> Any:
    """The value with NaN and infinities as text, also those in lists: JSON, and so a fingerprint, has none of them."""
    if isinstance(value, list | tuple):
        return [for_json(each) for each in value]
    return str(value) if is_not_finite(value) else value


def _is_truth(value: Any) -> bool:
    """Whether it is True or False, which Python counts as numbers."""
    return type(value).__name__ in ("bool", "bool_")


class WrittenFloat(float):
    """A number with a point or an exponent, with all the digits that were written."""

    text: str

    @property
    def exact(self) -> Decimal:
        try:
            return Decimal(self.text.replace("_", ""))
        except InvalidOperation:  # .inf and .nan
            return Decimal(self)
