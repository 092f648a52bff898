"""Stack: what a hung worker's signal handler wrote -> the lines that tell a person where it hangs."""

from __future__ import annotations

import re

_THREAD = re.compile(r"(?=^(?:Current thread|Thread) 0x)", re.MULTILINE)
_IDLE = "_die_with_the_driver"  # every worker has this thread, and it always waits
_MOST_LINES = 25  # a message is one screen; the outermost frames are penstock's own


def working_stack(dump: str, most_lines: int = _MOST_LINES) -> str:
    """The threads that do the work, innermost frame first, as many lines as fit."""
    threads = [part.strip() for part in _THREAD.split(dump) if part.strip() and _IDLE not in part]
    lines = "\n".join(threads).splitlines()
    if len(lines) <= most_lines:
        return "\n".join(lines)
    return "\n".join([*lines[:most_lines], f"  ... and {len(lines) - most_lines} lines more (events.jsonl has all)"])
