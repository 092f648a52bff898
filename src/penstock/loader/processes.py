"""Processes: run a user's function on batches in processes of their own. Used by loader.py.

Each is a fresh Python that imports the function's module and little else. Batches travel over a socket pair, arrays as
raw bytes behind a small header: no shared memory and no semaphore, so nothing can stay in /dev/shm. A process that
dies (its socket ends) or hangs (no answer within `timeout`) is replaced, and the new one is given the same batch.

It never outlives its parent: a thread in it waits for the socket to hang up, and a timer that needs no GIL ends it,
with its stack written down, when one batch takes longer than `timeout`.
"""

from __future__ import annotations

import faulthandler
import io
import math
import os
import pickle
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import current_process  # and an alias in this process for the child's name of the user's script
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from penstock.base.errors import ConfigError, TaskError

if TYPE_CHECKING:
    import numpy.typing as npt

    Batch: TypeAlias = dict[str, npt.NDArray[Any]]
    Function: TypeAlias = Callable[[Batch], Batch]

Message: TypeAlias = list[bytes | memoryview]
T = TypeVar("T")

ATTEMPTS = 3  # of a batch whose process dies or hangs
START_SECONDS = 60.0  # for a busy machine to start Python and import what the function needs
_STACK_SECONDS = 0.25  # for a hung process to write down its stack and end itself, before it is killed
_CLOSED = -1  # in the place of an idle process: there is none, and will be none

# The processes are the parallelism: one thread in each, unless the user has said otherwise. Starts quicker, too.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Processes:
    """`count` processes that run `function`. Called by as many threads at once: each call waits for its own result."""

    def __init__(self, function: Function, count: int, timeout: float = 4.0) -> None:
        if count < 1 or not 0 < timeout < math.inf:
            raise ConfigError(f"map: {count} processes with timeout={timeout} cannot be; at least 1, and some seconds")
        self._job = _make_job(function, timeout)
        self._lock = threading.Lock()
        self._idle: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._processes: list[Process] = []
        self._closed = False
        self.replaced = 0
        try:
            for index in range(count):
                self._processes.append(Process(self._job))
                self._idle.put(index)
        except BaseException:
            for process in self._processes:
                process.end()
            raise

    def __call__(self, step: int, batch: Batch) -> Batch:
        message = encode((step, batch))
        ends: list[ProcessEnded] = []
        with self._borrowed() as index:
            while len(ends) < ATTEMPTS:
                process = self._running(index, step)
                try:
                    answer = process.run(message)
                except ProcessEnded as end:
                    ends.append(end)
                    continue
                if isinstance(answer, Failure):
                    raise answer.error()
                return answer
        raise _given_up(self._job, step, ends)

    def pids(self) -> list[int]:
        with self._lock:
            return [process.pid for process in self._processes if not process.ended]

    def close(self) -> None:
        """End the processes, and with them the calls that are under way."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for process in self._processes:
                process.hang_up()  # whoever waits for its answer gives it back now
        for _ in self._processes:
            self._processes[self._idle.get()].end()
        self._idle.put(_CLOSED)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _borrowed(self) -> Iterator[int]:
        """The place of an idle process; it is the borrower's alone, to use, to end and to fill with a new one."""
        index = self._idle.get()
        try:
            yield index
        finally:
            self._idle.put(index)

    def _running(self, index: int, step: int) -> Process:
        with self._lock:
            if self._closed:
                raise TaskError(
                    f"map({self._job.name}) was closed before step {step} was done",
                    next_step="close the loader when the last batch has been taken",
                )
            if self._processes[index].ended:
                self._processes[index] = Process(self._job)
                self.replaced += 1
            return self._processes[index]


@dataclass(frozen=True)
class Job:
    """What a process needs to know before its first batch."""

    name: str
    place: str | None
    function: bytes
    main: dict[str, str]  # how to import the user's script, where the function is defined in it
    path: list[str]
    arguments: list[str]
    timeout: float


def _make_job(function: Function, timeout: float) -> Job:
    name, place = _name(function), _place(function)
    if getattr(current_process(), "_inheriting", False):  # multiprocessing's word for: the script is being imported
        raise ConfigError(
            f"map({name}): the script that starts the processes is imported by each of them, and would start more",
            where=place,
            next_step="put what the script does below `if __name__ == '__main__':`, or the function in a module",
        )
    try:
        pickled = pickle.dumps(function, protocol=5)
    except Exception as error:
        raise ConfigError(
            f"map({name}): this function cannot be sent to a process, which finds it by its name: {error}",
            where=place,
            next_step="move it to the top level of a module, or run map in threads",
        ) from error
    in_script = b"__main__" in pickled or b"__mp_main__" in pickled
    main = _main_script() if in_script else {}
    if in_script and not main:
        raise ConfigError(
            f"map({name}): this function is defined in an interactive session, which a process cannot import",
            where=place,
            next_step="move it to a module (a .py file), or run map in threads",
        )
    path = [os.path.abspath(folder) for folder in sys.path]
    return Job(name, place, pickled, main, path, list(sys.argv), timeout)


def _main_script() -> dict[str, str]:
    """How a process imports the user's script: by name if it runs as `python -m`, else by path."""
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):
        return {"init_main_from_name": spec.name}
    file = getattr(main, "__file__", None)
    return {"init_main_from_path": os.path.abspath(file)} if file and os.path.exists(file) else {}


def _name(function: Function) -> str:
    named = getattr(function, "func", function)  # of a functools.partial
    if not hasattr(named, "__qualname__"):
        named = type(named)
    return f"{named.__module__}.{named.__qualname__}"


def _place(function: Function) -> str | None:
    code = getattr(getattr(function, "func", function), "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code else None


class Process:
    """One process, our end of its socket, and the file in which it writes its stack when it hangs or crashes."""

    def __init__(self, job: Job) -> None:
        self._timeout = job.timeout
        self._ready = False
        self.ended = False
        self._socket, theirs = socket.socketpair()
        self._stacks = tempfile.TemporaryFile()  # noqa: SIM115
        with theirs:
            numbers = (theirs.fileno(), self._stacks.fileno())
            try:
                self._popen = _start(job.path, numbers)
            except BaseException:
                self._socket.close()
                self._stacks.close()
                raise
        self.pid = self._popen.pid
        self._socket.settimeout(START_SECONDS)
        with suppress(OSError):  # it is dead or stuck already: its first batch will tell
            send(self._socket, encode(job))

    def run(self, message: Message) -> Batch | Failure:
        """What the function made of a batch, or raised. ProcessEnded: neither, and there has to be a new process."""
        try:
            if not self._ready:
                refusal = self._hear(START_SECONDS)
                if refusal is not None:
                    self.end()
                    return refusal  # type: ignore[no-any-return]
                self._ready = True
            self._socket.settimeout(self._timeout)
            send(self._socket, message)
            return self._hear(self._timeout)  # type: ignore[no-any-return]
        except TimeoutError:
            raise self._ended(hung=True) from None
        except (EOFError, OSError):
            raise self._ended(hung=False) from None
        except BaseException:  # Ctrl-C: its answer would be taken for the next batch's
            self.end()
            raise

    def hang_up(self) -> None:
        """Let the process and the thread that waits for it know. Any thread may; all else is for the borrower."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Kill it, with whatever the function has started, and keep nothing but what it wrote last."""
        if self.ended:
            return
        self.ended = True
        with suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, of a group that is all dead
            os.killpg(self.pid, signal.SIGKILL)  # to one that is dying already this changes nothing: it keeps its code
        self._popen.wait()
        self._socket.close()
        self._stacks.seek(0)
        self._last_words = self._stacks.read().decode(errors="replace").strip()
        self._stacks.close()

    def _hear(self, seconds: float) -> Any:
        self._socket.settimeout(seconds + _STACK_SECONDS)
        return receive(self._socket)

    def _ended(self, hung: bool) -> ProcessEnded:
        self.end()
        hung = hung or self._last_words.startswith("Timeout (")
        if hung:
            how = f"hung for {self._timeout:g} s" if self._ready else f"had not started after {START_SECONDS:g} s"
        else:
            code = self._popen.returncode
            death = f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}"
            how = f"died of {death}" if self._ready else f"died of {death} while it started"
        return ProcessEnded(how, hung, self._last_words)


class ProcessEnded(Exception):
    """A process has died, or hung and was killed. The batch it had is not done."""

    def __init__(self, how: str, hung: bool, last_words: str) -> None:
        super().__init__(how)
        self.how, self.hung, self.last_words = how, hung, last_words


def _start(path: list[str], numbers: tuple[int, int]) -> subprocess.Popen[bytes]:
    command = f"import sys; sys.path[:] = {path!r}; from penstock.loader.processes import serve; serve{numbers}"
    return subprocess.Popen(
        [sys.executable, "-P", "-u", "-c", command],  # -u: what the function prints is seen even if it then dies
        env={**_ENVIRONMENT, **os.environ},
        stdin=subprocess.DEVNULL,
        pass_fds=numbers,
        start_new_session=True,
    )


def _given_up(job: Job, step: int, ends: list[ProcessEnded]) -> TaskError:
    if ends[-1].hung:
        next_step = f"if it only needs longer, raise timeout={job.timeout:g}; else run map in threads to see it hang"
    else:
        next_step = (
            "run map in threads to see it; signal 9 without a reason is mostly the kernel's out-of-memory killer "
            "(see `dmesg`): fewer processes or smaller batches need less"
        )
    hows = list(dict.fromkeys(end.how for end in ends))
    story = ", then ".join(hows) if len(hows) > 1 else f"{hows[0]} each time"
    error = TaskError(
        f"map({job.name}) did not get through step {step} in {len(ends)} attempts: its process {story}",
        where=job.place,
        next_step=next_step,
    )
    if ends[-1].last_words:
        error.add_note(f"the last one's stack:\n{ends[-1].last_words}")
    return error


@dataclass(frozen=True)
class Failure:
    """What the function raised, on its way to the caller; in words too, should it not survive the way."""

    pickled: bytes
    what: str
    note: str

    def error(self) -> Exception:
        try:
            error = pickle.loads(self.pickled)
            error.add_note(self.note)
        except Exception:
            error = None
        if isinstance(error, Exception):
            return error
        stand_in = TaskError(
            self.what,
            next_step="see the traceback below; the error itself cannot be pickled, so this one stands in for it",
        )
        stand_in.add_note(self.note)
        return stand_in


def _failure(error: Exception, doing: str) -> Failure:
    try:
        pickled = pickle.dumps(error, protocol=5)
    except Exception:
        pickled = b""
    note = f"in {doing}, process {os.getpid()}:\n" + "".join(traceback.format_exception(error))
    return Failure(pickled, f"{doing} raised {type(error).__name__}: {error}", note)


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


def serve(socket_number: int, stacks: int) -> None:
    """What a process does: load the function, then answer batch after batch until the parent hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.set_inheritable(socket_number, False)
    os.set_inheritable(stacks, False)
    faulthandler.enable(stacks)
    threading.Thread(target=_die_with_the_parent, args=(socket_number,), daemon=True).start()
    connection = socket.socket(fileno=socket_number)
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


def _die_with_the_parent(socket_number: int) -> None:
    hang_up = select.poll()
    hang_up.register(socket_number, 0)  # no event but the one that is always told
    hang_up.poll()
    os.killpg(0, signal.SIGKILL)


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
        _refuse_other_types(result, job, step)
        return encode(result)

    answer = _attempt(work, f"step {step} of map({job.name})", job.timeout, stacks)
    return encode(answer) if isinstance(answer, Failure) else answer


def _attempt(work: Callable[[], T], doing: str, seconds: float, stacks: int) -> T | Failure:
    """What `work` returns or raises. After `seconds`, its stack is written down and the process ended, GIL or not."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=stacks)
    try:
        return work()
    except Exception as error:
        return _failure(error, doing)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _refuse_other_types(result: object, job: Job, step: int) -> None:
    if not isinstance(result, dict):
        found = f"a {_type_name(result)}"
    elif wrong := [key for key in result if not isinstance(key, str)]:
        found = f"a dict with the key {wrong[0]!r}, a {_type_name(wrong[0])}"
    elif wrong := [key for key, value in result.items() if not isinstance(value, np.ndarray)]:
        found = f"a dict whose {wrong[0]!r} is a {_type_name(result[wrong[0]])}"
    else:
        return
    raise TaskError(
        f"map({job.name}) returned {found} at step {step}, not a dict of names and numpy arrays",
        where=job.place,
        next_step="return the batch as a dict; numpy.asarray makes an array of most things",
    )


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
