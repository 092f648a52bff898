"""Proof: a tokenizer and a sample of the texts -> the fastest engine that is equal to Hugging Face's own library.

The fast engines are young, and rewrite in their own way what the definition does by general means. So none is trusted:
each is held against the definition on hard_texts.py and on texts of the job, and passed over where one id differs.
What was found is remembered (remembered.py): of a tokenizer that is known only the texts of the job are compared, while
the job runs.
"""

import importlib.metadata
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.tokenizers.comparison import Answer, Comparison, Question
from penstock.prepare.tokenizers.cutting import Places, places_to_cut
from penstock.prepare.tokenizers.engine import DEFINITION, engine_module
from penstock.prepare.tokenizers.file import TokenizerFile
from penstock.prepare.tokenizers.hard_texts import hard_texts
from penstock.prepare.tokenizers.hugging_face import PORTION_BYTES
from penstock.prepare.tokenizers.outline import forget_outlines, read_outline
from penstock.prepare.tokenizers.remembered import name_of, recall, remember

# Of the sample. A fast engine and the definition each go over it whole and cut: half a second per megabyte.
_DOCUMENTS, _CHARACTERS, _SAMPLE_BYTES = 100, 4096, 256 << 10
# Hugging Face's takes 0.1 s for it, and less to load than another. No text of it is too large to be encoded uncut.
_LITTLE_TEXT = 2 * PORTION_BYTES
_ADDED_TOKENS = 48  # some tokenizers have thousands, all alike
_SECONDS = 60.0
_ORDER = ("gigatoken", "fastokens", DEFINITION)  # docs/decisions/0015-tokenizer-engines.md


@dataclass(frozen=True)
class Choice:
    """An engine, places where texts may be cut for it, and the reason in a line."""

    engine: str = DEFINITION
    places: Places = ()
    why: str = ""
    proof: str = ""  # name of what was compared; "": nothing had to be
    made_by: str = ""  # for the ledger: the engine, and its proof; "" without
    unproved_bytes: int = 0  # memory for a comparison on texts of the job; 0: that is done

    @property
    def module(self) -> Any:
        return engine_module(self.engine)


@dataclass(frozen=True)
class Request:
    """What a job asks for: the tokenizer, documents of the job, and an engine by name, or auto."""

    file: TokenizerFile
    documents: tuple[str, ...]
    wanted: str = "auto"
    special_tokens: str = "text"
    refused: str = ""  # what was wrong with the engine of a run that was begun

    @property
    def engines(self) -> Sequence[str]:
        if self.refused:
            return [DEFINITION]
        return _ORDER if self.wanted == "auto" else [self.wanted]


def make_request(
    file: TokenizerFile, sample: pa.Array, wanted: str = "auto", special_tokens: str = "text", refused: str = ""
) -> Request:
    return Request(file, tuple(_some_documents(sample)), wanted, special_tokens, refused)


def choose_engine(request: Request) -> Choice:
    """The fastest engine that is equal. One that was asked for and is not is an error."""
    choice = _choose(request, _prove)
    assert choice  # everything was answered
    return choice


def recalled_engine(request: Request) -> Choice | None:
    """The same, without a comparison; None if one is needed."""
    return _choose(request, lambda *_: None)


def _choose(request: Request, prove: Callable[[Request, Question], Answer | None]) -> Choice | None:
    require_definition()
    if request.refused and request.wanted not in ("auto", DEFINITION):
        raise _refusal(request, [request.refused], "")
    general = _general_question(request)
    troubles = [request.refused] if request.refused else []
    short_of = ""
    for engine in request.engines:
        question = replace(general, engine=engine)
        known = _known(request, question)
        answer = known or prove(request, question)
        if not answer:
            return None
        if not answer.trouble:
            return _choice(request, question, answer, troubles, is_proved=not known)
        troubles.append(f"{_named(engine)} {answer.trouble}")
        short_of = answer.short_of
    raise _refusal(request, troubles, short_of)


def require_definition() -> None:
    if not _installed(DEFINITION):
        raise ConfigError("tokenize needs Hugging Face's tokenizers", next_step="pip install 'penstock[text]'")


def _known(request: Request, question: Question) -> Answer | None:
    """The answer, if nothing has to be compared. After a refusal all is compared before the job goes on."""
    if not _installed(question.engine):
        return Answer("is not installed")
    return None if request.refused else recall(name_of(question, request.file.digest))


def _general_question(request: Request) -> Question:
    """What is asked of every engine of this tokenizer, whatever the job."""
    file = request.file
    hard = tuple(hard_texts(_some_added_tokens(file)))
    places = places_to_cut(read_outline(file.location), request.special_tokens)
    forget_outlines()
    return Question(file.location, DEFINITION, request.special_tokens, places, hard, _SECONDS)


def _prove(request: Request, general: Question) -> Answer:
    """Compare an engine on the hard texts and on documents of the job at once, and remember both."""
    answer = _ask(replace(general, texts=(*general.texts, *request.documents)))
    remember(name_of(general, request.file.digest), answer)
    if not answer.trouble:
        remember(name_of(_own_question(request, general), request.file.digest), answer)
    return answer


def _own_question(request: Request, general: Question) -> Question:
    return replace(general, texts=request.documents)


def _choice(request: Request, general: Question, answer: Answer, troubles: Sequence[str], is_proved: bool) -> Choice:
    hard, documents = len(general.texts), len(request.documents)
    on = f"{hard} hard texts" + (f" and {documents} documents" if is_proved else "")
    why = _why(general.engine, on, troubles)
    if general.engine == DEFINITION and not answer.cuts:
        return Choice(why=why)
    places = general.places if answer.cuts else ()
    name, how = name_of(general, request.file.digest), ", cut" if places else ""
    own = replace(_own_question(request, general), places=places)
    is_proved = is_proved or not documents or bool(recall(name_of(own, request.file.digest)))
    unproved = 0 if is_proved else max(1, answer.held_bytes)
    made_by = f"{_named(general.engine)} (proof {name}{how})"
    return Choice(general.engine, places, why, name, made_by, unproved)


def needs_no_proof(wanted: str, most_bytes: float) -> bool:
    """Whether there is so little text that the definition itself is quickest."""
    return most_bytes <= _LITTLE_TEXT and wanted in ("auto", DEFINITION)


def definition(wanted: str) -> Choice:
    """Hugging Face's own library, which cuts no text: there is nothing to prove."""
    require_definition()
    reason = "as asked" if wanted == DEFINITION else "so little text takes less time than to prove another engine"
    return Choice(why=f"tokenize: {_named(DEFINITION)}; {reason}")


class Proof:
    """A comparison of a chosen engine on documents of the job, while the tasks of the job run."""

    def __init__(self, request: Request, choice: Choice) -> None:
        self._choice, self._digest = choice, request.file.digest
        self._question = Question(
            request.file.location, choice.engine, request.special_tokens, choice.places, request.documents, _SECONDS
        )
        self._comparison = Comparison(self._question)
        self._trouble: str | None = None

    def trouble(self, waits: bool) -> str | None:
        """What is wrong with the engine, "" if nothing is; None if that is not known yet, and nobody `waits`."""
        if self._trouble is None and (answer := self._comparison.answer(waits)):
            self._trouble = self._judged(answer)
        return self._trouble

    def end(self) -> None:
        self._comparison.end()

    def _judged(self, answer: Answer) -> str:
        """The trouble. An engine that is wrong about a document is refused for every job from now on."""
        if answer.trouble:
            remember(self._choice.proof, answer)
            return f"{_named(self._choice.engine)} {answer.trouble}"
        if self._choice.places and not answer.cuts:
            remember(self._choice.proof, answer)
            return f"{_named(self._choice.engine)} gives other ids for documents that are cut"
        remember(name_of(self._question, self._digest), answer)
        return ""


def _refusal(request: Request, troubles: Sequence[str], short_of: str) -> ConfigError:
    return ConfigError(
        f"tokenize: {'; '.join(troubles)}",
        where=request.file.location,
        next_step=_next_step(request.file, short_of)
        if request.wanted in ("auto", DEFINITION)
        else "leave `engine` out: then the fastest engine with equal ids is used",
    )


def _next_step(file: TokenizerFile, short_of: str) -> str:
    """Advice if Hugging Face's own library failed. If it was stopped for memory, the file may be fine."""
    if short_of == "memory":
        return "give this machine or container more memory, or end what else takes it; then run the same command"
    if short_of == "a file":
        return "repair what could not be read or imported: pip install 'penstock[text]'"
    if short_of == "time":
        return "run the same command when this machine has less to do"
    return f"use a {file.name} that Hugging Face's tokenizers load"


def _why(engine: str, on: str, troubles: Sequence[str]) -> str:
    if engine != DEFINITION:
        return f"tokenize: {_named(engine)}, equal to {_named(DEFINITION)} on {on}"
    reasons = "; ".join(troubles) or "as asked"
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
    answer = Comparison(question).answer()
    assert answer  # it was waited for
    return answer
