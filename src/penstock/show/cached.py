"""Cached: the cache of this user -> what it holds, in words, and what was removed from it."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.cache import Holding, cache_root, clear, held, why_unusable
from penstock.base.sizes import counted, format_size


def cache_words() -> tuple[str, str]:
    """(what the cache holds and where, what to change so that it can be used)."""
    found = held()
    size = format_size(sum(each.bytes for each in found))
    error = why_unusable()
    if error:
        return f"{cache_root()} cannot be used: {error.what}", error.next_step or ""
    return f"{size} at {cache_root()}: {_listed(found)}", ""


def cleared_facts() -> dict[str, Any]:
    return {"folder": str(cache_root()), "removed": [asdict(each) for each in clear()]}


def cleared_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    removed = [Holding(**each) for each in facts["removed"]]
    size = format_size(sum(each.bytes for each in removed))
    yield Text(f"removed {size} from {facts['folder']}: {_listed(removed)}")


def _listed(found: Sequence[Holding]) -> str:
    return ", ".join(f"{each.what} in {counted(each.files, 'file')}" for each in found)
