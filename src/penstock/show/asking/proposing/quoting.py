"""Quoting: a name from data -> YAML on one line, quoted only if it has to be."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from penstock.prepare.job.job_file import read_yaml

_PLAIN = re.compile(r"[^\W\d][\w./*-]*")


def quoted(name: str) -> str:
    """The name as it can stand anywhere in a job file, in a comment too: newlines and the like are escaped."""
    if _PLAIN.fullmatch(name) and read_yaml(f"{{key: {name}}}") == {"key": name}:
        return name
    dumped = yaml.safe_dump(name, default_style='"', allow_unicode=True, width=float("inf"))
    return str(dumped).strip()


def quoted_list(names: Iterable[str]) -> str:
    return f"[{', '.join(map(quoted, names))}]"


def quoted_mapping(pairs: Mapping[str, Any]) -> str:
    """Names and numbers: `{by: user, test: 0.1}`."""
    values = {key: quoted(value) if isinstance(value, str) else value for key, value in pairs.items()}
    return "{" + ", ".join(f"{quoted(key)}: {value}" for key, value in values.items()) + "}"
