"""Token rows: the splits of a dataset -> ids, some rows at a time, for formats that have a place for tokens alone."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.base.errors import ConfigError, InputError
from penstock.shards.dataset import Dataset
from penstock.shards.foreign import export
from penstock.shards.foreign.pieces import row_ranges
from penstock.shards.packed import TOKENS, Array, Columns, has_tokens, read_tokens, refuse_null_tokens

LARGEST = 2**31 - 1


@dataclass(frozen=True)
class TokenRows:
    """Rows `start` to `stop` of a shard: their ids one behind the other, and where each row begins among them."""

    columns: Columns
    start: int
    stop: int
    values: Array
    edges: Array

    @property
    def where(self) -> str:
        """Place for errors."""
        file = self.columns[TOKENS if TOKENS in self.columns else f"{TOKENS}/values"].file
        return f"{file}, records {self.start:,} to {self.stop:,}"


def refuse_other_columns(splits: Mapping[str, Dataset], where: str, program: str) -> None:
    """Refuse a dataset without tokens, and one with values that belong to each token."""
    for dataset in splits.values():
        if not has_tokens(dataset.schema):
            columns = ", ".join(f"{field.name}: {field.type}" for field in dataset.schema)
            raise ConfigError(
                f"there are no rows of tokens here: no column {TOKENS!r} with lists of whole numbers among {columns}",
                where=where,
                next_step="make them with the stages `tokenize` and `pack`",
            )
        if kept := dataset.manifest.kept:
            raise ConfigError(
                f"`pack` kept {', '.join(kept)} beside the tokens, but {program} takes only tokens",
                where=where,
                next_step="make the dataset without `keep:`, or export it to hf or zarr",
            )


def token_rows(dataset: Dataset, most_bytes: int, written: export.Written) -> Iterator[TokenRows]:
    """Rows of a split in order, about `most_bytes` of tokens at a time; `written` counts them."""
    schema = tuple(field for field in dataset.schema if field.name == TOKENS)
    for columns, start, stop in row_ranges(dataset, schema, most_bytes):
        refuse_null_tokens(columns)
        rows = TokenRows(columns, start, stop, *read_tokens(columns, start, stop))
        if rows.values.min(initial=0) < 0 or rows.values.max(initial=0) > LARGEST:
            raise _other_ids(rows)
        written.rows += stop - start
        written.tokens = (written.tokens or 0) + len(rows.values)
        yield rows


def _other_ids(rows: TokenRows) -> InputError:
    least, largest = int(rows.values.min()), int(rows.values.max())
    return InputError(
        f"a token is {least if least < 0 else largest:,}, but ids are 0 to {LARGEST:,}: batches are int32",
        where=rows.where,
        next_step="filter such rows out, or fix them, when the dataset is made",
    )
