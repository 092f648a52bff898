"""Bins: edges of ranges that hold about equally many values of a column, as an artifact. `load(fields=)` uses them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.fitting.quantiles import CELLS_PER_BIN, PACKED_BYTES, Quantiles
from penstock.prepare.stages.interfaces import Fit, Fits, MindsPlace, Named, only_measures
from penstock.prepare.stages.stage import require_columns
from penstock.prepare.stages.text.pack import Pack

MOST_BINS = 4096


@dataclass(frozen=True, kw_only=True)
class Bins(Fits, MindsPlace):
    """`bins: {rtt: 256}` finds 256 ranges of `rtt` with equally many training rows, and writes `artifacts/bins.json`.

    Rows pass through unchanged. `load(fields={"rtt": "bins"})` then gives each range a token. The artifact has the
    edges and the exact number of values in each bin. A value that many rows have is in one bin, so that there may be
    fewer bins than asked for. No bin is empty. Nulls, NaNs and infinities are counted, and are in no bin.

    Put it after every stage that changes columns or leaves out rows, and after stages of your own: only `group`,
    `statistics` and other `bins` may follow. Before `group`, it also measures the rows without a key, which
    `group` sets aside.
    """

    smaller_states: ClassVar[str] = "fewer bins"

    columns: dict[str, int]

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        options = super().options_from_yaml(written)
        return options if isinstance(options.get("columns"), dict) else {"columns": options}

    def __post_init__(self) -> None:
        if not self.columns:
            raise ConfigError("name a column and how many bins it gets, such as `bins: {rtt: 256}`")
        for name, count in self.columns.items():
            if not 2 <= count <= MOST_BINS:
                raise ConfigError(f"{name}: {count} bins; a column has from 2 to {MOST_BINS:,}")

    def refuse_place(self, before: Sequence[Named], behind: Sequence[Named], format: str) -> None:  # noqa: ARG002
        """The edges are those of the values that `load` is given."""
        for name, stage in before:
            if isinstance(stage, Bins) and (twice := sorted(self.columns.keys() & stage.columns.keys())):
                raise ConfigError(
                    f"column {twice[0]!r} has bins of an earlier `{name}` already, and `load` can use one",
                    next_step="leave one of them out",
                )
        changing = [number for number, (_, stage) in enumerate(behind) if not only_measures(stage)]
        if not changing:
            return
        name, stage = behind[changing[-1]]
        if isinstance(stage, Pack):
            raise ConfigError(
                f"its edges are for fields of events, but {name} makes rows of tokens",
                next_step="leave `bins` out; `statistics` measures columns of documents",
            )
        place = f"stages[{len(before) + 1 + changing[-1]}].{name}"
        raise ConfigError(
            f"it measures the values that `load` uses its edges for, but comes before {place}, which may change or "
            "leave out what was measured",
            next_step=f"move `bins` after {place}",
        )

    def __call__(self, rows: Rows) -> Rows:
        return rows

    def fit(self) -> Fit:
        return Quantiles(self.columns)

    def state_bytes(self, rows: int) -> int:  # noqa: ARG002
        return sum(PACKED_BYTES * CELLS_PER_BIN * count for count in self.columns.values())

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_columns(schema, list(self.columns))
        for name in self.columns:
            kind = schema.field(name).type
            if not _is_number(kind):
                raise ConfigError(
                    f"column {name!r} is {kind}, not an integer, a float, or a list of them",
                    next_step="leave it out, or give it a type before: `cast: {...}`",
                )
        return schema

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None else after | frozenset(self.columns)


def _is_number(kind: pa.DataType) -> bool:
    is_a = pa.types
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        return _is_number(kind.value_type)
    return bool(is_a.is_integer(kind) or is_a.is_floating(kind))
