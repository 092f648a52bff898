"""Npz members: the arrays in a .npz, as its directory and headers tell, and their rows a few at a time. For npz.py.

Python's zipfile does the reading, and numpy's parser that of headers; what damaged bytes make them raise ends here.
"""

import lzma
import math
import mmap
import os
import struct
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from penstock.base.errors import InputError
from penstock.base.stores.scratch import Scratch
from penstock.prepare.rows.rows import Array
from penstock.prepare.sources.reading.input_file import first_line, unusable

AT_ONCE = 1 << 20
_END_BYTES, _MANY = 22, 0xFFFF  # of a zip's last record, without its comment; members that it cannot count
DAMAGE = (  # what Python's zipfile and numpy's header parser raise for bytes that make no sense
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,  # encrypted, or compressed in a way that this Python does not know
    ValueError,
)
_BAD_HEADER = (*DAMAGE, SyntaxError, TypeError, tokenize.TokenError)
Take = Callable[[int], Array]  # the next so many rows


@dataclass(frozen=True)
class Member:
    """An array in a zip, as its header tells."""

    name: str
    file: zipfile.ZipInfo
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    head: int  # bytes before its values

    @property
    def is_pickle(self) -> bool:
        return self.dtype.hasobject

    @property
    def is_of_samples(self) -> bool:
        """Whether its name says that it has one row per sample."""
        return self.name.startswith(("labels_", "masks_")) or "features" in self.name

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else -1

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape[1:])


def read_members(handle: BinaryIO, location: str) -> tuple[zipfile.ZipFile, list[Member]]:
    try:
        archive = zipfile.ZipFile(handle)
        _refuse_lost_members(archive, handle)
    except DAMAGE as error:
        raise unreadable(f"not a readable .npz file: {first_line(error)}", location) from error
    members = [_member(archive, info, location) for info in archive.infolist()]
    names = [member.name for member in members]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"array {name!r} occurs twice", where=location)
    return archive, members


def _refuse_lost_members(archive: zipfile.ZipFile, handle: BinaryIO) -> None:
    """zipfile ignores members that a damaged directory hides. The end of the directory says how many there are."""
    handle.seek(-_END_BYTES - len(archive.comment), os.SEEK_END)
    count = int.from_bytes(handle.read(_END_BYTES)[10:12], "little")
    if count not in (len(archive.infolist()), _MANY):
        raise ValueError(f"its directory shows {len(archive.infolist())} of {count} arrays")


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, location: str) -> Member:
    try:
        with archive.open(info) as file:
            version = np.lib.format.read_magic(file)
            if version not in ((1, 0), (2, 0)):
                raise ValueError(f"its header has version {version[0]}.{version[1]}, known are 1.0 and 2.0")
            parse = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = parse(file)
            if any(size < 0 for size in shape):
                raise ValueError(f"its shape is {shape}")
            member = Member(info.filename.removesuffix(".npy"), info, dtype, shape, fortran, file.tell())
    except _BAD_HEADER as error:
        raise unreadable(f"{info.filename!r} is not a readable .npy array: {first_line(error)}", location) from error
    needed = member.head + dtype.itemsize * math.prod(shape)
    if not member.is_pickle and info.file_size != needed:
        raise unreadable(
            f"{info.filename!r} has {info.file_size:,} bytes; {dtype} values in the shape {shape} take {needed:,}",
            location,
        )
    return member


def open_rows(archive: zipfile.ZipFile, member: Member, stack: ExitStack) -> Take:
    """A function that reads the next rows of an array. Python's zipfile reads no more than it is asked for, compressed
    or not, and holds the checksum against what went through its hands when the last byte has."""
    file = stack.enter_context(archive.open(member.file))
    file.read(member.head)
    if member.fortran and len(member.shape) > 1:
        return _turned(member, file, stack)

    def take(count: int) -> Array:
        data = file.read(count * member.row_bytes)
        values = np.frombuffer(data, member.dtype).reshape(count, *member.shape[1:])
        return values.astype(member.dtype.newbyteorder("="), copy=False)

    return take


def _turned(member: Member, file: Any, stack: ExitStack) -> Take:
    """Rows of an array that lies column by column: it is put down in a scratch file, to be read across."""
    scratch = Scratch(tempfile.gettempdir())
    stack.callback(scratch.close)
    while data := file.read(AT_ONCE):
        scratch.write(data)
    mapped = mmap.mmap(scratch.fileno(), 0, access=mmap.ACCESS_READ) if scratch.size else b""
    values: Array = np.ndarray(member.shape, member.dtype, mapped, order="F")
    start = 0

    def take(count: int) -> Array:
        nonlocal start
        start += count
        return np.ascontiguousarray(values[start - count : start], member.dtype.newbyteorder("="))

    return take


def unreadable(what: str, location: str) -> InputError:
    return unusable(what, f"{location}, {os.stat(location).st_size:,} bytes")
