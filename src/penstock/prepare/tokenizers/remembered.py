"""Remembered: what comparisons of engines have found, in the cache of this user. Used by proof.py.

The name of a file is the digest of all that decides an answer: both libraries as they are installed, the code of this
folder, the tokenizer, the texts, Python and the processor. What cannot be read or written costs a comparison.
"""

import importlib.metadata
import importlib.util
import json
import os
import sys
import sysconfig
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from penstock.base.cache import PROOFS, cache_folder, forget_unused, keep, mark_used, read_kept
from penstock.base.errors import FileError
from penstock.base.fingerprint import digest, fingerprint
from penstock.base.machine import processor
from penstock.prepare.tokenizers.comparison import Answer, Question
from penstock.prepare.tokenizers.engine import DEFINITION, engine_module


def name_of(question: Question, tokenizer: str) -> str:
    """Name of what is asked, for a tokenizer.json with this digest."""
    asked = [tokenizer, question.special_tokens, bool(question.places), list(question.texts)]
    made_by = [_library(question.engine), _library(DEFINITION), _own_code(), sys.version, sysconfig.get_platform()]
    return fingerprint([asked, made_by, processor()])


def recall(name: str) -> Answer | None:
    """The answer, if it is known."""
    with suppress(FileError, ValueError, TypeError):  # no cache that can be trusted, or a file of another version
        file = cache_folder(PROOFS) / name
        kept = read_kept(file)
        if kept is not None:
            answer = Answer(**json.loads(kept))
            mark_used(file)
            return answer
    return None


def remember(name: str, answer: Answer) -> None:
    """Keep an answer in place of an earlier one. One that says what the machine was short of tells nothing for long."""
    if answer.short_of:
        return
    with suppress(FileError):  # `penstock doctor` says why nothing can be kept
        folder = cache_folder(PROOFS)
        keep(folder / name, json.dumps(asdict(answer)).encode())
        forget_unused(folder)


def _library(engine: str) -> list[Any]:
    """What decides the ids that an engine gives: its version, and the files of its package by size and time."""
    package = engine_module(engine).PACKAGE
    spec = importlib.util.find_spec(package)
    if spec is None:
        return [package]
    with suppress(importlib.metadata.PackageNotFoundError):  # a folder on the path
        package = f"{package} {importlib.metadata.version(package)}"
    folders = spec.submodule_search_locations or [os.path.dirname(spec.origin or "")]
    found = sorted((each.name, each.stat()) for folder in folders for each in os.scandir(folder) if each.is_file())
    return [package, [[name, status.st_size, status.st_mtime_ns] for name, status in found]]


@cache
def _own_code() -> str:
    return digest(*(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py"))))
