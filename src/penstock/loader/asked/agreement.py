"""Agreement: open datasets -> whether their values mean the same, so that they can be mixed. Next: kinds/choice.py."""

import json
import os
import re
import warnings
from collections.abc import Sequence
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.fingerprint import digest
from penstock.base.stores import open_store
from penstock.loader.asked.opening import Opened
from penstock.shards.columns import FileFacts, damaged_file
from penstock.shards.origins import without_origins
from penstock.shards.packed import TOKENIZER, TOKENS
from penstock.shards.schema import Schema, Type

_NORMALIZE = re.compile(r"artifacts/normalize(-\d+)?\.json")
_SHORT = 12


def refuse_unlike(opened: Sequence[Opened]) -> None:
    """Refuse datasets that cannot be mixed, and warn of those of which it is not known."""
    first = opened[0]
    _refuse_other_tokenizers(opened)
    for other in opened[1:]:
        columns = without_origins(first.schema), without_origins(other.schema)
        if (other.old is None) != (first.old is None) or columns[0] != columns[1]:
            raise _differing(first, other)
        _warn_of_other_scales(first, other)
    _warn_of_no_tokenizer(opened)


def _differing(first: Opened, other: Opened) -> ConfigError:
    what, next_step = "their columns differ", "prepare them with the same stages, or load them apart"
    ours, theirs = _row_lengths(first.schema), _row_lengths(other.schema)
    if ours and theirs and ours != theirs:
        what = f"{what}: the rows of one have {theirs}, and those of the other {ours}"
        next_step = (
            "prepare both with the same `length` and `method` of `pack`: `wrapped` makes rows of one length, the other "
            "methods rows of any; or load them apart"
        )
    return ConfigError(
        f"{other.path} and {first.path} cannot be mixed: {what}",
        where=" against ".join(column_words(without_origins(each.schema)) for each in (other, first)),
        next_step=next_step,
    )


def _row_lengths(schema: Schema) -> str:
    """Lengths of rows of tokens, in words; empty for other data."""
    tokens: Type | None = {field.name: field.parsed for field in schema}.get(TOKENS)
    if tokens is None or not (tokens.is_fixed_list or tokens.is_list):
        return ""
    return f"{tokens.width:,} tokens each" if tokens.is_fixed_list else "any number of tokens"


def _refuse_other_tokenizers(opened: Sequence[Opened]) -> None:
    """Refuse datasets of different tokenizers: their tokens mean different things."""
    kept = [(each, file) for each in opened if (file := _artifact(each, TOKENIZER))]
    for other, file in kept[1:]:
        first, own = kept[0]
        if file.digest != own.digest:
            raise ConfigError(
                f"{other.path} and {first.path} cannot be mixed: their tokens were made by different tokenizers",
                where=" against ".join(
                    f"{os.path.join(each.path, TOKENIZER)} ({kept_file.digest[:_SHORT]})"
                    for each, kept_file in (kept[0], (other, file))
                ),
                next_step="prepare one of them again with the other's tokenizer, or load them apart",
            )


def _warn_of_no_tokenizer(opened: Sequence[Opened]) -> None:
    without = [each.path for each in opened if not _artifact(each, TOKENIZER)]
    if without and len(without) < len(opened):
        warnings.warn(
            f"{', '.join(without)} keeps no tokenizer, and the others do: whether their tokens mean the same is not "
            "known",
            UserWarning,
            stacklevel=4,
        )


def _warn_of_other_scales(first: Opened, other: Opened) -> None:
    """Warn if datasets were normalized with different statistics: equal values then mean different things."""
    one, two = (_scales(each) for each in (first, other))
    differing = sorted(name for name in {**one, **two} if one.get(name) != two.get(name))
    if differing:
        warnings.warn(
            f"{other.path} and {first.path} were normalized with different statistics: equal values of "
            f"{', '.join(differing)} mean different things in them (artifacts/normalize.json of each has the numbers)",
            UserWarning,
            stacklevel=4,
        )


def _scales(opened: Opened) -> dict[str, Any]:
    """Mean and standard deviation of each column that was normalized."""
    found: dict[str, Any] = {}
    for file in opened.manifest.artifacts if opened.manifest else ():
        if _NORMALIZE.fullmatch(file.file):
            data = open_store(opened.path).read(file.file)
            if digest(data) != file.digest:
                raise damaged_file(file.file, "is not the file that was written")
            columns = json.loads(data)
            found |= {name: (facts.get("mean"), facts.get("std")) for name, facts in columns.items()}
    return found


def _artifact(opened: Opened, name: str) -> FileFacts | None:
    files = opened.manifest.artifacts if opened.manifest else ()
    return next((file for file in files if file.file == name), None)


def column_words(schema: Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema) or "an .arrayrecord file"
