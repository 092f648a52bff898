"""Comparison: texts -> whether an engine gives the ids that Hugging Face's library gives, in a process of its own.

Started as a Child (base/processes/child.py), with a pickled Question on its standard input; the answer is one line of
JSON. An engine is other people's machine code: should it crash or hang, it is only this process.
"""

import faulthandler
import json
import pickle
import sys
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from penstock.base.processes.child import live_as_child
from penstock.prepare.tokenizers import Tokenizer
from penstock.prepare.tokenizers.cutting import Cutter, Places
from penstock.prepare.tokenizers.engine import DEFINITION, Encoded, Offsets, TextBytes, engine_module

_SHOWN = 40  # characters of a text that is told
_PIECE_BYTES = 64  # so small that many a place is tried


@dataclass(frozen=True)
class Question:
    location: str  # of the tokenizer.json
    engine: str
    special_tokens: str
    places: Places  # where texts might be cut
    texts: tuple[str, ...]
    seconds: float  # after which it ends, whatever it does


@dataclass(frozen=True)
class Answer:
    trouble: str = ""  # what is wrong with the engine, in a few words; nothing where it is equal
    cuts: bool = False  # whether cutting texts changed nothing
    short_of: str = ""  # memory or time, where that is the trouble


def main() -> None:
    live_as_child()
    question: Question = pickle.load(sys.stdin.buffer)
    faulthandler.dump_traceback_later(question.seconds, exit=True)  # even where the parent hangs, too
    print(json.dumps(asdict(compare(question))))


def compare(question: Question) -> Answer:
    data, offsets = _flat(question.texts)
    pieces = Cutter(question.places).cut(data, offsets, _PIECE_BYTES)
    try:
        given, (cut, _) = _encoded(question, question.engine, data, offsets, pieces)
    except MemoryError:
        return Answer("has not enough memory to be compared", short_of="memory")
    except BaseException as error:  # a panic of Rust is no Exception
        return Answer(f"cannot do it ({_first_line(error)})")
    right = given if question.engine == DEFINITION else _encoded(question, DEFINITION, data, offsets)[0]
    return Answer(_difference(question.texts, right, given), np.array_equal(right[0], cut))


def _encoded(question: Question, name: str, data: TextBytes, *each: Offsets) -> list[Encoded]:
    """The engine is let go before there is another: two would take twice the memory."""
    module = engine_module(name)
    engine = module.Engine(question.location, question.special_tokens)
    # As the job will: the definition holds hundreds of bytes for each token of a call.
    tokenizer = Tokenizer(engine, Cutter(()), module.PORTION_BYTES, np.dtype("u4"))
    return [tokenizer.encode_pieces(data, offsets) for offsets in each]


def _flat(texts: tuple[str, ...]) -> tuple[TextBytes, Offsets]:
    encoded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(encoded), "u1"), np.cumsum([0, *map(len, encoded)], dtype="i8")


def _difference(texts: tuple[str, ...], right: Encoded, given: Encoded) -> str:
    if np.array_equal(right[0], given[0]) and np.array_equal(right[1], given[1]):
        return ""
    for text, (start, end), (first, last) in zip(texts, pairwise(right[1]), pairwise(given[1]), strict=True):
        if not np.array_equal(right[0][start:end], given[0][first:last]):
            return f"differs on {text[:_SHOWN]!r}" + ("..." if len(text) > _SHOWN else "")
    return "differs in its offsets"


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:100] if lines else 'no reason given'}"


if __name__ == "__main__":
    main()
