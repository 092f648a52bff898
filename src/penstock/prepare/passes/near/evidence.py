"""Evidence: the removed documents -> duplicates/*.parquet, which names each with its survivor, and a summary."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.sizes import counted
from penstock.base.stores.store import Store
from penstock.prepare.passes.near.pairing import REPRESENTATIVES
from penstock.prepare.rows.container import Array
from penstock.prepare.stages.dedup.near.near_dedup import NearDedup
from penstock.prepare.stages.dedup.near.removed import REMOVAL, removals_in
from penstock.prepare.survey.survey import Survey
from penstock.shards.columns import FileFacts, commit_file
from penstock.shards.origins import DUPLICATES, HASH, NEAR_SUMMARY, Origins

_ROWS_PER_FILE = 1 << 16  # 65 MB in the driver while it is written; no worker runs then


@dataclass(frozen=True)
class Removals:
    """Documents and removals by source, and what was compared for them."""

    documents: Mapping[int, int]
    removed: Mapping[int, int]
    compared: int
    similar: int
    not_compared: int

    def write(self, store: Store, near: NearDedup) -> FileFacts:
        return commit_file(store, NEAR_SUMMARY, json.dumps(self._summary(near), indent=1).encode() + b"\n")

    def _summary(self, near: NearDedup) -> dict[str, object]:
        sources = [
            {"source": number, "documents": count, "removed": self.removed.get(number, 0)}
            for number, count in sorted(self.documents.items())
        ]
        banding = near.banding
        return {
            "documents": sum(self.documents.values()),
            "removed": sum(self.removed.values()),
            "act": near.act,
            "candidates": self.compared,
            "similar": self.similar,
            "not_compared": self.not_compared,
            "sources": sources,
            "threshold": near.threshold,
            "bands": banding.bands,
            "rows": banding.rows,
            "detection": round(banding.detection(near.threshold), 6),
            "warn_above": near.warns_above,
        }

    def words(self, near: NearDedup, titles: Sequence[str]) -> str:
        """A line for the screen: what was found, and which sources lose more than `warn_above`."""
        removed, documents = sum(self.removed.values()), sum(self.documents.values())
        marked, loses = (", and are marked", "would lose") if near.act == "mark" else ("", "loses")
        found = f"{removed:,} of {documents:,} documents are near-duplicates{marked}"
        said = [f"{found} ({counted(self.compared, 'pair')} compared)"]
        for number, count in sorted(self.removed.items()):
            share = count / self.documents[number]
            if share > near.warns_above:
                of = f"({count:,} of {self.documents[number]:,})"
                said.append(f"WARNING: source {number} ({titles[number]}) {loses} {share:.0%} of its documents {of}")
        if weakness := near.banding.weakness(near.threshold):
            said.append(f"WARNING: {weakness}")
        if self.not_compared:
            crowded = f"where more than {REPRESENTATIVES + 1} documents agree in a band"
            said.append(f"{crowded}, {counted(self.not_compared, 'pair')} not compared, counted in each band")
        return "near_dedup: " + "; ".join(said)


def write_evidence(
    store: Store, files: Sequence[FileFacts], documents: Sequence[int], survey: Survey
) -> tuple[FileFacts, ...]:
    """The files of the evidence. `documents` has their number in each slice."""
    table = _Table.of(survey.origins, HASH in survey.origin_columns)
    return tuple(
        commit_file(store, f"{DUPLICATES}/{number:05d}.parquet", table.parquet(some))
        for number, some in enumerate(_in_files(_in_order(store, files, documents)))
    )


def _in_order(store: Store, files: Sequence[FileFacts], documents: Sequence[int]) -> Iterator[Array]:
    """All removed documents by position, of a range of documents at a time: a slice may have any number of them."""
    for number, count in enumerate(documents):
        for low in range(0, count, _ROWS_PER_FILE):
            some = [np.zeros(0, REMOVAL)]
            for removals in removals_in(store, files, number):
                some.append(removals[(removals["number"] >= low) & (removals["number"] < low + _ROWS_PER_FILE)])
            found = np.concatenate(some)
            yield found[np.argsort(found["number"])]


def _in_files(found: Iterator[Array]) -> Iterator[Array]:
    """As many as a file has, at a time."""
    held: list[Array] = []
    count = 0
    for some in found:
        held.append(some)
        count += len(some)
        if count >= _ROWS_PER_FILE:
            removals = np.concatenate(held)
            yield removals[:_ROWS_PER_FILE]
            held, count = [removals[_ROWS_PER_FILE:]], count - _ROWS_PER_FILE
    if count:
        yield np.concatenate(held)


@dataclass(frozen=True)
class _Table:
    """Files and sources by number of the piece, as arrays; and whether the job keeps content hashes."""

    shift: int
    sources: Array
    file_of: Array  # number of each piece's name among the names
    names: pa.Array
    has_hashes: bool

    @classmethod
    def of(cls, origins: Origins, has_hashes: bool) -> "_Table":
        names = sorted({piece.file for piece in origins.pieces})
        numbers = {name: number for number, name in enumerate(names)}
        files = np.array([numbers[piece.file] for piece in origins.pieces], "i4")
        return cls(
            origins.shift,
            np.array([piece.source for piece in origins.pieces], "i4"),
            files,
            pa.array(names, pa.string()),
            has_hashes,
        )

    def parquet(self, removals: Array) -> bytes:
        columns = {
            **self._columns("", removals["origin"], removals["hash"]),
            **self._columns("survivor_", removals["survivor"], removals["survivor_hash"]),
            "similarity": removals["similarity"],
        }
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(columns), sink, compression="zstd", store_schema=False)
        return bytes(sink.getvalue())

    def _columns(self, prefix: str, origins: Array, hashes: Array) -> dict[str, Array | pa.Array]:
        pieces = origins >> self.shift
        used, numbers = np.unique(self.file_of[pieces], return_inverse=True)
        files = pa.DictionaryArray.from_arrays(numbers.astype("i4"), self.names.take(pa.array(used)))
        positions = origins & ((1 << self.shift) - 1)
        places = {f"{prefix}source": self.sources[pieces], f"{prefix}file": files, f"{prefix}position": positions}
        return {**places, f"{prefix}hash": hashes} if self.has_hashes else places
