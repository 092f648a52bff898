"""File: the name of a tokenizer -> its tokenizer.json, and which tokens begin and end a text. Next: proof.py."""

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, InputError, did_you_mean
from penstock.base.files import ReadFile
from penstock.base.fingerprint import digest
from penstock.base.paths import local_path
from penstock.prepare.tokenizers.hub import fetch_beside, find_on_hub
from penstock.prepare.tokenizers.outline import Outline, read_outline

TOKENIZER = "tokenizer.json"
# Who says which token ends a text, the first that does is believed. The last two name ids, not tokens.
_BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "config.json")
_KINDS = ("bos", "eos")
_MOST_SHOWN = 10  # special tokens in an error; some tokenizers have hundreds
_IDS = {"u1": 1 << 8, "u2": 1 << 16, "i4": 1 << 31}  # how many each holds, of the types that the loader reads


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
    not_fetched: str = ""  # what might have named one of them, and why it is not here

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest that holds every id and that the loader reads."""
        return next(np.dtype(kind) for kind, ids in _IDS.items() if self.vocabulary_size <= ids)

    def read_unchanged(self) -> bytes:
        """Its content, if that is still what was found when the job was planned."""
        with ReadFile(self.location) as handle:
            data = handle.read()
        if digest(data) != self.digest:
            raise InputError(
                "this tokenizer was changed while the job was running",
                where=self.location,
                next_step="run the same command: the tasks that used the old one are done again",
            )
        return data

    def special_token(self, named: str | int) -> SpecialToken:
        """The token that a job names by its text or its id."""
        outline = read_outline(self.location)
        if isinstance(named, int):
            return self._by_id(named, outline)
        known = outline.id_of(named)
        if known is None:
            special = _special_texts(outline)
            shown = ", ".join(special[:_MOST_SHOWN]) or "none that it calls special"
            raise ConfigError(
                f"the tokenizer has no token {named!r}.{did_you_mean(named, special)}",
                where=self.location,
                next_step=f"name one of its tokens, by text or id; special ones are: {shown}",
            )
        return SpecialToken(named, known)

    def special_texts(self) -> list[str]:
        """The first of the tokens that it calls special, for an error."""
        return _special_texts(read_outline(self.location))[:_MOST_SHOWN]

    def _by_id(self, number: int, outline: Outline) -> SpecialToken:
        text = outline.token_of(number)
        # A vocabulary without words is a list, in which every number up to its length is an id.
        is_listed = not outline.words and 0 <= number < outline.vocabulary_size
        if text is None and not is_listed:
            raise ConfigError(
                f"the tokenizer has no token with the id {number}",
                where=self.location,
                next_step=f"name a token by its text, or by an id from 0 to {outline.vocabulary_size - 1:,}",
            )
        return SpecialToken(text or "", number)

    def template_begin(self) -> tuple[int, ...]:
        """Ids that the tokenizer's own template puts before a text, as Llama's and BERT's do."""
        processor = read_outline(self.location).rules.get("post_processor") or {}
        ids: list[int] = []
        for each in processor.get("processors") or [processor]:
            if each.get("type") in ("BertProcessing", "RobertaProcessing"):
                ids.append(int(each["cls"][1]))
            for part in each.get("single") or []:
                if "SpecialToken" not in part:
                    break
                ids += each["special_tokens"][part["SpecialToken"]["id"]]["ids"]
        return tuple(ids)


def find_tokenizer(name: str, folder: str) -> TokenizerFile:
    """`name`: a tokenizer.json, a directory that holds one, or a hub id; a relative path is relative to `folder`."""
    looked: list[str] = []
    local = _local(name, folder, looked)
    location = local or _from_hub(name, looked)
    outline = read_outline(location)
    special, not_fetched = _special_tokens(outline, location, "" if local else name)
    return TokenizerFile(
        name, location, outline.digest, outline.vocabulary_size, special.get("bos"), special.get("eos"), not_fetched
    )


def _local(name: str, folder: str, looked: list[str]) -> str | None:
    path = local_path(name, folder)
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


def _from_hub(name: str, looked: list[str]) -> str:
    found = find_on_hub(name, TOKENIZER)
    if found.location:
        return found.location
    places = "; ".join((*looked, *found.places))
    if found.unreachable:
        raise ConfigError(
            f"the tokenizer {name!r} is not on this machine, and the hub cannot be reached: {found.unreachable}",
            where=f"looked at {places}",
            next_step=f"with a network, run `hf download {name} {TOKENIZER} {_BESIDE[0]} --local-dir tokenizer`; then "
            "name that folder here: `tokenize: path/to/tokenizer`",
        )
    raise ConfigError(
        f"there is no tokenizer {name!r}; looked at {places}",
        next_step=f"name a {TOKENIZER}, a directory that holds one, or a hub id (org/name)",
    )


def _special_texts(outline: Outline) -> list[str]:
    return [str(added["content"]) for added in outline.added_tokens if added.get("special")]


def _special_tokens(outline: Outline, location: str, hub_id: str) -> tuple[dict[str, SpecialToken], str]:
    """(the tokens that begin and end a text, as far as anything says so; which file could not be fetched, and why).

    A file that cannot be fetched ends the search: those behind it count only where it says nothing, so that to believe
    them would let the answer depend on what is in the cache.
    """
    found: dict[str, SpecialToken] = {}
    for name in _BESIDE:
        if hub_id and (reason := fetch_beside(hub_id, location, name)):
            return found, f"{name} of {hub_id} ({reason})"
        said = _said(os.path.join(os.path.dirname(location), name))
        for kind in _KINDS:
            if kind not in found and (token := _special(outline, said, kind)):
                found[kind] = token
        if len(found) == len(_KINDS):
            break
    return found, ""


def _said(path: str) -> dict[str, Any]:
    if not os.path.isfile(path):
        return {}
    try:
        with open(path, encoding="utf-8") as handle:
            said = json.load(handle)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"cannot read a file beside the tokenizer: {error}",
            where=path,
            next_step="repair the file, or move it away: then `add_eos` needs the token named in the job",
        ) from error
    return said if isinstance(said, dict) else {}


def _special(outline: Outline, said: dict[str, Any], kind: str) -> SpecialToken | None:
    """The token that begins (`bos`) or ends (`eos`) a text, if a file beside the tokenizer says so."""
    token, number = said.get(f"{kind}_token"), said.get(f"{kind}_token_id")
    if isinstance(token, dict):
        token = token.get("content")
    if isinstance(token, str) and (known := outline.id_of(token)) is not None:
        return SpecialToken(token, known)
    number = number[0] if isinstance(number, list) and number else number
    if isinstance(number, int) and (text := outline.token_of(number)) is not None:
        return SpecialToken(text, number)
    return None
