"""Kind: what a loader needs of a kind of data: how many rows, of which arrays, and how to fill them from draws."""

from typing import Any, Protocol

from penstock.loader.batches import Batch, Layout
from penstock.loader.order.order import Draws, Held, Stream
from penstock.loader.tables import Made, Tables
from penstock.loader.tokens.vocabulary import Vocabulary


class Kind(Protocol):
    name: str
    unit: str  # what `Made.tokens` counts
    layout: Layout
    streams: tuple[Stream, ...]  # one per dataset
    tables: Tables

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Vocabulary of events; None for other kinds."""

    def fill(self, draws: Draws, out: Batch) -> Made:
        """Fill the arrays of the layout. `out` may get other views of their memory."""

    def holds(self, draws: Draws) -> Held:
        """The records of drawn rows, for `loader.origin(k)`. A place that was drawn need not be a record's number."""

    def hold(self, room: int) -> object:
        """Hold what makes rows faster, in at most `room` bytes."""

    def describe(self) -> dict[str, Any]:
        """Settings that decide the rows, for the recipe."""
