"""Values: the values of a decoded record -> JSON for programs, one short line for people."""

from __future__ import annotations

import json
import math
from typing import Any

_MOST_CHARACTERS = 200


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
    text = value if isinstance(value, str) else json.dumps(_rounded(value), ensure_ascii=False)
    text = text.replace("\n", "\\n").replace("\r", "\\r")
    if len(text) <= most:
        return text
    size = f"{len(value):,} values" if isinstance(value, list) else f"{len(text):,} characters"
    return f"{text[:most]}... ({size})"


def _rounded(value: Any) -> Any:
    """Seven digits: as many as a float32 has, so that 0.1 does not read 0.10000000149011612."""
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value
