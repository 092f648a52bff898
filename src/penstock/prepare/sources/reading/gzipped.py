"""Gzipped: the bytes of a gzip file, member after member. Zeros behind a member are padding, as for gzip(1)."""

import zlib
from typing import Any

_READ_AT_ONCE = 64 * 1024
_GZIP = 31  # tells zlib to expect gzip's header and checksum


class Gzipped:
    """Raises OSError where the file is damaged, and one that says "Truncated" where it ends inside a member."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._packed = b""  # read, and not used yet
        self._member: Any = None  # None between members
        self._members = 0

    def close(self) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """As many bytes as asked for; fewer only at the end."""
        pieces: list[bytes] = []
        while size > 0 and self._has_more():
            ended = not self._packed
            data = self._unpack(size)
            size -= len(data)
            pieces.append(data)
            if ended and not data and self._member:
                if any(pieces):
                    break
                raise OSError("Truncated gzip file")
        return b"".join(pieces)

    def _has_more(self) -> bool:
        """Whether a member is open, or another one follows."""
        self._packed = self._packed or self._file.read(_READ_AT_ONCE)
        while not self._member and self._members:
            self._packed = self._packed.lstrip(b"\0")
            if self._packed:
                break
            self._packed = self._file.read(_READ_AT_ONCE)
            if not self._packed:
                return False
        self._member = self._member or zlib.decompressobj(_GZIP)
        return True

    def _unpack(self, size: int) -> bytes:
        try:
            data: bytes = self._member.decompress(self._packed, size)
        except zlib.error as error:
            raise OSError(f"zlib: {error}") from error
        if self._member.eof:
            self._packed = self._member.unused_data
            self._member, self._members = None, self._members + 1
        else:
            self._packed = self._member.unconsumed_tail
        return data
