"""Megatron index: the header of an .idx file, encoded and decoded, and where the arrays behind it lie.

`train.bin` holds the tokens of all sequences, one behind the other; `train.idx` says where they are:

| bytes | what |
|---|---|
| 9, 8, 1 | `MMIDIDX` and two zeros; the version, 1; a code for the type of a token |
| 8, 8 | how many sequences there are; how many edges, which is one more than documents |
| 4 per sequence | its tokens, int32 |
| 8 per sequence | the byte of the .bin file where it begins, int64 |
| 8 per edge | the first sequence of each document; at last, the number of all sequences, int64 |
| 1 per sequence | its mode, in datasets of several modalities only |
"""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

MAGIC, VERSION = b"MMIDIDX\0\0", 1
_HEADER = struct.Struct("<9sQBQQ")
HEADER_BYTES = _HEADER.size
# Codes 6 and 7 are floats, and which of them is float32 differs between versions of Megatron.
CODES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
LENGTH, PLACE = np.dtype("<i4"), np.dtype("<i8")


@dataclass(frozen=True)
class IndexHeader:
    dtype: np.dtype[Any]
    sequences: int
    edges: int

    @property
    def lengths_at(self) -> int:
        return HEADER_BYTES

    @property
    def pointers_at(self) -> int:
        return self.lengths_at + LENGTH.itemsize * self.sequences

    @property
    def edges_at(self) -> int:
        return self.pointers_at + PLACE.itemsize * self.sequences

    @property
    def bytes(self) -> int:
        """Size of the whole file, without modes."""
        return self.edges_at + PLACE.itemsize * self.edges


def encode_header(header: IndexHeader) -> bytes:
    code = next(code for code, kind in CODES.items() if np.dtype(kind) == header.dtype)
    return _HEADER.pack(MAGIC, VERSION, code, header.sequences, header.edges)


def decode_header(data: bytes) -> IndexHeader:
    """Raises ValueError, with the byte and the numbers, for what is no header of a file of tokens."""
    if len(data) < HEADER_BYTES:
        raise ValueError(f"it has {len(data):,} bytes, and its header alone has {HEADER_BYTES}")
    magic, version, code, sequences, edges = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ValueError(f"at byte 0 it has {magic!r}, and such a file begins with {MAGIC!r}")
    if version != VERSION:
        raise ValueError(f"at byte {len(MAGIC)} it has version {version:,}, and {VERSION} is known")
    if code not in CODES:
        known = ", ".join(f"{number} ({np.dtype(kind).name})" for number, kind in CODES.items())
        raise ValueError(
            f"at byte {len(MAGIC) + 8} it has {code} for the type of tokens, and whole numbers are {known}"
        )
    return IndexHeader(np.dtype(CODES[code]), sequences, edges)
