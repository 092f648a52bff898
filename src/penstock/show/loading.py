"""Loading: the words of a command line -> a Loader, or a refusal that names the option. Next: bench.py, tokens.py."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import yaml

from penstock.base.errors import ConfigError
from penstock.base.sizes import parse_size
from penstock.loader.binding import bind, is_grouped
from penstock.loader.load import load
from penstock.loader.loader import Loader
from penstock.loader.rows import TOKENS, is_token_rows
from penstock.loader.vocabulary import PINGS, Vocabulary, make_vocabulary
from penstock.shards.dataset import Dataset, open_dataset
from penstock.shards.schema import Schema


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was asked for, as it was typed. `usual_length` is that of rows whose length nobody said."""

    path: str
    split: str = "train"
    batch_size: int = 128
    length: int | None = None
    usual_length: int = 1024
    fill: str = "packed"
    seed: int = 0
    workers: str = "auto"
    memory: str | None = None
    cache: str | None = None
    fields: str | None = None
    columns: str | None = None

    def settled(self) -> Asked:
        """With a length where none was said: rows of tokens may have one of their own."""
        if self.length is not None:
            return self
        kind = next((field.parsed for field in self.schema() if field.name == TOKENS), None)
        width = kind.width if kind and kind.name == "fixed_size_list" else self.usual_length + 1
        return replace(self, length=min(self.usual_length, width - 1))

    def has_tokens(self) -> bool:
        """Or arrays, which are handed out as they are."""
        schema = self.schema()
        return not schema or bool(self.fields) or is_grouped(schema) or is_token_rows(schema)

    def schema(self) -> Schema:
        """Of a dataset; of .arrayrecord files, which hold events and nothing else, it is empty."""
        dataset = open_dataset(self.path, self.split)
        return dataset.schema if isinstance(dataset, Dataset) else ()

    def open(self) -> Loader:
        columns = [column.strip() for column in self.columns.split(",")] if self.columns else None
        return load(
            self.path,
            self.split,
            batch_size=self.batch_size,
            length=self.length,
            seed=self.seed,
            workers=_parse_workers(self.workers),
            memory=_checked_size(self.memory),
            fill=cast(Any, self.fill),
            cache=cast(Any, self.cache),
            fields=_parse_fields(self.fields),
            columns=columns,
        )

    def vocabulary(self) -> Vocabulary:
        """That its events are encoded with, the width of every number decided by its column."""
        fields = _parse_fields(self.fields)
        made = make_vocabulary(fields) if fields else PINGS
        schema = self.schema()
        return bind(made, schema, self.path).vocabulary if schema else made


def _parse_workers(text: str) -> Any:
    """`auto` or a number; load() refuses the rest of them."""
    if text == "auto" or text.isdecimal():
        return text if text == "auto" else int(text)
    raise ConfigError(
        f"{text!r} is no number of threads", where=f"--workers {text}", next_step="auto, or a number such as 2"
    )


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
