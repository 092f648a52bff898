"""Distributions: a dataset -> how large its records are, how long documents and lists, how many events a key has.

Summaries that the job left are exact. What it did not count is measured in the columns: in all records, or for a large
dataset in pieces spread evenly over it, and the facts say how many records were seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from penstock.base.sizes import counted
from penstock.base.stores.store import Store
from penstock.shards.dataset import Dataset, open_dataset
from penstock.shards.manifest import Manifest
from penstock.shards.packed import SUMMARY
from penstock.show.contents.summary import GROUP, read_summary
from penstock.show.report.gathering.histogram import Histogram, coarser
from penstock.show.report.gathering.measuring import Array, Columns, lengths, record_bytes, spans

Facts = dict[str, Any]
PIECE = 65_536  # records measured at a time
MOST_PIECES = 256  # per split
_LONG_SECONDS = 1000
_MOST_COLUMNS = 4  # whose lengths are shown
_WITHOUT_COLUMNS = ("npz", "arrayrecord")
_SPANS = ("timestamp", "date32", "int", "uint")  # types whose differences are told
_SPAN_UNITS = {"timestamp": "second", "date32": "day"}
_IN_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def distributions(store: Store, manifest: Manifest) -> Facts:
    """Each distribution that the dataset has, and a sentence for what was not measured."""
    group = read_summary(store, manifest, GROUP) or {}
    text = read_summary(store, manifest, SUMMARY) or {}
    exact = [*_keys(group), *_documents(text)]
    measured, notes = _measured(store, manifest, group)
    return {"shown": [*exact, *measured], "notes": notes}


# Summaries that the job left.


def _keys(group: Facts) -> Iterator[Facts]:
    levels = group.get("keys_by_events") or {}
    if levels:
        found = [{"least": int(level), "most": 2 * int(level) - 1, "count": count} for level, count in levels.items()]
        largest = group["largest"][0]["events"] if group["largest"] else None
        facts = {"count": group["keys"], "least": None, "greatest": largest, "mean": group["events"] / group["keys"]}
        facts |= {"buckets": coarser(found), "largest": group["largest"]}
        yield _titled("Events per key", "key", "event", facts)


def _documents(text: Facts) -> Iterator[Facts]:
    sources = [each for sources in text.values() for each in sources.values()]
    levels = [sum(each) for each in zip(*(each["lengths"] for each in sources), strict=True)]
    found = [{"least": (1 << n) >> 1, "most": (1 << n) - 1, "count": count} for n, count in enumerate(levels)]
    documents = sum(each["documents"] for each in sources)
    if documents:
        mean = sum(each["tokens"] for each in sources) / documents
        facts = {"count": documents, "least": None, "greatest": None, "mean": mean, "buckets": coarser(found)}
        yield _titled("Tokens per document", "document", "token", facts)


def _titled(title: str, noun: str, unit: str, facts: Facts, seen: str | None = None, per_second: int = 1) -> Facts:
    seen = seen or f"all {counted(facts['count'], noun)}"
    return {"title": title, "noun": noun, "unit": unit, "per_second": per_second, "seen": seen, **facts}


# Columns.


Measuring = Callable[[Columns, Array], Array]  # a whole number per record between neighbouring edges


@dataclass
class _Measure:
    """One distribution while it is measured."""

    title: str
    unit: str
    of: Measuring
    per_second: int = 1
    histogram: Histogram = field(default_factory=Histogram)

    def facts(self, seen: str) -> Facts:
        """Facts of the distribution. If spans are hours long, all below a second are one bucket."""
        is_long = (self.histogram.greatest or 0) >= _LONG_SECONDS * self.per_second
        found = self.histogram.facts(self.per_second if is_long else 0)
        return _titled(self.title, "record", self.unit, found, seen, self.per_second)


def _measured(store: Store, manifest: Manifest, group: Facts) -> tuple[list[Facts], list[str]]:
    if manifest.config.get("format") in _WITHOUT_COLUMNS:
        return [], [f"Records of format {manifest.config['format']} are not measured: they have no columns."]
    of_columns = list(_event_measures(manifest, group) if group else _column_measures(manifest))
    measures = [
        _Measure("Bytes per record", "byte", partial(record_bytes, schema=manifest.schema)),
        *of_columns[:_MOST_COLUMNS],
    ]
    seen = 0
    for columns, low, high in _pieces(store, manifest):
        seen += high - low
        for measure in measures:
            measure.histogram.add(measure.of(columns, np.arange(low, high + 1)))
    records = sum(map(manifest.records, manifest.splits))
    words = f"all {counted(records, 'record')}"
    if seen < records:
        words = f"{seen:,} of {counted(records, 'record')}, in pieces spread evenly over the dataset"
    more = len(of_columns) - _MOST_COLUMNS
    notes = [f"Lengths in {counted(more, 'more column')} are not shown."] if more > 0 else []
    return [measure.facts(words) for measure in measures if measure.histogram.count], notes


def _pieces(store: Store, manifest: Manifest) -> Iterator[tuple[Columns, int, int]]:
    """Records of a shard that are measured together. The choice depends on the counts in the manifest alone."""
    for split, shards in manifest.splits.items():
        dataset = open_dataset(store.root, split)
        assert isinstance(dataset, Dataset)
        every = [
            (number, low, min(shard.records, low + PIECE))
            for number, shard in enumerate(shards)
            for low in range(0, shard.records, PIECE)
        ]
        taken = min(len(every), MOST_PIECES)
        for step in range(taken):
            number, low, high = every[step * len(every) // taken]
            yield dataset.columns(number), low, high


def _column_measures(manifest: Manifest) -> Iterator[_Measure]:
    for each in manifest.schema:
        if each.parsed.is_list:
            yield _Measure(f"Values per record: {each.name}", "value", partial(lengths, name=each.name))
        elif each.parsed.is_text:
            yield _Measure(f"Length of text: {each.name}", "byte", partial(lengths, name=each.name))


def _event_measures(manifest: Manifest, group: Facts) -> Iterator[_Measure]:
    """Lists of a record of events are equally long: one of them tells how many events it has."""
    lists = [each for each in manifest.schema if each.parsed.is_list and each.name not in group["by"]]
    if lists and group["records"] != group["keys"]:
        yield _Measure("Events per record", "event", partial(lengths, name=lists[0].name))
    for each in lists:
        kind = each.parsed.inner
        if kind and each.name in group["order"][:1] and kind.name.startswith(_SPANS) and kind.name != "uint64":
            per_second = _IN_A_SECOND[kind.arguments[0]] if kind.name == "timestamp" else 1
            title = f"First to last event of a record: {each.name}"
            yield _Measure(title, _SPAN_UNITS.get(kind.name, "value"), partial(spans, name=each.name), per_second)
