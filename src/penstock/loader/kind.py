"""Kind: what a loader needs of a kind of data: how many rows, of which arrays, and how to fill them from draws."""

from typing import Any, NamedTuple, Protocol

from penstock.loader.batches import Batch, Layout
from penstock.loader.order.order import Draws, Stream
from penstock.loader.tables import Made, Tables
from penstock.loader.tokens.vocabulary import Vocabulary


class Held(NamedTuple):
    """Records that rows are made of: one per row, or one per segment where the draws have several.

    With `has_segments`, rows are tokens, and `inputs_segmentation` numbers their segments. With `by_documents`, these
    are the documents of the row's record, in order.
    """

    records: Draws
    has_segments: bool = False
    by_documents: bool = False


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
