"""Asked: the job file or preset that a command names, with the command's options on top -> a Config and its Plan."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from penstock.base.errors import ConfigError, did_you_mean
from penstock.prepare.entry import plan
from penstock.prepare.job.config import Config, load_config, make_config, understood
from penstock.prepare.job.job_file import read_yaml
from penstock.prepare.job.presets import PRESETS, Preset
from penstock.prepare.plan.plan import Plan
from penstock.show.asking.naming import naming
from penstock.show.asking.older_names import into_stages, refuse_contradiction
from penstock.show.asking.overrides import Override, lay_over
from penstock.show.asking.preset_job import job_text, preset_job, with_casts


@dataclass(frozen=True)
class Asked:
    """A job, and who asked for it: errors name the option, the file or the preset."""

    name: str
    config: Config
    overrides: Sequence[Override] = ()
    preset: Preset | None = None
    job: Mapping[str, Any] = field(
        default_factory=dict
    )  # the job file that a preset or another program's config is short for
    notes: Sequence[str] = ()  # keys of that config that mean nothing here


def load_job(name: str, overrides: Sequence[Override], older: Sequence[Override] = ()) -> Asked:
    """The job file of that name, or the preset if there is none, with the overrides on top."""
    refuse_contradiction(older, overrides)
    if not os.path.isfile(name) and name in PRESETS:
        return _load_preset(PRESETS[name], [*overrides, *older])
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


def _load_preset(preset: Preset, overrides: Sequence[Override]) -> Asked:
    job = preset_job(preset, overrides)
    with naming(overrides, f"of preset {preset.name}", preset):
        return Asked(preset.name, make_config(job), overrides, preset, job)


def plan_job(asked: Asked) -> Plan:
    """The plan of the job. An error about the input's columns also names the option, the file or the preset."""
    about = f"of preset {asked.name}" if asked.preset else f"on top of {asked.name}"
    with naming(asked.overrides, about, asked.preset):
        return plan(with_casts(asked.preset, asked.config) if asked.preset else asked.config)


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
