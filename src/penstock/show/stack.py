"""Stack: what a hung worker's signal handler wrote -> the lines that tell a person where it hangs."""

from __future__ import annotations

import re
from itertools import takewhile

_THREAD = re.compile(r"(?=^(?:Current thread|Thread) 0x)", re.MULTILINE)
# Threads of ours that only wait: for the driver to end, and between two looks at the memory.
_WATCHING = re.compile(r"penstock/prepare/.*line \d+ in (?:_die_with_the_driver|watch)$", re.MULTILINE)
_ENGINE = re.compile(r'File ".*penstock/prepare/(?:task|engines/\w+)\.py"')  # from here outwards it is our own affair


def working_stack(dump: str) -> str:
    """The frames of the threads that do the work, innermost first, down to where penstock called them."""
    threads = [part.strip() for part in _THREAD.split(dump) if part.strip() and not _WATCHING.search(part)]
    return "\n".join(line for thread in threads for line in _frames(thread.splitlines()))


def _frames(thread: list[str]) -> list[str]:
    frames = thread[1:] if _THREAD.match(thread[0]) else thread
    inner = list(takewhile(lambda line: not _ENGINE.search(line), frames))
    return inner or frames
