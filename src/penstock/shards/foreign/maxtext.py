"""MaxText: rows of tokens -> a folder of ArrayRecord files of tf.train.Example, each a row as int64 feature `text`.

What MaxText reads with `dataset_type: grain` and `tokenize_train_data: false`. Where documents begin is not in it:
MaxText has no place for that in rows that are packed already.
"""

import os
from collections.abc import Iterator, Mapping

from penstock.base.errors import ConfigError, InputError, IntegrityError
from penstock.base.files import WriteFile
from penstock.base.paths import dataset_path, local_path
from penstock.base.stores.local import LocalStore
from penstock.shards.dataset import Dataset
from penstock.shards.foreign.arrayrecord import library
from penstock.shards.foreign.arrayrecord_file import SUFFIX, open_reader, write_records
from penstock.shards.foreign.example import encode_examples
from penstock.shards.foreign.export import (
    NO_OVERHEAD,
    SHARD_SIZE,
    Exported,
    Overhead,
    Written,
    finish,
    open_splits,
    refuse_target,
    row_ranges,
    shard_bytes,
    write_files,
    written_beside,
)
from penstock.shards.packed import TOKENS, Array, Columns, has_tokens, read_tokens, refuse_null_tokens

FEATURE = "text"
_AT_ONCE = 2**18  # bytes of tokens that are encoded together: each takes some 40 bytes on the way
_LARGEST = 2**31 - 1
_OVERHEAD = Overhead(
    file=2**17, piece=64
)  # of ArrayRecord at most: blocks of 64 KiB are filled up, records have a head


def export_maxtext(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    split: str | None = None,
    overwrite: bool = False,
    shard_size: str | int = SHARD_SIZE,
) -> Exported:
    """Write the tokens of all splits, or of one, into a folder that appears whole or not at all."""
    library()
    path, target = dataset_path(path), os.path.abspath(local_path(output, is_output=True))
    splits = open_splits(path, split, "maxtext")
    _refuse_without_tokens(splits, path)
    most = shard_bytes(shard_size, splits)
    refuse_target(path, target, overwrite)
    with written_beside(target) as store:
        written = {name: _write_split(store, dataset, most) for name, dataset in splits.items()}
        return finish(store, path, "maxtext", written)


def _refuse_without_tokens(splits: Mapping[str, Dataset], where: str) -> None:
    for dataset in splits.values():
        if not has_tokens(dataset.schema):
            columns = ", ".join(f"{field.name}: {field.type}" for field in dataset.schema)
            raise ConfigError(
                f"there are no rows of tokens here: no column {TOKENS!r} with lists of whole numbers among {columns}",
                where=where,
                next_step="make them with the stages `tokenize` and `pack`",
            )


def _write_split(store: LocalStore, dataset: Dataset, most: int) -> Written:
    written = Written(tokens=0)
    examples = _examples(dataset, most, written)
    overhead = _OVERHEAD if most >= 2 * _OVERHEAD.file else NO_OVERHEAD  # no file is smaller: else a record in each
    written.files = len(write_files(store, dataset.split, SUFFIX, examples, most, _write_file, overhead))
    return written


def _examples(dataset: Dataset, most: int, written: Written) -> Iterator[bytes]:
    schema = tuple(field for field in dataset.schema if field.name == TOKENS)
    for columns, start, stop in row_ranges(dataset, schema, min(most, _AT_ONCE)):
        refuse_null_tokens(columns)
        values, edges = read_tokens(columns, start, stop)
        if values.min(initial=0) < 0 or values.max(initial=0) > _LARGEST:
            raise _other_ids(values, columns, start, stop)
        written.rows += stop - start
        written.tokens = (written.tokens or 0) + len(values)
        yield from encode_examples(FEATURE, values, edges)


def _other_ids(values: Array, columns: Columns, start: int, stop: int) -> InputError:
    least, largest = int(values.min()), int(values.max())
    file = columns[TOKENS if TOKENS in columns else f"{TOKENS}/values"].file
    return InputError(
        f"a token is {least if least < 0 else largest:,}, and ids are 0 to {_LARGEST:,}: batches are int32",
        where=f"{file}, records {start:,} to {stop:,}",
        next_step="filter such rows out, or mend them, when the dataset is made",
    )


def _write_file(file: WriteFile, examples: Iterator[bytes]) -> None:
    records = write_records(file.path, examples)  # the library opens it again, by its path
    if (found := open_reader(file.path).num_records()) != records:
        raise IntegrityError(f"{found:,} records can be read, {records:,} were written", where=file.path)
