"""Job file: YAML on disk -> its keys and their line numbers; also translates configs of other programs."""

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.files import special_kind
from penstock.base.paths import local_path

_WHOLE = r"^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+)$"


@dataclass(frozen=True)
class JobFile:
    path: Path
    written: dict[str, Any]
    lines: dict[str, int]  # of each path into it: `stages[2].filter`

    def place(self, what: str) -> str:
        """`job.yaml, line 7`: the line of the longest known path that the message starts with."""
        spellings = [what, what.replace("[0]", "", 1)]  # one source may be written without a list
        known = [name for name in self.lines if any(spelling.startswith(name) for spelling in spellings)]
        return f"{self.path}, line {self.lines[max(known, key=len)]}" if known else str(self.path)


def read_job_file(name: str | os.PathLike[str]) -> JobFile:
    path = Path(local_path(name))
    _refuse_special(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read the job file: {error}",
            where=str(path),
            next_step="`penstock init` writes one to start from",
        ) from error
    return JobFile(path, *_read(text, path))


def _refuse_special(path: Path) -> None:
    """Refuse a FIFO, which would block without a message. `/dev/stdin` and `/dev/fd/3` are allowed."""
    kind = special_kind(str(path))
    if kind and not (kind == "FIFO" and str(path).startswith("/dev/")):
        raise ConfigError(
            f"the job file is a {kind}, not a file",
            where=str(path),
            next_step="name a YAML file; `penstock init` writes one to start from",
        )


def _read(text: str, path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """(contents of the job file, line number of each path into it)."""
    lines: dict[str, int] = {}
    try:
        _note_lines(yaml.compose(text, Loader=yaml.SafeLoader), "", lines)
        written = read_yaml(text)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        next_step = _quoting(text, error)
        raise ConfigError(f"not YAML: {error.problem}", where=f"{path}{line}", next_step=next_step) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}", where=str(path)) from error
    except RecursionError as error:
        raise ConfigError("its lists and mappings are nested too deeply", where=str(path)) from error
    except _WrittenTwice as twice:
        raise ConfigError(f"{twice.name}: written twice", where=f"{path}, line {twice.line}") from twice
    if not isinstance(written, dict):
        raise ConfigError("a job is a mapping with `input:`, `output:` and `stages:`", where=str(path))
    return written, lines


def _quoting(text: str, error: yaml.MarkedYAMLError) -> str | None:
    """The advice for a condition with characters that mean something in YAML, such as brackets."""
    numbers = [mark.line for mark in (error.context_mark, error.problem_mark) if mark]
    lines = text.splitlines()
    if any("filter:" in line for line in lines[min(numbers, default=0) : max(numbers, default=0) + 1]):
        return """put quotes around the condition: - filter: "words[0] == 'a'\""""
    return None


def read_yaml(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)


class _Loader(yaml.SafeLoader):
    """YAML without numbers of base 60: `skip: [10:20]` is a range, and not 620."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, re.compile(_WHOLE) if tag.endswith(":int") else pattern) for tag, pattern in resolvers]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _WrittenTwice(Exception):
    def __init__(self, name: str, line: int) -> None:
        super().__init__(name)
        self.name, self.line = name, line


def _note_lines(node: yaml.Node | None, path: str, lines: dict[str, int]) -> None:
    """Remember the line of every key, and refuse a key that is written twice: YAML would drop the first."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{path}.{key.value}" if path else str(key.value)
            line = key.start_mark.line + 1
            if name in lines:
                raise _WrittenTwice(name, line)
            lines[name] = line
            _note_lines(value, name, lines)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            lines[f"{path}[{number}]"] = value.start_mark.line + 1
            _note_lines(value, f"{path}[{number}]", lines)


_ALIKE = 0.85  # `stage` is meant for `stages`; `compute`, which such configs have, is nothing of ours


@dataclass(frozen=True)
class Translated:
    """The equivalent job file, and the keys of the config that are ignored."""

    job: dict[str, Any]
    notes: tuple[str, ...]


def left_alone(keys: Iterable[Any], known: Iterable[str]) -> list[str]:
    """A note that names ignored keys. A key that looks misspelled is refused."""
    ignored = [str(key) for key in keys]
    for key in ignored:
        if meant := difflib.get_close_matches(key, list(known), 1, _ALIKE):
            raise ConfigError(f"{key}: unknown key. Did you mean {meant[0]!r}?")
    return [f"not about preparing data, and left alone: {', '.join(ignored)}"] if ignored else []


def refuse_unknown(written: Iterable[Any], known: Sequence[str], path: str = "") -> None:
    for key in written:
        if key not in known:
            raise ConfigError(
                f"{path}{key}: unknown key. Keys: {', '.join(known)}.{did_you_mean(str(key), list(known))}"
            )
