"""Promises 2, 3 and 4, of columns kept beside tokens: the same bytes however it ran, and each token its own values."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.promises import killing, text_making, workshop
from tests.promises.text_making import ids_of, records_of

KEEP = ["source", "mask"]
LENGTH = 48


def _stages(method: str = "wrapped") -> list[Any]:
    clean, dedup, tokenize, _ = text_making.stages()
    pack = {"length": LENGTH, "method": method, "keep": KEEP, "added": {"mask": 7}}
    return [clean, dedup, {"cast": {"source": "uint16", "mask": "list<uint8>"}}, {"split": {"test": 0.2}}, tokenize] + [
        {"pack": pack}
    ]


def _write(folder: Path, files: int, count: int) -> Path:
    """Documents with an id each, and a number for each token of the cleaned text."""
    folder.mkdir(parents=True)
    number = 0
    for name, texts in enumerate(text_making.files_of_documents(files, count)):
        with (folder / f"{name}.jsonl").open("w") as file:
            for text in texts:
                mask = [(number + place) % 5 for place, _ in enumerate(ids_of(text.strip())[:-1])]
                file.write(f"{json.dumps({'text': text, 'source': number, 'mask': mask})}\n")
                number += 1
    return folder


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> killing.Clean:
    folder = tmp_path_factory.mktemp("kept")
    job = partial(text_making.write_job, data=_write(folder / "data", 3, 50), stages=_stages())
    return killing.clean_run(folder, job)


@pytest.mark.parametrize("point", ["pack.before_ledger", "task.after_shards", "commit.before_rename"])
def test_a_crash_is_recovered_from(clean, die, tmp_path, point):
    job = clean.job(tmp_path / "job.yaml")
    die(job, point)
    clean.assert_recovers(job)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_do_not_show(clean, tmp_path, workers):
    job = clean.job(tmp_path / "job.yaml", workers=workers)
    workshop.run_well(job)
    clean.assert_is_there(job)


@pytest.mark.parametrize("batch_bytes", [300, 1 << 20])
def test_the_size_of_batches_does_not_show(clean, tmp_path, batch_bytes):
    job = clean.job(tmp_path / "job.yaml")
    penstock.run(workshop.with_batches(penstock.plan(job), batch_bytes))
    clean.assert_is_there(job)


@pytest.mark.parametrize("method", ["wrapped", "best_fit", "none"])
def test_every_document_that_stays_has_its_values_and_each_token_its_own(tmp_path, method):
    data = _write(tmp_path / "data", 2, 40)
    penstock.run(text_making.write_job(tmp_path / "job.yaml", data, stages=_stages(method)))
    by_source = {}
    for path in sorted(data.iterdir()):
        for line in path.open():
            document = json.loads(line)
            by_source[document["source"]] = document
    found: dict[int, list[tuple[int, int]]] = {}
    for split in ("train", "test"):
        for row in records_of(tmp_path / "out", split):
            for token, source, value in zip(row["tokens"], row["source"], row["mask"], strict=True):
                found.setdefault(source, []).append((token, value))
    assert len(found) > 20
    whole = 0
    for source, places in found.items():
        document = by_source[source]
        expected = list(zip(ids_of(document["text"].strip()), [*document["mask"], 7], strict=True))
        if method == "wrapped":  # the tail of a split is cut, and only there
            assert places == expected[: len(places)]
        elif method == "none":
            assert places == expected
        else:  # pieces of long documents may stand in another order
            assert sorted(places) == sorted(expected)
        whole += sorted(places) == sorted(expected)
    assert whole >= len(found) - 2
    kept = {source for source, document in by_source.items() if document["text"].strip()}
    texts = [by_source[source]["text"].strip() for source in sorted(kept)]
    assert len(found) == len(set(texts)) or method == "wrapped"
