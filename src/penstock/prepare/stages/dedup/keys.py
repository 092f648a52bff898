"""Keys: texts -> 128-bit hashes. Equal texts have equal keys; two others share one with a chance of 2**-128 a pair."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

Array = np.ndarray[Any, Any]
HASH = "xxh3-128"
KEY = np.dtype([("high", "<u8"), ("low", "<u8")])


def hash_texts(texts: pa.Array) -> Array:
    """The key of each text; a null has that of an empty one, which is no document either."""
    if not len(texts):
        return np.zeros(0, KEY)
    texts = texts.cast(pa.large_binary())
    offsets = np.frombuffer(texts.buffers()[1], "i8")[texts.offset : texts.offset + len(texts) + 1]
    data = memoryview(texts.buffers()[2] or b"")
    hashed = xxhash.xxh3_128_digest
    digests = b"".join([hashed(data[start:end]) for start, end in itertools.pairwise(offsets.tolist())])
    words = np.frombuffer(digests, ">u8").reshape(-1, 2)
    keys = np.empty(len(texts), KEY)
    keys["high"], keys["low"] = words[:, 0], words[:, 1]
    return keys


def sort_order(keys: Array) -> Array:
    """The stable order of keys: equal ones stay as they came."""
    order = np.argsort(keys["high"], kind="stable")
    high, low = keys["high"][order], keys["low"][order]
    if ((high[1:] == high[:-1]) & (low[1:] != low[:-1])).any():  # two keys share 64 bits: seldom, so it may cost
        return np.lexsort((keys["low"], keys["high"]))
    return order


def repeats(keys: Array) -> Array:
    """For sorted keys: whether each equals the one before it."""
    same = (keys["high"][1:] == keys["high"][:-1]) & (keys["low"][1:] == keys["low"][:-1])
    return np.concatenate([np.zeros(min(1, len(keys)), bool), same])
