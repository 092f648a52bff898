"""Megatron's .bin and .idx files, written and read in plain Python: what the tests hold penstock's own against.

tests/adapters/test_megatron.py holds `write_pair` against Megatron's own writer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}


def write_pair(prefix: Path, documents: Sequence[Sequence[Sequence[int]]], dtype: str = "int32") -> Path:
    """Write documents, each a list of sequences; the path of the .idx file."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    sequences = [sequence for document in documents for sequence in document]
    edges = np.cumsum([0, *map(len, documents)])
    sizes = np.array([len(sequence) for sequence in sequences], "i8")
    pointers = (np.cumsum(sizes) - sizes) * np.dtype(dtype).itemsize
    Path(f"{prefix}.bin").write_bytes(b"".join(np.array(each, dtype).tobytes() for each in sequences))
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, CODES[dtype], len(sequences), len(edges))
    arrays = sizes.astype("<i4").tobytes() + pointers.astype("<i8").tobytes() + edges.astype("<i8").tobytes()
    index = Path(f"{prefix}.idx")
    index.write_bytes(header + arrays)
    return index


def read_pair(prefix: Path) -> tuple[str, list[list[int]]]:
    """The type of tokens, and every sequence; each must be a document."""
    data, tokens = Path(f"{prefix}.idx").read_bytes(), Path(f"{prefix}.bin").read_bytes()
    assert data[:9] == b"MMIDIDX\0\0"
    version, code, count, edges = struct.unpack_from("<QBQQ", data, 9)
    assert (version, edges, len(data)) == (1, count + 1, 34 + 12 * count + 8 * edges)
    lengths = struct.unpack_from(f"<{count}i", data, 34)
    pointers = struct.unpack_from(f"<{count}q", data, 34 + 4 * count)
    assert struct.unpack_from(f"<{edges}q", data, 34 + 12 * count) == tuple(range(edges))
    dtype = next(np.dtype(name) for name, number in CODES.items() if number == code)
    places = zip(pointers, lengths, strict=True)
    return dtype.name, [np.frombuffer(tokens, dtype, size, at).tolist() for at, size in places]
