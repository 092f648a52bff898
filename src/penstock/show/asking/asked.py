"""Asked: the job file or preset that a command names, with the command's options on top -> a Config and its Plan."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.processes.nursery import Nursery
from penstock.prepare.entry import plan_with
from penstock.prepare.job.config import Config, load_config, understood
from penstock.prepare.job.job_file import read_yaml
from penstock.prepare.job.job_text import job_text
from penstock.prepare.job.presets import PRESETS, Preset
from penstock.prepare.plan.plan import Plan
from penstock.show.asking.older_names import into_stages, refuse_contradiction
from penstock.show.asking.overrides import Override, lay_over
from penstock.show.asking.preset_job import preset_job, with_casts


@dataclass(frozen=True)
class Asked:
    """A job, and who asked for it: errors name the option, the file or the preset."""

    name: str
    config: Config
    overrides: Sequence[Override] = ()
    preset: Preset | None = None
    # The job file that a preset or another program's config is short for.
    job: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()  # keys of that config that mean nothing here


def load_job(name: str, overrides: Sequence[Override], older: Sequence[Override] = ()) -> Asked:
    """The job file of that name, or the preset if there is none, with the overrides on top."""
    refuse_contradiction(older, overrides)
    if not os.path.isfile(name) and name in PRESETS:
        preset, every = PRESETS[name], [*overrides, *older]
        job = preset_job(preset, every)
        with naming(every, f"of preset {name}", preset):
            return Asked(name, Config(job), every, preset, job)
    if not os.path.exists(name):
        raise _missing(name)
    laid = {**_written(name), **lay_over(_written(name), overrides)}
    try:
        translated = understood(laid)
    except ConfigError:
        load_config(name, lay_over(_written(name), overrides))  # which knows the line
        raise
    written = translated.job
    placed = into_stages(older, {**written, **lay_over(written, overrides)})
    refuse_contradiction(placed, overrides)
    every = [*overrides, *placed]
    with naming(every, f"on top of {name}"):
        config = load_config(name, lay_over({**laid, **written}, every))
    is_ours = not translated.notes and written == laid
    return Asked(name, config, every, job={} if is_ours else written, notes=translated.notes)


def plan_job(asked: Asked, workers: Nursery) -> Plan:
    """The plan of the job. An error about the input's columns also names the option, the file or the preset."""
    about = f"of preset {asked.name}" if asked.preset else f"on top of {asked.name}"
    with naming(asked.overrides, about, asked.preset):
        return plan_with(workers, with_casts(asked.preset, asked.config) if asked.preset else asked.config)


def told(asked: Asked) -> str:
    """Another program's config as a job file of ours; nothing for a job file."""
    if not asked.job or asked.preset:
        return ""
    notes = "".join(f"\n  {note}" for note in asked.notes)
    return f"{asked.name} is understood as this job file:\n\n{job_text(asked.job)}{notes}".rstrip() + "\n"


def _missing(name: str) -> ConfigError:
    beside = [str(each) for suffix in ("*.yaml", "*.yml") for each in sorted(Path(name).parent.glob(suffix))]
    known = [*PRESETS, *beside]
    return ConfigError(
        f"there is no job file {name!r}, and no preset of that name. Presets: {', '.join(PRESETS)}."
        f"{did_you_mean(name, known)}",
        where=os.getcwd(),
        next_step="`penstock init` writes a job file to start from",
    )


def _written(path: str) -> dict[str, Any]:
    """The file's top-level keys, or none where load_config will say what is wrong with it."""
    try:
        written = read_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    return written if isinstance(written, dict) else {}


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
