"""Promise 2, of text: the same rows for any workers, budget, batch and order of files; and they are the right ones."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.shards.origins import ORIGIN
from tests.promises import text_making, workshop
from tests.promises.killing import assert_no_leftovers

FILES = text_making.files_of_documents(files=4, count=60)
SPLIT = {"split": {"by": "id", "test": 0.3}}


def _stages(method: str = "wrapped") -> list[Any]:
    """With a split, and rows that were left out kept."""
    clean, dedup, tokenize, pack = text_making.stages(
        clean={"keep": True}, dedup={"keep": True}, pack={"method": method}
    )
    return [clean, dedup, SPLIT, tokenize, pack]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The documents, and the bytes that a run inside the driver writes."""
    folder = tmp_path_factory.mktemp("same")
    data = text_making.write_documents(folder / "data", *FILES)
    job = text_making.write_job(folder / "first" / "job.yaml", data, stages=_stages())
    penstock.run(job)
    written = workshop.bytes_of(folder / "first" / "out")
    assert {"hash", "match", "map", "pack"} == {each.pass_.kind for each in penstock.plan(job).passes}
    assert len([name for name in written if name.startswith(("train/", "test/"))]) > 6
    assert any(name.startswith("rejected/") for name in written)
    return data, written


def _written(job: Path, environment: dict[str, str]) -> dict[str, str]:
    workshop.run_well(job, environment=environment)
    assert_no_leftovers(job.parent / "out")
    return workshop.bytes_of(job.parent / "out")


@pytest.mark.parametrize(
    ("keys", "environment"),
    [
        ({"workers": 2}, {"PYTHONHASHSEED": "1", "TZ": "Pacific/Chatham"}),
        ({"workers": 1, "memory": "300MB"}, {"PYTHONHASHSEED": "2", "LC_ALL": "C", "PYTHONUTF8": "0"}),
        ({"workers": 0, "memory": "300MB"}, {"RAYON_NUM_THREADS": "1"}),
        ({"workers": 3}, {"TOKENIZERS_PARALLELISM": "false"}),
        ({}, {}),
    ][: None if workshop.THOROUGH else 2],
    ids=str,
)
def test_workers_memory_and_environment_do_not_show(first, tmp_path, keys, environment):
    data, written = first
    assert (
        _written(text_making.write_job(tmp_path / "job.yaml", data, stages=_stages(), **keys), environment) == written
    )


def test_the_engine_that_encodes_does_not_show(first, tmp_path):
    """The fastest that is installed and proved equal, against Hugging Face's own."""
    data, written = first
    stages = _stages()
    stages[3]["tokenize"]["engine"] = "auto"
    penstock.run(text_making.write_job(tmp_path / "job.yaml", data, stages=stages))
    assert workshop.bytes_of(tmp_path / "out") == written


@pytest.mark.parametrize("batch_bytes", [1, 3000, 10_000_000] if workshop.THOROUGH else [3000])
def test_the_size_of_batches_does_not_show(first, tmp_path, batch_bytes):
    data, written = first
    plan = penstock.plan(text_making.write_job(tmp_path / "job.yaml", data, stages=_stages()))
    penstock.run(workshop.with_batches(plan, batch_bytes))
    assert workshop.bytes_of(tmp_path / "out") == written


def test_the_order_of_files_on_disk_and_where_they_lie_do_not_show(first, tmp_path):
    data, written = first
    (tmp_path / "elsewhere").mkdir()
    for path in sorted(data.iterdir(), reverse=True):
        shutil.copyfile(path, tmp_path / "elsewhere" / path.name)
    penstock.run(text_making.write_job(tmp_path / "job.yaml", tmp_path / "elsewhere", stages=_stages()))
    assert workshop.bytes_of(tmp_path / "out") == written


def test_how_documents_are_cut_into_row_groups_and_slices_changes_no_row(first, tmp_path):
    """Shards are cut elsewhere; the rows in them are the same, in the same order."""
    data, _ = first
    expected = {split: _without_origins(data.parent / "first" / "out", split) for split in ("train", "test")}
    text_making.write_documents(tmp_path / "data", *FILES, group=7)
    for size in ("3kB", "1MB"):
        job = text_making.write_job(tmp_path / size / "job.yaml", tmp_path / "data", stages=_stages(), slice_size=size)
        penstock.run(job)
        for split, records in expected.items():
            assert _without_origins(job.parent / "out", split) == records


def _without_origins(output: Path, split: str) -> list[dict[str, Any]]:
    """Records of a split without the numbers of their files, which depend on the slices that the files are cut into."""
    return [{**record, ORIGIN: None} for record in text_making.records_of(output, split)]


# Against plain Python, and Hugging Face's `tokenizers` called by itself.


def test_wrapped_rows_are_the_concatenation_of_what_tokenizers_encodes(first, tmp_path):
    data, _ = first
    penstock.run(text_making.write_job(tmp_path / "job.yaml", data))
    left = text_making.unique(text_making.cleaned(text for file in FILES for text in file))
    rows, starts = text_making.wrapped(map(text_making.ids_of, left))
    records = text_making.records_of(tmp_path / "out")
    assert [record["tokens"] for record in records] == rows
    assert [record["documents"] for record in records] == starts
    whole = list(text_making.documents_in(records))[:-1]  # the last goes on in the tail
    assert [text_making.decoded(ids) for ids in whole] == [f"{text}{text_making.EOS}" for text in left[: len(whole)]]


# tests/prepare/passes/text/test_packing.py has every overflow with "none".
OVERFLOWING = [("best_fit", "split"), ("best_fit", "truncate"), ("best_fit", "set_aside"), ("none", "set_aside")]
OVERFLOWING += [("none", "split"), ("none", "truncate")] if workshop.THOROUGH else []


@pytest.mark.thorough
@pytest.mark.parametrize(("method", "overflow"), OVERFLOWING)
def test_documents_stay_whole_or_go_as_overflow_says(first, tmp_path, method, overflow):
    data, _ = first
    stages = text_making.stages(pack={"method": method, "overflow": overflow})
    penstock.run(text_making.write_job(tmp_path / "job.yaml", data, stages=stages))
    ids = list(
        map(text_making.ids_of, text_making.unique(text_making.cleaned(text for file in FILES for text in file)))
    )
    length = text_making.LENGTH
    kept = {
        "split": [each[at : at + length] for each in ids for at in range(0, len(each), length)],
        "truncate": [each[:length] for each in ids],
        "set_aside": [each for each in ids if len(each) <= length],
    }[overflow]
    records = text_making.records_of(tmp_path / "out")
    found = [document for record in records for document in text_making.documents_in([record])]
    assert (found if method == "none" else sorted(found)) == (kept if method == "none" else sorted(kept))
    assert all(len(record["tokens"]) <= length for record in records)
    tokens = text_making.steps_of(tmp_path / "out", "tokens")["pack"]
    assert (tokens["taken"], tokens["given"]) == (sum(map(len, ids)), sum(map(len, kept)))
    lines = text_making.rejected_of(tmp_path / "out")
    assert len(lines) == (sum(len(each) > length for each in ids) if overflow == "set_aside" else 0)
    assert text_making.steps_of(tmp_path / "out")["write"]["given"] == len(records)


def test_a_split_is_packed_by_itself_and_duplicates_across_splits_are_gone(first):
    data, _ = first
    output = data.parent / "first" / "out"
    found = [document for split in ("train", "test") for document in _documents(output, split)]
    assert len({tuple(each) for each in found}) == len(found)
    every = text_making.unique(text_making.cleaned(text for file in FILES for text in file))
    tokens = text_making.steps_of(output, "tokens")["pack"]
    assert tokens["taken"] == sum(len(text_making.ids_of(text)) for text in every)
    assert tokens["set_aside"]["tail"] < 2 * text_making.LENGTH
    assert {tuple(each) for each in found} <= {tuple(text_making.ids_of(text)) for text in every}


def _documents(output: Path, split: str) -> list[list[int]]:
    return list(text_making.documents_in(text_making.records_of(output, split)))[:-1]


def test_two_sources_are_one_corpus_in_the_order_of_the_job(tmp_path):
    one, other = text_making.documents(60, 5), text_making.documents(60, 6)
    text_making.write_documents(tmp_path / "b", one)
    text_making.write_documents(tmp_path / "a", other)
    job = text_making.write_job(tmp_path / "job.yaml", "", input=[{"path": "b"}, {"path": "a"}])
    penstock.run(job)
    assert text_making.rows_of(tmp_path / "out") == text_making.expected([one, other])


def test_row_k_is_read_by_itself(first):
    data, _ = first
    dataset = penstock.open(data.parent / "first" / "out", "train")
    rows = text_making.rows_of(data.parent / "first" / "out")
    for number in (0, 1, len(rows) // 2, len(rows) - 1):
        assert dataset[number]["tokens"].tolist() == rows[number]


def test_a_finished_dataset_that_lost_what_was_rejected_is_mended_whatever_memory_there_is_now(tmp_path):
    """Its tokens are made again in other batches, and are the same: rows that were packed of them stay."""
    data = text_making.write_documents(
        tmp_path / "data", ["", *text_making.documents(40, 1)], text_making.documents(9, 2)
    )
    job = text_making.write_job(tmp_path / "job.yaml", data, stages=text_making.stages(clean={"keep": True}))
    penstock.run(job)
    written = workshop.bytes_of(tmp_path / "out")
    shutil.rmtree(tmp_path / "out" / "rejected")
    penstock.run(workshop.with_batches(penstock.plan(job), 2000))
    assert workshop.bytes_of(tmp_path / "out") == written
