"""Proof: a tokenizer and a sample of the texts -> the fastest engine that is equal to Hugging Face's own library.

The fast engines are young, and rewrite in their own way what the definition does by general means. So none is trusted:
each is held against the definition on hard_texts.py and on texts of the job, and passed over where one id differs.
"""

import importlib.metadata
import importlib.util
import json
import pickle
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.base.processes.child import Child, python_path
from penstock.prepare.tokenizers.comparison import Answer, Question
from penstock.prepare.tokenizers.cutting import Places, places_to_cut
from penstock.prepare.tokenizers.engine import DEFINITION, engine_module
from penstock.prepare.tokenizers.file import TokenizerFile
from penstock.prepare.tokenizers.hard_texts import hard_texts
from penstock.prepare.tokenizers.outline import forget_outlines, read_outline

# Of the sample. A fast engine and the definition each go over it whole and cut: half a second per megabyte.
_DOCUMENTS, _CHARACTERS, _SAMPLE_BYTES = 100, 4096, 256 << 10
_NO_MEMORY = b"memory allocation of "  # what Rust says before it aborts
_ADDED_TOKENS = 48  # some tokenizers have thousands, all alike
_SECONDS = 60.0
_ORDER = ("gigatoken", "fastokens", DEFINITION)  # docs/decisions/0015-tokenizer-engines.md


@dataclass(frozen=True)
class Choice:
    """An engine, places where texts may be cut for it, and the reason in a line."""

    engine: str = DEFINITION
    places: Places = ()
    why: str = ""

    @property
    def module(self) -> Any:
        return engine_module(self.engine)


def choose_engine(file: TokenizerFile, sample: pa.Array, wanted: str = "auto", special_tokens: str = "text") -> Choice:
    """`wanted`: auto, or one engine; one that was asked for and is not equal is an error."""
    if not _installed(DEFINITION):
        raise ConfigError("tokenize needs Hugging Face's tokenizers", next_step="pip install 'penstock[text]'")
    hard, documents = hard_texts(_some_added_tokens(file)), _some_documents(sample)
    places = places_to_cut(read_outline(file.location), special_tokens)
    forget_outlines()
    question = Question(file.location, DEFINITION, special_tokens, places, (*hard, *documents), _SECONDS)
    troubles: list[str] = []
    short_of = ""
    for engine in _ORDER if wanted == "auto" else [wanted]:
        answer = _ask(replace(question, engine=engine))
        if not answer.trouble:
            why = _why(engine, wanted, len(hard), len(documents), troubles)
            return Choice(engine, places if answer.cuts else (), why)
        troubles.append(f"{_named(engine)} {answer.trouble}")
        short_of = answer.short_of
    raise ConfigError(
        f"tokenize: {'; '.join(troubles)}",
        where=file.location,
        next_step=_next_step(file, short_of)
        if wanted in ("auto", DEFINITION)
        else "leave `engine` out: then the fastest engine with equal ids is used",
    )


def _next_step(file: TokenizerFile, short_of: str) -> str:
    """Advice if Hugging Face's own library failed. If it was stopped for memory, the file may be fine."""
    if short_of == "memory":
        return "give this machine or container more memory, or end what else takes it; then run the same command"
    if short_of == "time":
        return "run the same command when this machine has less to do"
    return f"use a {file.name} that Hugging Face's tokenizers load"


def _why(engine: str, wanted: str, hard: int, documents: int, troubles: Sequence[str]) -> str:
    if engine != DEFINITION:
        on = f"{hard} hard texts and {documents} documents"
        return f"tokenize: {_named(engine)}, equal to {_named(DEFINITION)} on {on}"
    reasons = "as asked" if wanted == DEFINITION else "; ".join(troubles)
    return f"tokenize: {_named(engine)}; {reasons}"


def _installed(engine: str) -> bool:
    return importlib.util.find_spec(engine_module(engine).PACKAGE) is not None


def _named(engine: str) -> str:
    """Its name and version."""
    module = engine_module(engine)
    return f"{module.NAME} {importlib.metadata.version(module.PACKAGE)}" if _installed(engine) else str(module.NAME)


def _some_added_tokens(file: TokenizerFile) -> list[str]:
    tokens = [str(added["content"]) for added in read_outline(file.location).added_tokens]
    half = _ADDED_TOKENS // 2
    return tokens if len(tokens) <= _ADDED_TOKENS else tokens[:half] + tokens[-half:]


def _some_documents(sample: pa.Array) -> list[str]:
    """Spread over the sample, and only the beginning of a long one: a character may take four bytes."""
    texts = sample.drop_null()
    places = range(0, len(texts), max(1, len(texts) // _DOCUMENTS))[:_DOCUMENTS]
    room = _SAMPLE_BYTES // max(1, len(places))
    beginnings = (str(texts[place])[:_CHARACTERS] for place in places)
    return [each.encode()[:room].decode(errors="ignore") for each in beginnings]


def _ask(question: Question) -> Answer:
    if not _installed(question.engine):
        return Answer("is not installed")
    child = Child(
        ["-m", "penstock.prepare.tokenizers.comparison"],
        environment=python_path(ours_first=False),  # the engines must be those that the job will use
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        output, errors = child.process.communicate(pickle.dumps(question), timeout=question.seconds)
    except subprocess.TimeoutExpired:
        return Answer(f"took longer than {question.seconds:.0f} s to be compared", short_of="time")
    finally:
        code = child.end()
    if code == -signal.SIGKILL or (code and _NO_MEMORY in errors):
        return Answer(f"ran out of memory while it was compared ({_how(code)})", short_of="memory")
    if code:
        return Answer(f"ended its process by {_how(code)}")
    return Answer(**json.loads(output.splitlines()[-1]))


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
