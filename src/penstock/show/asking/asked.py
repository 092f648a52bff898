"""Asked: the job file or preset that a command names, with the command's options on top -> a Config and its Plan."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.memory import make_budget
from penstock.prepare.job.config import Config, load_config, make_config, understood
from penstock.prepare.job.job_file import read_yaml
from penstock.prepare.job.presets import PRESETS, REQUIRED, Preset
from penstock.prepare.plan.plan import Plan
from penstock.prepare.survey.casts import casts_needed
from penstock.show.asking.older_names import into_stages, refuse_contradiction
from penstock.show.asking.overrides import Override, lay_over

_KEYS = [name for name, field in Config.model_fields.items() if not field.exclude]


@dataclass(frozen=True)
class Asked:
    """What is to be done, and who said so: errors name the option, the file or the preset."""

    name: str
    config: Config
    overrides: Sequence[Override] = ()
    preset: Preset | None = None
    job: Mapping[str, Any] = field(default_factory=dict)  # what a preset, or another program's config, is short for
    notes: Sequence[str] = ()  # what of that config means nothing here


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
    with _naming(every, f"on top of {name}"):
        config = load_config(name, lay_over({**laid, **written}, every))
    is_ours = not translated.notes and written == laid
    return Asked(name, config, every, job={} if is_ours else written, notes=translated.notes)


def plan_job(asked: Asked) -> Plan:
    """What the job would do; an error found against the input's columns is told by option, file or preset, too."""
    from penstock.prepare.entry import plan

    about = f"of preset {asked.name}" if asked.preset else f"on top of {asked.name}"
    with _naming(asked.overrides, about, asked.preset):
        return plan(_with_casts(asked.preset, asked.config) if asked.preset else asked.config)


def _with_casts(preset: Preset, config: Config) -> Config:
    """The preset's job with a stage that casts, before it groups, where the format asks for certain types."""
    from penstock.prepare.run.halves import written
    from penstock.prepare.stages.interfaces import exchanges_of
    from penstock.prepare.survey.scouting import scout
    from penstock.prepare.survey.taking import take_survey

    if not preset.casts_for(config.format):
        return config
    survey = take_survey(config, scout, make_budget(config.memory))
    casts = casts_needed(preset, survey)
    if not casts:
        return config
    stages = written(config)["stages"]
    group = exchanges_of(survey.stages)[0]
    stages = [*stages[:group], {"cast": dict(casts)}, *stages[group:]]
    return make_config({**written(config), "stages": stages}, folder=config.folder)


def told(asked: Asked) -> str:
    """What another program's config means as a job file of ours; nothing for a job file."""
    if not asked.job or asked.preset:
        return ""
    notes = "".join(f"\n  {note}" for note in asked.notes)
    return f"{asked.name} is understood as this job file:\n\n{job_text(asked.job)}{notes}".rstrip() + "\n"


def job_text(job: Mapping[str, Any]) -> str:
    """A job as a file: one line a stage."""
    return str(yaml.safe_dump(dict(job), sort_keys=False, default_flow_style=None, width=1000, allow_unicode=True))


def _load_preset(preset: Preset, overrides: Sequence[Override]) -> Asked:
    _refuse_unknown(preset, overrides)
    settings = {each.keys[0]: each.value for each in overrides if each.keys[0] in preset.settings}
    others = [each for each in overrides if each.keys[0] not in (*preset.settings, *preset.fixed)]
    _refuse_missing(preset, settings, others)
    written = {"stages": preset.stages(settings)}
    keys = {**written, **lay_over(written, others)}
    job = {
        **_paths(keys),
        **{key: keys[key] for key in _KEYS if key in keys and key not in ("input", "output", "stages")},
    }
    job["stages"] = keys["stages"]
    with _naming(overrides, f"of preset {preset.name}", preset):
        return Asked(preset.name, make_config(job), overrides, preset, job)


def _paths(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Input and output as a person would write them into a file that lies here."""
    source = keys["input"]
    if isinstance(source, dict) and isinstance(source.get("path"), list):
        paths = [_relative(each) for each in source["path"]]
        source = {**source, "path": paths[0] if len(paths) == 1 else paths}
        source = source["path"] if len(source) == 1 else source
    return {"input": source, "output": _relative(keys["output"])}


def _relative(path: Any) -> Any:
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here) if isinstance(path, str) and path != here else path


def _refuse_unknown(preset: Preset, overrides: Sequence[Override]) -> None:
    for each in overrides:
        key = each.keys[0]
        if key in preset.fixed and each.value != preset.fixed[key]:
            raise ConfigError(
                f"preset {preset.name} is made for {key}: {preset.fixed[key]}",
                where=each.option,
                next_step="take the preset `events`, which groups by any columns",
            )
        known = [*preset.settings, *preset.fixed, *_KEYS]
        if key not in known or (key in preset.settings and len(each.keys) > 1):
            raise ConfigError(
                f"{'.'.join(each.keys)}: preset {preset.name} takes {', '.join(preset.settings)}, and the keys of a "
                f"job file: {', '.join(_KEYS)}.{did_you_mean(key, known)}",
                where=each.option,
            )


def _refuse_missing(preset: Preset, settings: Mapping[str, Any], others: Sequence[Override]) -> None:
    given = {each.keys[0] for each in others}
    missing = [f"--{key}" for key in ("input", "output") if key not in given]
    missing += [
        f"--set {key}={preset.blank}"
        for key, default in preset.settings.items()
        if default is REQUIRED and key not in settings
    ]
    if not missing:
        return
    blanks = {key: preset.blank for key, default in preset.settings.items() if default is REQUIRED}
    job = {"input": "PATH", "output": "PATH", "stages": preset.stages({**blanks, **settings})}
    required = " ".join(f"--set {key}={preset.blank}" for key in blanks)
    error = ConfigError(
        f"preset {preset.name} needs {', '.join(missing)}",
        where="the command line",
        next_step=f"penstock plan {preset.name} --input 'data/**/*.parquet' --output data/rows {required}".rstrip(),
    )
    error.add_note(f"{preset.name} is short for this job file:\n\n{job_text({**job, **lay_over(job, others)})}")
    raise error


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
def _naming(overrides: Sequence[Override], about: str, preset: Preset | None = None) -> Iterator[None]:
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
    """Where in its sentence the error speaks of what the option says; -1 if it does not."""
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
