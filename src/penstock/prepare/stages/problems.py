"""Problems: what pydantic says about a wrong option -> a sentence of ours. pydantic's errors come as dicts."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from penstock.base.errors import did_you_mean

_OUR_WORDS = {
    "Input should be a valid tuple": "expected a list",
    "Input should be a valid list": "expected a list",
    "Input should be a valid dictionary": "expected a mapping",
    "Input should be a valid": "expected a",
    "Input should be": "expected a value",
}


def problem(path: str, found: Mapping[str, Any], internal: Collection[str] = ()) -> str:
    """`slice_size: expected a string, got 5`. `internal` words are allowed, and not offered."""
    if found["type"] == "literal_error":
        words = [word for word in re.findall(r"'([^']*)'", found["ctx"]["expected"]) if word not in internal]
        given = found["input"]
        return f"{path}: {given!r} is not one of {', '.join(words)}.{did_you_mean(str(given), words)}"
    message = str(found["msg"]).removeprefix("Value error, ")
    for words_of_pydantic, ours in _OUR_WORDS.items():
        message = message.replace(words_of_pydantic, ours).replace("a integer", "an integer")
    got = "" if found["type"] == "value_error" else f", got {found['input']!r}"
    return f"{path}: {message}{got}" if path else message
