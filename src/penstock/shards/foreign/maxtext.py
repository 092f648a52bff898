"""MaxText: rows of tokens -> a folder of ArrayRecord files of tf.train.Example, each a row as int64 feature `text`.

What MaxText reads with `dataset_type: grain` and `tokenize_train_data: false`. Where documents begin is not in it:
MaxText has no place for that in rows that are packed already.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from penstock.base.errors import IntegrityError
from penstock.base.files import WriteFile
from penstock.base.stores.local import LocalStore
from penstock.shards.dataset import Dataset
from penstock.shards.foreign import export
from penstock.shards.foreign.arrayrecord import library
from penstock.shards.foreign.arrayrecord_file import SUFFIX, open_reader, write_records
from penstock.shards.foreign.token_rows import refuse_other_columns, token_rows
from penstock.shards.packed import Array

FEATURE = "text"
_AT_ONCE = 2**18  # bytes of tokens that are encoded together: each takes some 40 bytes on the way
# Of ArrayRecord at most: blocks of 64 KiB are filled up, records have a head.
_OVERHEAD = export.Overhead(file=2**17, piece=64)


def export_maxtext(
    path: str, target: str, split: str | None = None, overwrite: bool = False, shard_size: str | int = export.SHARD_SIZE
) -> export.Exported:
    """Write the tokens of all splits, or of one, into a folder that appears whole or not at all."""
    library()
    splits = export.open_splits(path, split, "maxtext")
    refuse_other_columns(splits, path, "MaxText")
    most = export.shard_bytes(shard_size, splits)
    export.refuse_target(path, target, overwrite)
    with export.written_beside(target) as store:
        written = {name: _write_split(store, dataset, most) for name, dataset in splits.items()}
        return export.finish(store, path, "maxtext", written)


def _write_split(store: LocalStore, dataset: Dataset, most: int) -> export.Written:
    written = export.Written(tokens=0)
    examples = _examples(dataset, most, written)
    overhead = (
        _OVERHEAD if most >= 2 * _OVERHEAD.file else export.NO_OVERHEAD
    )  # no file is smaller: else a record in each
    written.files = len(export.write_files(store, dataset.split, SUFFIX, examples, most, _write_file, overhead))
    return written


def _examples(dataset: Dataset, most: int, written: export.Written) -> Iterator[bytes]:
    for rows in token_rows(dataset, min(most, _AT_ONCE), written):
        yield from encode_examples(FEATURE, rows.values, rows.edges)


def _write_file(file: WriteFile, examples: Iterator[bytes]) -> None:
    records = write_records(file.path, examples)  # the library opens it again, by its path
    if (found := open_reader(file.path).num_records()) != records:
        raise IntegrityError(f"{found:,} records can be read, {records:,} were written", where=file.path)


def encode_examples(name: str, values: Array, edges: Array) -> Iterator[bytes]:
    """One tf.train.Example a row: those of `values` from one of `edges` to the next, as the feature `name`.

    As protocol buffers nest them, with the field's number in front of each level:

    Example { features = 1 { feature = 1 { key = 1: name, value = 2 { int64_list = 3 { value = 1: packed varints }}}}}
    """
    data, places = _varints(values)
    key = _field(1, name.encode())
    cuts = places[edges].tolist()
    for low, high in itertools.pairwise(cuts):
        packed = _field(1, data[low:high].tobytes()) if high > low else b""
        yield _field(1, _field(1, key + _field(2, _field(3, packed))))


def _varints(values: Array) -> tuple[Array, Array]:
    """The bytes of all values, which are 0 to 2^31 - 1, and where each begins.

    A varint has seven bits a byte, the low ones first, and the eighth bit says that more follow. Every value is
    spread over a word, and of the word's bytes those that it has are picked out.
    """
    wide = int(values.max(initial=0)) >= 2**28
    left = values.astype("<u8" if wide else "<u4")
    words, sizes = np.zeros_like(left), np.ones(len(left), "u1")
    for byte in range(left.itemsize):
        words |= (left & 127) << (8 * byte)
        left >>= 7
        more = left != 0
        if not more.any():
            break
        words |= more.astype(left.dtype) << (8 * byte + 7)
        sizes += more
    own = np.array([256**size // 255 for size in range(left.itemsize + 1)], left.dtype)[sizes]  # 1 in `size` bytes
    return words.view("u1")[own.view("?")], np.concatenate([[0], np.cumsum(sizes, dtype="i8")])


def _field(number: int, data: bytes) -> bytes:
    """A field of bytes: its number with wire type 2, the length, the bytes."""
    return bytes([number << 3 | 2]) + _length(len(data)) + data


def _length(size: int) -> bytes:
    data = bytearray()
    while size > 127:
        data.append(size & 127 | 128)
        size >>= 7
    return bytes([*data, size])
