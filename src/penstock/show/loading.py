"""Loading: the words of a command line -> a Loader, or a refusal that names the option. Next: bench.py, tokens.py."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import yaml

from penstock.base.errors import ConfigError
from penstock.base.sizes import parse_size
from penstock.loader.load import load
from penstock.loader.loader import Loader


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Options of a look or a benchmark, as they were typed.

    `usual_length` is for rows without a length of their own, if none was said. For a look, longer rows are cut to it.
    """

    path: str
    split: str | None = None
    batch_size: int = 128
    length: int | None = None
    usual_length: int = 1024
    is_a_look: bool = False
    fill: str | None = None
    seed: int = 0
    workers: str = "auto"
    memory: str | None = None
    cache: str | None = None
    fields: str | None = None
    augment: bool | None = None
    columns: str | None = None
    nulls: str | None = None
    window: str | None = None  # of records without tokens
    overflow: str | None = None

    def open(self) -> Loader:
        if self.length is not None:
            return self._load(self.length, self.overflow)
        with suppress(ConfigError):  # it has no length of its own; any other refusal comes again
            loader = self._load(None, self.overflow)
            if not self.is_a_look or loader.state()["recipe"].get("length", 0) <= self.usual_length:
                return loader
            loader.close()
        try:
            return self._load(self.usual_length, self.overflow)
        except ConfigError:  # rows of different lengths, some of them longer: cut, and counted
            if self.overflow is None:
                with suppress(ConfigError):
                    return self._load(self.usual_length, "truncate")
            raise

    def _load(self, length: int | None, overflow: str | None) -> Loader:
        return load(
            self.path,
            self.split,
            batch_size=self.batch_size,
            length=length,
            seed=self.seed,
            workers=_parse_workers(self.workers),
            memory=_checked_size(self.memory),
            fill=cast(Any, self.fill),
            cache=cast(Any, self.cache),
            fields=_parse_fields(self.fields),
            augment=self.augment,
            columns=_parse_names(self.columns),
            nulls=_parse_names(self.nulls),
            encode=None if self.window is None else "raw",
            window=_parse_window(self.window),
            overflow=cast(Any, overflow),
        )


def _parse_workers(text: str) -> Any:
    """`auto` or a number; load() refuses the rest of them."""
    if text == "auto" or text.isdecimal():
        return text if text == "auto" else int(text)
    raise ConfigError(
        f"{text!r} is not a number of threads", where=f"--workers {text}", next_step="auto, or a number such as 2"
    )


def _parse_names(text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",")] if text else None


def _parse_window(text: str | None) -> Any:
    """A word, or the stride of sliding windows; load() refuses other words."""
    return {"sliding": int(text)} if text is not None and text.isdecimal() else text


def _checked_size(text: str | None) -> str | None:
    try:
        if text is not None:
            parse_size(text, whole=1 << 40)
    except ValueError as error:
        raise ConfigError(str(error), where=f"--memory {text}") from error
    return text


def _parse_fields(text: str | None) -> dict[str, Any] | None:
    """`dst: ip, at: time, port: {int: 2}`, as load(fields=...) has it."""
    if text is None:
        return None
    where, usage = f"--fields {text}", "name columns and kinds: --fields 'dst: ip, at: time, port: {int: 2}'"
    try:
        fields = yaml.safe_load(text if text.lstrip().startswith("{") else f"{{{text}}}")
    except yaml.YAMLError as error:
        raise ConfigError(f"it is not YAML: {str(error).splitlines()[0]}", where=where, next_step=usage) from error
    if not isinstance(fields, dict) or not fields or any(kind is None for kind in fields.values()):
        raise ConfigError("it does not say how each column is encoded", where=where, next_step=usage)
    return {str(column): kind for column, kind in fields.items()}
