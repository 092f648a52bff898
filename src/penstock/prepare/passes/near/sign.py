"""Sign: the ending of a fold that leaves the band keys of its documents. Next: pair.py."""

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes.folds.sink import Into, Produced, Sink
from penstock.prepare.passes.near.ranges import FOLDER
from penstock.prepare.rows.container import Array
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup.near.paired import DOCUMENTS
from penstock.prepare.stages.dedup.near.ranks import Rank
from penstock.prepare.stages.dedup.near.shingles import Giant, Shingling
from penstock.prepare.stages.dedup.near.signatures import Banding
from penstock.prepare.stages.dedup.runs import RunsWriter

BAND = np.dtype([("high", "<u8"), ("number", "<u4")])  # a band's key, and the document's number in its slice
RANKED = np.dtype([*BAND.descr, ("rank", "<u8")])
SOURCES = "sources"  # in the states of a ledger row: documents by number of the source
_RUN_ENTRIES = 1 << 18  # 3 to 5 MB, and three times that while they are sorted
BLOCK = 1 << 10  # entries: where there are many runs, a piece of a range reads a block of each


@dataclass(frozen=True)
class SignaturesInto(Into):
    number: int  # of the pass
    column: str
    shingling: Shingling
    banding: Banding
    rank: Rank | None

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:  # noqa: ARG002
        bands = Bands(self, store, f"{FOLDER}/{self.number}-{number:05d}.bands", stack)
        return Sink(bands.write, bands.finish)


class Bands:
    """The band keys of one slice, in sorted runs of as many documents each, whatever batches they come in."""

    def __init__(self, into: SignaturesInto, store: Store, name: str, stack: ExitStack) -> None:
        self._into, self._dtype = into, RANKED if into.rank else BAND
        self._writer = RunsWriter(store, name, stack, self._dtype, lasting=False, block=BLOCK)
        self._per_run = max(1, _RUN_ENTRIES // into.banding.bands)
        self._waiting: list[Array] = []
        self._documents = self._complete = self._written = 0  # seen; all of these have keys; all of these are in runs
        self._sources: dict[str, int] = {}

    def write(self, rows: Rows) -> None:
        banding, rank = self._into.banding, self._into.rank
        ranks = rank.of(rows.batch) if rank else None
        for some in self._into.shingling.of(rows.batch.column(self._into.column)):
            if isinstance(some, Giant):
                documents, keys = np.array([some.document]), banding.giant_keys(some)
            else:
                documents, keys = some.documents, banding.keys(some)
            entries = np.empty(keys.shape, self._dtype)
            entries["high"] = keys
            entries["number"] = (self._documents + documents)[:, None]
            if ranks is not None:
                entries["rank"] = ranks[documents][:, None]
            self._add(entries)
        self._documents += len(rows)
        self._sources[str(rows.source)] = self._sources.get(str(rows.source), 0) + len(rows)

    def _add(self, entries: Array) -> None:
        """Documents come in portions. When one comes that is behind all others, these have all come."""
        first, last = int(entries["number"][0, 0]), int(entries["number"][-1, 0])
        while first >= self._complete >= self._written + self._per_run:
            self._put_run(self._written + self._per_run)
        self._waiting.append(entries.reshape(-1))
        self._complete = max(self._complete, last + 1)

    def _put_run(self, end: int) -> None:
        """The documents before `end` that are in no run yet."""
        waiting = np.concatenate(self._waiting)
        is_in = waiting["number"] < end
        run, self._waiting, self._written = waiting[is_in], [waiting[~is_in]], end
        self._writer.write(run[np.lexsort((run["number"], run["high"]))])

    def finish(self) -> Produced:
        while self._written < self._documents:
            self._put_run(min(self._written + self._per_run, self._documents))
        spill = self._writer.finish({DOCUMENTS: self._documents})
        return Produced(spill=spill, states={SOURCES: self._sources}, lasting=False)
