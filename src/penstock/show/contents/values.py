"""Values: a value of a record -> its JSON form, and the one line that a person gets to see of it."""

import json
import math
from typing import Any

_MOST_CHARACTERS = 200  # of a text
_MOST_OF_A_LIST = 60  # what of its values stands before the count


def jsonable(value: Any) -> Any:
    """JSON's own types as they are; NaN, times, decimals and bytes by their text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    if isinstance(value, dict):
        return {str(key): jsonable(each) for key, each in value.items()}
    return str(value)


def short(value: Any, most: int = _MOST_CHARACTERS) -> str:
    """One line, cut where it is too long, with the size of what was cut."""
    if isinstance(value, list):
        return _short_list(value, min(most, _MOST_OF_A_LIST))
    text = _text(value)
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters)"


def _short_list(values: list[Any], most: int) -> str:
    """The first values and how many there are; a value that all of them have stands once."""
    if len(values) > 2 and all(each == values[0] for each in values):
        return f"{short(values[0], most)} (all {len(values):,} values)"
    shown: list[str] = []
    for each in values:
        text = short(each, most)
        if shown and len(", ".join([*shown, text])) > most:
            return f"{', '.join(shown)}, ... ({len(values):,} values)"
        shown.append(text)
    return f"[{', '.join(shown)}]"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(_rounded(value), ensure_ascii=False)
    return text.replace("\n", "\\n").replace("\r", "\\r")


def _rounded(value: Any) -> Any:
    """Seven digits: as many as a float32 has, so that 0.1 does not read 0.10000000149011612."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value
