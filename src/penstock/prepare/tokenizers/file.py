"""File: the name of a tokenizer -> its tokenizer.json, and which tokens begin and end a text. Next: proof.py."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, InputError
from penstock.prepare.tokenizers.outline import Outline, read_outline

TOKENIZER = "tokenizer.json"
# Who says which token ends a text, the first that does is believed. The last two name ids, not tokens.
_BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json")
_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_UINT16_IDS = 1 << 16


@dataclass(frozen=True)
class SpecialToken:
    text: str
    id: int


@dataclass(frozen=True)
class TokenizerFile:
    """A tokenizer that was found and not loaded."""

    name: str  # as the job has it
    location: str  # its tokenizer.json
    digest: str
    vocabulary_size: int  # the largest id + 1, added tokens included
    bos: SpecialToken | None
    eos: SpecialToken | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest that holds every id and that the loader reads."""
        return np.dtype("u2" if self.vocabulary_size <= _UINT16_IDS else "i4")


def find_tokenizer(name: str, folder: str) -> TokenizerFile:
    """`name`: a tokenizer.json, a directory that holds one, or a hub id; a relative path is relative to `folder`."""
    looked: list[str] = []
    location = _local(name, folder, looked) or _from_hub(name, looked)
    if location is None:
        raise ConfigError(
            f"there is no tokenizer {name!r}",
            where="looked at " + "; ".join(looked),
            next_step=f"name a {TOKENIZER}, a directory that holds one, or a hub id (org/name)",
        )
    outline = read_outline(location)
    beside = list(_beside(location))
    bos, eos = (_special(outline, beside, kind) for kind in ("bos", "eos"))
    return TokenizerFile(name, location, outline.digest, outline.vocabulary_size, bos, eos)


def _local(name: str, folder: str, looked: list[str]) -> str | None:
    path = os.path.join(folder, os.path.expanduser(name))
    if os.path.isfile(path):
        return path
    inside = os.path.join(path, TOKENIZER)
    if os.path.isfile(inside):
        return inside
    if os.path.isdir(path):
        there = ", ".join(sorted(os.listdir(path))[:20]) or "nothing"
        raise ConfigError(
            f"the directory of the tokenizer holds no {TOKENIZER}",
            where=f"{path} (there is {there})",
            next_step="load it with transformers' AutoTokenizer and save_pretrained it: that writes one",
        )
    looked += [path, inside]
    return None


def _from_hub(name: str, looked: list[str]) -> str | None:
    """From the local cache of the hub if it is there, else downloaded into it."""
    if not _HUB_ID.fullmatch(name) or name.endswith(".json"):
        looked.append(f"the hub: not, {name!r} is no hub id")
        return None
    try:
        import huggingface_hub
    except ImportError:
        looked.append("the hub: not, huggingface_hub is not installed (pip install 'penstock[text]')")
        return None
    cached = huggingface_hub.try_to_load_from_cache(name, TOKENIZER)
    if isinstance(cached, str):
        return cached
    looked.append(f"the hub's cache, {huggingface_hub.constants.HF_HUB_CACHE}")
    try:
        location = str(huggingface_hub.hf_hub_download(name, TOKENIZER))
    except Exception as error:  # of the hub, of the network, of its libraries: all mean that it is not to be had
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        looked.append(f"the hub ({reason.strip()[:200]})")
        return None
    for other in _BESIDE:
        _try_download(name, other)
    return location


def _try_download(name: str, file: str) -> None:
    import contextlib

    import huggingface_hub

    with contextlib.suppress(Exception):  # most tokenizers have only some of them
        huggingface_hub.hf_hub_download(name, file)


def _beside(location: str) -> Iterator[dict[str, Any]]:
    for name in _BESIDE:
        path = os.path.join(os.path.dirname(location), name)
        if os.path.isfile(path):
            try:
                with open(path, encoding="utf-8") as handle:
                    said = json.load(handle)
            except (OSError, ValueError) as error:
                raise InputError(
                    f"cannot read what lies beside the tokenizer: {error}",
                    where=path,
                    next_step="repair the file, or move it away: then `add_eos` needs the token named in the job",
                ) from error
            if isinstance(said, dict):
                yield said


def _special(outline: Outline, beside: list[dict[str, Any]], kind: str) -> SpecialToken | None:
    """The token that begins (`bos`) or ends (`eos`) a text, if anything beside the tokenizer says so."""
    for said in beside:
        token, number = said.get(f"{kind}_token"), said.get(f"{kind}_token_id")
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str) and (known := outline.id_of(token)) is not None:
            return SpecialToken(token, known)
        number = number[0] if isinstance(number, list) and number else number
        if isinstance(number, int) and (text := outline.token_of(number)) is not None:
            return SpecialToken(text, number)
    return None


def special_token(file: TokenizerFile, text: str) -> SpecialToken:
    """The token that a job names by its text."""
    known = read_outline(file.location).id_of(text)
    if known is None:
        raise ConfigError(f"the tokenizer has no token {text!r}", where=file.location)
    return SpecialToken(text, known)
