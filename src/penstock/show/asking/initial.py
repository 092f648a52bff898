"""Initial: what `penstock init` was given -> a job file, and what to do with it next."""

import os
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from penstock.base.errors import ConfigError, OutputError
from penstock.base.paths import local_path
from penstock.show.asking.proposing.looking import look
from penstock.show.asking.proposing.proposal import free_output, propose
from penstock.show.asking.starter import write_job

_DEFAULT = "job.yaml"
_YAML = (".yaml", ".yml")


def initial_facts(paths: Sequence[str], output: str | None) -> dict[str, Any]:
    """Write the job. Without files, or with the name of a job file alone, it is the one that explains every key."""
    if len(paths) == 1 and paths[0].lower().endswith(_YAML) and not os.path.isdir(paths[0]):
        if output:
            raise ConfigError(
                f"{paths[0]} is the name of a job file, but -o names another", next_step=f"penstock init -o {output}"
            )
        return write_job(paths[0])
    place = local_path(output or _DEFAULT, is_output=True)
    if not paths:
        return write_job(place)
    folder = os.path.dirname(os.path.abspath(place))
    if os.path.lexists(place):  # before the files are read; `write_job` makes sure
        raise OutputError(
            "a file of that name exists already, and it is not overwritten",
            where=os.path.abspath(place),
            next_step="choose another name: penstock init PATH -o another_name.yaml",
        )
    free = free_output(folder)
    proposal = propose(look(paths, folder, free), free)
    return {
        **write_job(place, proposal.text),
        "kind": proposal.kind,
        "questions": list(proposal.questions),
        "job": proposal.text,
    }


def initial_lines(facts: dict[str, Any]) -> list[Text]:
    path = facts["written"]
    if "kind" not in facts:
        return [
            Text(f"wrote {path}", style="green"),
            Text(f"Set `input:` in it, then `penstock plan {path}` and `penstock run {path}`."),
        ]
    count = len(facts["questions"])
    asked = f" It asks {'a question' if count == 1 else f'{count} questions'} in comments." if count else ""
    return [
        Text(f"wrote {path}: a job for {facts['kind']}.{asked}", style="green"),
        Text(facts["job"], no_wrap=True),
        Text(f"Next: `penstock plan {path}` and `penstock run {path}`."),
    ]
