"""Naming: an error about a job -> the same error, with the option that said what is wrong."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from penstock.base.errors import ConfigError
from penstock.prepare.job.presets import Preset
from penstock.show.asking.overrides import Override


@contextmanager
def naming(overrides: Sequence[Override], about: str, preset: Preset | None = None) -> Iterator[None]:
    """An error in what an option says names the option, not a line of the file."""
    try:
        yield
    except ConfigError as error:
        places = [
            (place, -number) for number, each in enumerate(overrides) if (place := _place(error, each, preset)) >= 0
        ]
        if places:
            error.where = f"{overrides[-min(places)[1]].option}, {about}"
        error.where = error.where or about.removeprefix("on top of ").removeprefix("of ")
        raise


def _place(error: ConfigError, override: Override, preset: Preset | None) -> int:
    """Position in the error's sentence of what the option says; -1 if it is not mentioned."""
    if preset and override.keys[0] in preset.settings:  # a stage got it, and tells it by its name or its value
        values = override.value if isinstance(override.value, list) else [override.value]
        found = [error.what.find(word) for word in (f"{override.keys[0]}:", *map(repr, values))]
        return min((place for place in found if place >= 0), default=-1)
    spoken, said = _parts(error.what), _parts(override.path)
    if override.keys[0] == "input" and spoken[1:2] == ["0"] and said[1:2] != ["0"]:
        spoken.pop(1)  # one source may be written without a list
    shared = min(len(spoken), len(said))
    return 0 if spoken[:shared] == said[:shared] else -1


def _parts(what: str) -> list[str]:
    """`stages[1].split: a sentence` begins with a path into the job: stages, 1, split."""
    return re.split(r"[.\[\]]+", re.split(r"[^\w.\[\]]", what)[0].rstrip("].["))
