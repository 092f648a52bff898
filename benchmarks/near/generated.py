"""Generated: a size, or a count -> documents that no package has, for time and memory. Files are made one at a time.

`make_scale` draws words of real documents, the frequent ones more often. One document in ten is a copy of another one,
in this file or the one before it, with 1.5% of its words exchanged. `make_alike` makes one short text again and again
with another number in it: any two are 51/61 similar.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.corpus import MADE

SEED = 20_251_119
FILE_BYTES, DOCUMENT_BYTES, WORD_BYTES = 25_000_000, 3_000, 9.45
VOCABULARY = 50_000
STEEPNESS = 3  # of the choice of words: the larger, the more often come the first
SPREAD = 0.8  # of the logarithm of lengths
COPY_EVERY, EXCHANGED = 10, 0.015
WORDS_ALIKE, ALIKE_PER_FILE = 60, 50_000

Numbers = np.ndarray


def make_scale(folder: Path, size: int, real: Path) -> Path:
    if not (folder / MADE).exists():
        words = vocabulary(real)
        found = [_write(folder, number, _scale_file(words, number)) for number in range(-(-size // FILE_BYTES))]
        _finish(folder, found)
    return folder


def make_alike(folder: Path, count: int) -> Path:
    if not (folder / MADE).exists():
        starts = range(0, count, ALIKE_PER_FILE)
        found = [
            _write(folder, number, _alike_file(start, min(count, start + ALIKE_PER_FILE)))
            for number, start in enumerate(starts)
        ]
        _finish(folder, found)
    return folder


def _write(folder: Path, number: int, texts: pa.Array) -> tuple[int, int]:
    """Number of documents, and bytes of text."""
    parquet = folder / "parquet"
    parquet.mkdir(parents=True, exist_ok=True)
    ids = pa.array([f"{number:05d}-{row:06d}" for row in range(len(texts))])
    path = parquet / f"part-{number:05d}.parquet"
    table = pa.table({"id": ids, "text": texts})
    pq.write_table(table, path, compression="zstd", use_dictionary=False, row_group_size=2_000)
    return len(texts), pc.sum(pc.binary_length(texts)).as_py()


def _finish(folder: Path, found: list[tuple[int, int]]) -> None:
    documents, text_bytes = map(sum, zip(*found, strict=True))
    (folder / MADE).write_text(json.dumps({"documents": documents, "text_bytes": text_bytes}))


# Text of many words.


def vocabulary(real: Path) -> pa.Array:
    """Words of real documents, in the order in which they first come, each with a space behind it."""
    texts = (text for path in sorted(real.glob("*.parquet")) for text in pq.read_table(path)["text"].to_pylist())
    words = dict.fromkeys(word for text in texts for word in text.split() if len(word) < 20)
    return pa.array([word + " " for word in itertools.islice(words, VOCABULARY)])


def _scale_file(words: pa.Array, number: int) -> pa.Array:
    lengths, chosen = _fresh(number, len(words))
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    documents = [chosen[first:last] for first, last in itertools.pairwise(bounds)]
    before_lengths, before = _fresh(max(number - 1, 0), len(words))
    before_bounds = np.concatenate([[0], np.cumsum(before_lengths)])
    random = np.random.default_rng([SEED, number, 1])
    for row in range(COPY_EVERY - 1, len(documents), COPY_EVERY):
        from_before = row % (2 * COPY_EVERY) == COPY_EVERY - 1 and row < len(before_bounds)
        original = before[before_bounds[row - 1] : before_bounds[row]] if from_before else documents[row - 1]
        documents[row] = _exchanged(original, len(words), random)
    return _joined(words, documents)


def _fresh(number: int, words: int) -> tuple[Numbers, Numbers]:
    """Lengths of documents in words, and the words of all of them."""
    random = np.random.default_rng([SEED, number, 0])
    mean_words = DOCUMENT_BYTES / WORD_BYTES
    lengths = np.exp(random.normal(np.log(mean_words) - SPREAD**2 / 2, SPREAD, FILE_BYTES // DOCUMENT_BYTES))
    lengths = np.maximum(lengths.astype(np.int64), 20)
    return lengths, (words * random.random(lengths.sum()) ** STEEPNESS).astype(np.int32)


def _exchanged(original: Numbers, words: int, random: np.random.Generator) -> Numbers:
    copy = original.copy()
    places = random.integers(0, len(copy), round(EXCHANGED * len(copy)))
    copy[places] = random.integers(0, words, len(places))
    return copy


def _joined(words: pa.Array, documents: list[Numbers]) -> pa.Array:
    """All words one after the other are the bytes of all documents."""
    taken = words.take(pa.array(np.concatenate(documents)))
    _, offsets, data = taken.buffers()
    bounds = np.concatenate([[0], np.cumsum([len(each) for each in documents])])
    ends = np.frombuffer(offsets, np.int32, len(taken) + 1)[bounds]
    return pa.StringArray.from_buffers(len(documents), pa.py_buffer(np.ascontiguousarray(ends)), data)


# Documents that are nearly all the same.


def _alike_file(first: int, last: int) -> pa.Array:
    words = [f"word{number:02d}" for number in range(WORDS_ALIKE)]
    before, after = " ".join(words[: WORDS_ALIKE // 2]), " ".join(words[WORDS_ALIKE // 2 + 1 :])
    return pa.array([f"{before} {number} {after}" for number in range(first, last)])
