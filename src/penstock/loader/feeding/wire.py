"""Wire: messages over a socket: values pickled, their arrays as raw bytes behind. For processes.py and served.py."""

from __future__ import annotations

import io
import pickle
import socket
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

Message: TypeAlias = list[bytes | memoryview]


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
