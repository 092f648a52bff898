"""Arriving: messages to a node -> objects, with the user's code that they name."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from penstock.base.errors import PenstockError, TaskError
from penstock.base.sizes import format_size
from penstock.base.user_code import accept, code_identity, current_sources, load_user_object, refuse_other_values
from penstock.base.user_code.carried import is_carried, packed

MOST_BYTES = 16 << 20  # of a message: rows of data do not travel through Ray


def version() -> str:
    """The version of penstock here."""
    return str(sys.modules["penstock"].__dict__["__version__"])


def message_of(message: Any, what: str) -> bytes:
    """Pack a message with the carried code that it names. Refuses one that is too large for paths and settings."""
    data, named = packed(message)
    return refuse_large(pickle.dumps((named, data), protocol=5), what)


def refuse_large(message: bytes, what: str) -> bytes:
    if len(message) > MOST_BYTES:
        raise TaskError(
            f"defect: {what} takes {format_size(len(message))}; at most {format_size(MOST_BYTES)} may travel through "
            "Ray, whose object store is not for data",
            next_step="run the job with `engine: local`, and report this",
        )
    return message


def unpacked(message: bytes) -> Any:
    named, data = pickle.loads(message)
    accept(named)
    return pickle.loads(data)


def find_modules(path: Sequence[str], folder: str) -> None:
    """Search modules where the driver does, after the node's own places. Work in the driver's folder if it is here."""
    sys.path.extend(each for each in path if each not in sys.path and os.path.isdir(each))
    with suppress(OSError):
        os.chdir(folder)


def code_problems(message: bytes, path: Sequence[str]) -> list[str]:
    """Problems with the user's code on this node, one sentence per target."""
    find_modules(path, ".")
    with current_sources():
        return [problem for target, identity in unpacked(message) if (problem := _problem(target, identity))]


def _problem(target: str, identity: str) -> str:
    try:
        if not is_carried(target):
            load_user_object(target)
        refuse_other_values(target)
        return "" if code_identity(target) == identity else f"{target} has other code there"
    except PenstockError as error:
        return f"{target}: {error.what}"
    except Exception as error:
        return f"{target}: {type(error).__name__}: {error}"
