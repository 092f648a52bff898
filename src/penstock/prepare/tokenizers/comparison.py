"""Comparison: texts -> whether an engine gives the ids that Hugging Face's library gives, in a process of its own.

A Child (base/processes/child.py) with a pickled Question on its standard input; the answer is one line of JSON. An
engine is other people's machine code: should it crash or hang, it is only this process.
"""

import faulthandler
import json
import pickle
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import pairwise

import numpy as np

from penstock.base.errors import FileError
from penstock.base.memory import peak_resident
from penstock.base.processes.child import Child, live_as_child, python_path
from penstock.prepare.tokenizers import Tokenizer
from penstock.prepare.tokenizers.cutting import Cutter, Places
from penstock.prepare.tokenizers.engine import DEFINITION, Encoded, Offsets, TextBytes, engine_module

_SHOWN = 40  # characters of a text that is told
_PIECE_BYTES = 64  # so small that many a place is tried
_TIMED_OUT = b"Timeout ("  # what faulthandler says
_CRASHES = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_NO_MEMORY = b"memory allocation of "  # what Rust says before it aborts


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
    short_of: str = ""  # memory, time, a file or a process, where that is the trouble: it tells nothing of the ids
    held_bytes: int = 0  # by the process of the comparison, at most


class Comparison:
    """A comparison at work, in a process of its own."""

    def __init__(self, question: Question) -> None:
        self._question, self._deadline = question, time.monotonic() + question.seconds
        with ExitStack() as stack:
            asked, self._said, self._errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
            asked.write(pickle.dumps(question))
            asked.seek(0)
            self._child = Child(
                ["-m", "penstock.prepare.tokenizers.comparison"],
                environment=python_path(ours_first=False),  # the engines must be those that the job will use
                stdin=asked,
                stdout=self._said,
                stderr=self._errors,
            )
            self._open = stack.pop_all()

    def answer(self, waits: bool = True) -> Answer | None:
        """The answer, once; None if there is none yet, and nobody `waits`."""
        left = max(0.0, self._deadline - time.monotonic())
        if self._child.wait(left if waits else 0.0) is None and not waits and left:
            return None
        late = self._child.wait(0.0) is None
        code = self._child.end()
        self._said.seek(0)
        self._errors.seek(0)
        said, errors = self._said.read(), self._errors.read()
        self._open.close()
        if late or _TIMED_OUT in errors:
            return Answer(f"took longer than {self._question.seconds:.0f} s to be compared", short_of="time")
        if code == -signal.SIGKILL or (code and _NO_MEMORY in errors):
            return Answer(f"ran out of memory while it was compared ({_how(code)})", short_of="memory")
        if code:
            return Answer(f"ended its process by {_how(code)}", short_of="" if -code in _CRASHES else "a process")
        return Answer(**json.loads(said.splitlines()[-1]))

    def end(self) -> None:
        """Stop it. Nothing happens if it has answered."""
        self._child.end()
        self._open.close()


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


# In the child.


def main() -> None:
    live_as_child()
    question: Question = pickle.load(sys.stdin.buffer)
    faulthandler.dump_traceback_later(question.seconds, exit=True)  # even where the parent hangs, too
    print(json.dumps(asdict(replace(compare(question), held_bytes=peak_resident()))))


def compare(question: Question) -> Answer:
    data, offsets = _flat(question.texts)
    pieces = Cutter(question.places).cut(data, offsets, _PIECE_BYTES)
    try:
        given, (cut, _) = _encoded(question, question.engine, data, offsets, pieces)
    except MemoryError:
        return Answer("has not enough memory to be compared", short_of="memory")
    except (ImportError, OSError, FileError) as error:  # none of them tells anything of its ids
        return Answer(f"cannot be tried ({_first_line(error)})", short_of="a file")
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
