"""Translated: what another program's config means here. Made by the other files of this folder."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ConfigError

_ALIKE = 0.85  # `stage` is meant for `stages`; `compute`, which such configs have, is nothing of ours


@dataclass(frozen=True)
class Translated:
    """The job file that the config means, and what of it means nothing here."""

    job: dict[str, Any]
    notes: tuple[str, ...]


def left_alone(keys: Iterable[Any], known: Iterable[str]) -> list[str]:
    """A note that names the keys which are about something else; refused is one that looks like a slip of the pen."""
    ignored = [str(key) for key in keys]
    for key in ignored:
        if meant := difflib.get_close_matches(key, list(known), 1, _ALIKE):
            raise ConfigError(f"{key}: unknown key. Did you mean {meant[0]!r}?")
    return [f"not about preparing data, and left alone: {', '.join(ignored)}"] if ignored else []
