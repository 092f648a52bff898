"""Served: what a process of map() does: load the function, answer batch after batch. Started by processes.py.

It never outlives its parent (base/processes/child.py). A timer that needs no GIL ends it when one batch takes longer
than `timeout`, with its stack written down. What is imported here, every process imports: numpy, the standard library,
base.processes.child and base.errors.
"""

from __future__ import annotations

import faulthandler
import io
import os
import pickle
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import current_process  # and an alias in this process for the child's name of the user's script
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from penstock.base.errors import TaskError
from penstock.base.processes.child import live_as_child

if TYPE_CHECKING:
    import numpy.typing as npt

    from penstock.loader.batches import Batch, Function

T = TypeVar("T")
Message: TypeAlias = list[bytes | memoryview]
START_SECONDS = 60.0  # for a busy machine to start Python and import what the function needs


@dataclass(frozen=True)
class Job:
    """Everything a process needs to know before its first batch."""

    name: str
    place: str | None
    function: bytes
    main: dict[str, str]  # how to import the user's script, where the function is defined in it
    path: list[str]
    arguments: list[str]
    timeout: float


@dataclass(frozen=True)
class Failure:
    """An error of the function on its way to the caller; in words too, should it not survive the way."""

    pickled: bytes
    what: str
    note: str

    def error(self) -> Exception:
        with suppress(Exception):
            error = pickle.loads(self.pickled)
            error.add_note(self.note)
            if isinstance(error, Exception):
                return error
        stand_in = TaskError(
            self.what,
            next_step="see the traceback below; the error itself cannot be pickled, so this one is raised instead",
        )
        stand_in.add_note(self.note)
        return stand_in


def serve() -> None:
    """Load the function, then answer batch after batch until the parent hangs up. Runs in the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    stacks, (socket_number,) = live_as_child()
    faulthandler.enable(stacks)
    os.set_inheritable(int(socket_number), False)
    connection = socket.socket(fileno=int(socket_number))
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the parent is gone, or wants no more
        job: Job = receive(connection)
        function = _attempt(lambda: _load(job), f"the import of map({job.name})", START_SECONDS, stacks)
        if isinstance(function, Failure):
            send(connection, encode(function))
            return
        send(connection, encode(None))
        while True:
            step, batch = receive(connection)
            send(connection, _answer(job, function, step, batch, stacks))


def _load(job: Job) -> Function:
    """Import the function as multiprocessing's spawn would, and the user's script only if it is defined there."""
    sys.argv[:] = job.arguments
    current_process()._inheriting = True  # type: ignore[attr-defined]
    if job.main:
        from multiprocessing.spawn import prepare

        prepare(job.main)
    function: Function = pickle.loads(job.function)
    del current_process()._inheriting  # type: ignore[attr-defined]
    return function


def _answer(job: Job, function: Function, step: int, batch: Batch, stacks: int) -> Message:
    def work() -> Message:
        result = function(batch)
        if found := other_types(result):
            raise wrong_result(found, job.name, job.place, step)
        return encode(result)

    answer = _attempt(work, f"step {step} of map({job.name})", job.timeout, stacks)
    return encode(answer) if isinstance(answer, Failure) else answer


def _attempt(work: Callable[[], T], doing: str, seconds: float, stacks: int) -> T | Failure:
    """Result or failure of `work`. After `seconds`, its stack is written down and the process ended, GIL or not."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=stacks)
    try:
        return work()
    except Exception as error:
        return _failure(error, doing)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _failure(error: Exception, doing: str) -> Failure:
    try:
        pickled = pickle.dumps(error, protocol=5)
    except Exception:
        pickled = b""
    note = f"in {doing}, process {os.getpid()}:\n" + "".join(traceback.format_exception(error))
    return Failure(pickled, f"{doing} raised {type(error).__name__}: {error}", note)


def other_types(result: object) -> str:
    """Words for what a function returned, if it is not a dict of names and numpy arrays."""
    if not isinstance(result, dict):
        return f"a {_type_name(result)}"
    if wrong := [key for key in result if not isinstance(key, str)]:
        return f"a dict with the key {wrong[0]!r}, a {_type_name(wrong[0])}"
    if wrong := [key for key, value in result.items() if not isinstance(value, np.ndarray)]:
        return f"a dict whose {wrong[0]!r} is a {_type_name(result[wrong[0]])}"
    return ""


def wrong_result(found: str, name: str, place: str | None, step: int) -> TaskError:
    return TaskError(
        f"map({name}) returned {found} at step {step}, not a dict of names and numpy arrays",
        where=place,
        next_step="return the batch as a dict; numpy.asarray converts most values",
    )


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# Messages over a socket: values pickled, their arrays as raw bytes behind.


def encode(value: object) -> Message:
    """The length of a pickle, the pickle, and then the bytes of the arrays that it leaves out."""
    file = io.BytesIO()
    pickler = _Pickler(file, protocol=5)
    pickler.dump(value)
    return [file.tell().to_bytes(8, "little"), file.getbuffer(), *map(_bytes_of, pickler.arrays)]


def send(connection: socket.socket, message: Message) -> None:
    for part in message:
        connection.sendall(part)


def receive(connection: socket.socket) -> Any:
    """The value that was encoded. Its arrays are new: writable, contiguous, and nobody else's."""
    (length,) = _fill(np.empty(1, "<u8"), connection)
    pickled = _fill(np.empty(length, np.uint8), connection)
    return _Unpickler(pickled, connection).load()


class _Pickler(pickle.Pickler):
    # Pickle's own way to leave buffers out keeps a read-only array read-only, and swaps some others' bytes.
    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.arrays: list[npt.NDArray[Any]] = []

    def persistent_id(self, value: Any) -> Any:
        if type(value) is not np.ndarray or value.dtype.hasobject:
            return None
        self.arrays.append(np.asarray(value, order="C"))
        return value.dtype, value.shape


class _Unpickler(pickle.Unpickler):
    def __init__(self, pickled: npt.NDArray[np.uint8], connection: socket.socket) -> None:
        super().__init__(io.BytesIO(pickled.data))
        self._connection = connection

    def persistent_load(self, kind: Any) -> npt.NDArray[Any]:
        dtype, shape = kind
        return _fill(np.empty(shape, dtype), self._connection)


def _fill(array: npt.NDArray[Any], connection: socket.socket) -> npt.NDArray[Any]:
    rest = _bytes_of(array)
    while rest:
        received = connection.recv_into(rest)
        if not received:
            raise EOFError
        rest = rest[received:]
    return array


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data if array.nbytes else memoryview(b"")
