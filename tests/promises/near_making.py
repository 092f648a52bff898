"""What the promise tests of near-duplicates share: corpora with planted copies, jobs over them, what they must leave.

`assert_like_reference` holds an output against near_reference.py: every document, every line of evidence, every count.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import penstock
from penstock.base.stores import open_store
from penstock.shards.manifest import read_manifest
from penstock.shards.origins import ORIGIN, Origins, content_hash, read_origins
from tests.promises import near_reference, text_making
from tests.promises.killing import assert_no_leftovers
from tests.promises.near_reference import Near

SURE = {"bands": 60, "rows": 2}  # misses a pair of similarity 0.5 with a chance of 3e-8
MARK = "near_duplicate_of"
EVIDENCE = ("source", "file", "position", "survivor_source", "survivor_file", "survivor_position", "similarity")
HASHED = ("source", "file", "position", "hash", "survivor_source", "survivor_file", "survivor_position")
HASHED += ("survivor_hash", "similarity")

# Texts.


def words(chance: random.Random, count: int) -> list[str]:
    """Words of a language of 100,000: two texts of them share no run of words."""
    return [f"w{chance.randrange(100_000)}" for _ in range(count)]


def with_changes(text: str, changes: int, chance: random.Random) -> str:
    """Some words are others."""
    found = text.split()
    for place in chance.sample(range(len(found)), min(changes, len(found))):
        found[place] = f"changed{chance.randrange(10**9)}"
    return " ".join(found)


def planted(seed: int, count: int = 60, most_copies: int = 5) -> list[str]:
    """Documents of 300 words and more, and copies with one changed word: all pairs are above 0.93, or at 0."""
    chance = random.Random(seed)
    texts: list[str] = []
    while len(texts) < count:
        text = " ".join(words(chance, chance.randrange(300, 500)))
        copies = chance.randrange(1, most_copies) if chance.random() < 0.4 else 0
        texts += [text, *(with_changes(text, 1, chance) for _ in range(copies))]
    texts = texts[:count]
    chance.shuffle(texts)
    return texts


def graded(seed: int, families: int = 8, members: int = 5) -> list[str]:
    """Families whose members share much, half, or little: similarities of all sizes, chains among them."""
    chance = random.Random(seed)
    texts: list[str] = []
    for _ in range(families):
        count = chance.randrange(6, 120)
        text = " ".join(words(chance, count))
        texts.append(text)
        for _ in range(members - 1):
            text = with_changes(text, chance.randrange(0, 2 + count // 8), chance)
            texts.append(text)
    chance.shuffle(texts)
    return texts


# Corpora and jobs.


@dataclass(frozen=True)
class Corpus:
    """Documents in files, in the files' order; each source is a folder of some files."""

    sources: Sequence[Sequence[Sequence[str | None]]]
    columns: dict[str, pa.Array] = field(default_factory=dict)  # one value per document, in the order of positions

    @property
    def texts(self) -> list[str | None]:
        return [text for files in self.sources for file in files for text in file]

    @property
    def places(self) -> list[tuple[int, str, int]]:
        """Source, file and row of each document."""
        return [
            (source, f"{number:03}.parquet", row)
            for source, files in enumerate(self.sources)
            for number, file in enumerate(files)
            for row in range(len(file))
        ]

    def write(self, folder: Path, group: int = 7) -> list[dict[str, Any]]:
        """Parquet files; `id` is the place of a document in the corpus. The job's `input:`."""
        first = 0
        for source, files in enumerate(self.sources):
            (folder / f"source-{source}").mkdir(parents=True, exist_ok=True)
            for number, texts in enumerate(files):
                ids = pa.array(range(first, first + len(texts)), pa.int64())
                more = {name: values.slice(first, len(texts)) for name, values in self.columns.items()}
                table = pa.table({"id": ids, "text": pa.array(texts, pa.string()), **more})
                pq.write_table(table, folder / f"source-{source}" / f"{number:03}.parquet", row_group_size=group)
                first += len(texts)
        return [{"path": str(folder / f"source-{source}")} for source in range(len(self.sources))]


def in_files(texts: Sequence[str | None], files: int = 3, **columns: pa.Array) -> Corpus:
    """One source."""
    edges = [len(texts) * number // files for number in range(files + 1)]
    return Corpus([[texts[low:high] for low, high in itertools.pairwise(edges)]], columns)


def write_job(path: Path, data: Any, near: dict[str, Any], **keys: Any) -> Path:
    """A job whose only stage is `near_dedup`, cut finely enough to have some slices."""
    usual = {"stages": [{"near_dedup": near}], "slice_size": "6kB", "memory": "2GB", "workers": 0}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"input": data, "output": "out", **usual, **keys}))
    return path


def run(folder: Path, corpus: Corpus, near: dict[str, Any], **keys: Any) -> Path:
    """The output of a job, after it was held against the reference."""
    penstock.run(write_job(folder / "job.yaml", corpus.write(folder / "data"), near, **keys))
    assert_like_reference(folder / "out", corpus, near)
    return folder / "out"


# Outputs.


def reference_of(corpus: Corpus, near: dict[str, Any]) -> dict[int, near_reference.Removed]:
    columns = {name: values.to_pylist() for name, values in corpus.columns.items()}
    return near_reference.removed(corpus.texts, options_of(near), columns)


def options_of(near: dict[str, Any]) -> Near:
    deciding = {name: near[name] for name in ("threshold", "words", "characters", "keep") if name in near}
    return replace(Near(), **deciding)


def assert_like_reference(output: Path, corpus: Corpus, near: dict[str, Any]) -> None:
    """The dataset, the account, the evidence and the counts are those of plain Python."""
    removed = reference_of(corpus, near)
    if near.get("act", "remove") == "remove":
        assert ids_of(output) == [each for each in range(len(corpus.texts)) if each not in removed]
        _assert_accounted(output, corpus, removed)
    else:
        _assert_marked(output, corpus, removed)
    assert evidence_of(output) == expected_evidence(corpus, removed)
    hashes = [content_hash((text or "").encode()) for text in corpus.texts]
    assert hashes_of(output) == [(hashes[each], hashes[removed[each].survivor]) for each in sorted(removed)]
    _assert_counted(output, corpus, near, removed)
    kept = penstock.verify(output)
    assert kept.ok, kept.problems
    assert_no_leftovers(output)


def ids_of(output: Path, split: str = "train") -> list[int]:
    return [record["id"] for record in text_making.records_of(output, split)]


def texts_of(output: Path) -> list[str]:
    return [record["text"] for record in text_making.records_of(output)]


def _assert_accounted(output: Path, corpus: Corpus, removed: dict[int, near_reference.Removed]) -> None:
    step = text_making.steps_of(output)["near_dedup"]
    assert (step["taken"], step["given"]) == (len(corpus.texts), len(corpus.texts) - len(removed))
    reasons: dict[str, int] = {}
    for each in sorted(removed):
        more = f", source {corpus.places[each][0]}" if len(corpus.sources) > 1 else ""
        reasons[f"near-duplicate{more}"] = reasons.get(f"near-duplicate{more}", 0) + 1
    assert step["set_aside"] == reasons


def _assert_marked(output: Path, corpus: Corpus, removed: dict[int, near_reference.Removed]) -> None:
    """All documents are there, and each that is not alone names the origin of its survivor."""
    records = text_making.records_of(output)
    assert [record["id"] for record in records] == list(range(len(corpus.texts)))
    origins = {record["id"]: record[ORIGIN] for record in records}
    expected = [origins[removed[each].survivor] if each in removed else None for each in range(len(corpus.texts))]
    assert [record[MARK] for record in records] == expected
    step = text_making.steps_of(output)["near_dedup"]
    assert (step["taken"], step["given"], step["set_aside"]) == (len(records), len(records), {})


def evidence_files(output: Path) -> list[Path]:
    """Files of evidence, all of which the manifest names."""
    manifest = json.loads((output / "manifest.json").read_text())
    named = [each["file"] for each in manifest["artifacts"] if each["file"].startswith("duplicates/")]
    found = sorted((output / "duplicates").glob("*")) if (output / "duplicates").exists() else []
    assert sorted(named) == [str(path.relative_to(output)) for path in found]
    return found


def evidence_of(output: Path) -> list[tuple[Any, ...]]:
    """Lines of evidence in the order of the files; each a tuple of the columns of EVIDENCE."""
    lines: list[tuple[Any, ...]] = []
    for path in evidence_files(output):
        table = pq.read_table(path)
        assert table.schema.names == list(HASHED)
        assert [table.schema.field(name).type for name in ("source", "position", "similarity")] == [
            pa.int32(),
            pa.int64(),
            pa.float64(),
        ]
        lines += [tuple(line[name] for name in EVIDENCE) for line in table.to_pylist()]
    return lines


def hashes_of(output: Path) -> list[tuple[int, int]]:
    """Content hashes of each removed document and its survivor."""
    tables = [pq.read_table(path) for path in evidence_files(output)]
    return [(line["hash"], line["survivor_hash"]) for table in tables for line in table.to_pylist()]


def expected_evidence(corpus: Corpus, removed: dict[int, near_reference.Removed]) -> list[tuple[Any, ...]]:
    places = corpus.places
    return [(*places[each], *places[removed[each].survivor], removed[each].similarity) for each in sorted(removed)]


def counts_of(output: Path) -> dict[str, Any]:
    counts: dict[str, Any] = json.loads((output / "artifacts" / "near_duplicates.json").read_text())
    return counts


def _assert_counted(
    output: Path, corpus: Corpus, near: dict[str, Any], removed: dict[int, near_reference.Removed]
) -> None:
    counts = counts_of(output)
    assert (counts["documents"], counts["removed"]) == (len(corpus.texts), len(removed))
    sources = [source for source, _, _ in corpus.places]
    gone = [sources[each] for each in removed]
    assert counts["sources"] == [
        {"source": number, "documents": sources.count(number), "removed": gone.count(number)}
        for number in range(len(corpus.sources))
    ]
    options = {"threshold": 0.8, "bands": 20, "rows": 6, **near}
    assert [counts[name] for name in ("threshold", "bands", "rows")] == [
        options[name] for name in ("threshold", "bands", "rows")
    ]
    threshold, bands, rows = (counts[name] for name in ("threshold", "bands", "rows"))
    assert counts["detection"] == pytest.approx(1 - (1 - threshold**rows) ** bands, abs=1e-3)
    assert len(removed) <= counts["similar"] <= counts["candidates"]


def origins_of(output: Path) -> Origins:
    store = open_store(str(output))
    found = read_origins(store, read_manifest(store))
    assert found is not None
    return found
