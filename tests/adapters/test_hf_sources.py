"""Datasets of the hub's shape, and saved ones, read with the real `datasets` library: the rows are the library's."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, InputError
from penstock.base.memory import make_budget
from penstock.prepare.job.config import Config
from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.plan.measuring import is_small
from penstock.prepare.sources import Reading, read_segment, survey_file
from penstock.prepare.sources.hub import SOURCE, Shard, Split, _names, hub_files
from penstock.prepare.sources.reading.input_file import RemoteFile
from penstock.prepare.sources.row_range import parse_split
from penstock.prepare.survey.scouting import scout
from penstock.prepare.survey.taking import take_survey
from tests.prepare.sources.reader import read

datasets = pytest.importorskip("datasets")
fsspec = pytest.importorskip("fsspec")
pytest.importorskip("fsspec.implementations.memory")

CARD = """---
configs:
- config_name: web
  default: true
  data_files:
  - split: train
    path: web/train-*.parquet
  - split: test
    path: web/test-*.parquet
- config_name: notes
  data_files: notes/*.parquet
---
"""


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path_factory):
    """No test reaches for the hub; what the library keeps is kept in a folder of the test."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    kept = tmp_path_factory.mktemp("hf")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", kept)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(kept))  # for workers
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def documents(first: int, count: int) -> list[str]:
    return [f"document {number} é" for number in range(first, first + count)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder as the hub would hold it: two configurations, one with three shards and a test split."""
    corpus = tmp_path / "corpus"
    for name, first, count in [("train-00000", 0, 500), ("train-00001", 500, 7), ("train-00002", 507, 60)]:
        write_parquet(corpus / "web" / f"{name}-of-00003.parquet", documents(first, count))
    write_parquet(corpus / "web" / "test-00000-of-00001.parquet", ["the test"])
    write_parquet(corpus / "notes" / "a.parquet", documents(0, 3))
    (corpus / "README.md").write_text(CARD)
    return corpus


def write_parquet(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(range(len(texts))), "body": texts}), path, row_group_size=100)


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """A folder without a card: packed JSONL, told apart by its names."""
    books = tmp_path / "books"
    books.mkdir()
    (books / "train-a.jsonl.gz").write_bytes(gzip.compress(json_lines(documents(0, 20))))
    (books / "train-b.jsonl.zst").write_bytes(pa.compress(json_lines(documents(20, 30)), "zstd", asbytes=True))
    return books


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """A folder of a kind that the library itself reads."""
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "train-a.csv").write_bytes(csv(documents(0, 20)))
    (tables / "train-b.csv.gz").write_bytes(gzip.compress(csv(documents(20, 30))))
    return tables


def csv(texts: list[str]) -> bytes:
    return "\n".join(["n,body", *(f'{number},"{text}"' for number, text in enumerate(texts))]).encode()


def json_lines(texts: list[str]) -> bytes:
    return b"".join(json.dumps({"body": text, "meta": {"n": [1]}}).encode() + b"\n" for text in texts)


def run(output: Path, *sources: dict[str, Any], **keys: Any) -> list[str]:
    job = {"input": list(sources), "output": str(output), "workers": 0, "memory": "1GB", **keys}
    penstock.run(job)
    dataset = penstock.open(output)
    return [dataset[number]["text"] for number in range(len(dataset))]


def of_library(folder: Path, split: str, name: str | None = None) -> list[str]:
    return list(datasets.load_dataset(str(folder), name=name, split=split)["body"])


def test_a_split_is_the_rows_that_the_library_gives(corpus, books, tables, tmp_path):
    source = {"path": str(corpus), "text_column": "body"}
    assert run(tmp_path / "a", {**source, "split": "train"}) == of_library(corpus, "train") == documents(0, 567)
    assert run(tmp_path / "b", {**source, "split": "test"}) == ["the test"]
    notes = run(tmp_path / "c", {**source, "name": "notes", "split": "train"})
    assert notes == of_library(corpus, "train", "notes") == documents(0, 3)
    for folder in (books, tables):
        found = run(tmp_path / f"{folder.name}.out", {"path": str(folder), "split": "train", "text_column": "body"})
        assert found == of_library(folder, "train") == documents(0, 50)


def test_it_stands_beside_other_sources_and_needs_no_text_column(corpus, tmp_path):
    (tmp_path / "more.txt").write_text("one more")
    dataset = {"path": str(corpus), "split": "test", "text_column": "body"}
    assert run(tmp_path / "a", dataset, {"path": str(tmp_path / "more.txt")}) == ["the test", "one more"]
    penstock.run({"input": {"path": str(corpus), "split": "test"}, "output": str(tmp_path / "b"), "workers": 0})
    assert penstock.open(tmp_path / "b")[0] == {"id": 0, "body": "the test"}


@pytest.mark.parametrize("name", ["corpus", "tables"])
def test_workers_and_batches_change_nothing(corpus, tables, tmp_path, name):
    source = {"path": str(corpus if name == "corpus" else tables), "split": "train", "text_column": "body"}
    alone = run(tmp_path / "a", source)
    assert run(tmp_path / "b", source, workers=2, memory="1GB") == alone
    shards = [sorted(path.name for path in (tmp_path / name / "train").iterdir()) for name in "ab"]
    assert shards[0] == shards[1]
    for shard in shards[0]:
        assert (tmp_path / "a/train" / shard).read_bytes() == (tmp_path / "b/train" / shard).read_bytes()


def batches(folder: Path, bytes_at_once: int) -> list[pa.RecordBatch]:
    """All that the shards of a split give when so much may be held, and any number of rows."""
    source = SourceConfig(path=(str(folder),), split="train")
    found = []
    for file in hub_files(0, Split(str(folder), "train")):
        surveyed = survey_file(file, source.options(()), 1)
        schema = surveyed.schema
        reading = Reading(schema, tuple(schema.names), True, 1 << 40, bytes_at_once, ("hub",), (source.options(()),))
        found += [rows.batch for piece in surveyed.pieces for rows in read_segment(piece, reading, frozenset())]
    return found


@pytest.mark.parametrize("bytes_at_once", [1024, 64 << 10, 1 << 20, 1 << 30])
def test_batches_stay_small_where_later_rows_are_large_and_the_rows_are_the_same(tmp_path, bytes_at_once):
    texts = [*documents(0, 3000), *(f"{number} " * 20_000 for number in range(40)), *documents(0, 50)]
    (tmp_path / "train.csv").write_bytes(csv(texts))
    found = batches(tmp_path, bytes_at_once)
    assert [text for batch in found for text in batch["body"].to_pylist()] == of_library(tmp_path, "train") == texts
    assert all(batch.nbytes <= bytes_at_once or batch.num_rows == 1 for batch in found)
    assert len(found) < 2 * sum(batch.nbytes + 8 * batch.num_rows for batch in found) / bytes_at_once + 2


def test_what_a_later_table_takes_for_numbers_is_text_as_the_first_was(tmp_path):
    """The library infers the types of a CSV every 10,000 rows, and casts to the first."""
    texts = [*documents(0, 10_000), *map(str, range(500))]
    (tmp_path / "train.csv").write_bytes(csv(texts))
    for bytes_at_once in (4096, 1 << 30):
        found = batches(tmp_path, bytes_at_once)
        assert len({str(batch.schema) for batch in found}) == 1
        assert [text for batch in found for text in batch["body"].to_pylist()] == of_library(tmp_path, "train")


class Untold(fsspec.implementations.memory.MemoryFileSystem):
    """A file system that does not tell how large its files are."""

    protocol = "untold"
    store: dict[str, Any] = {}  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("untold:/")))

    def _open(self, path: str, *args: Any, **options: Any) -> io.BytesIO:
        return io.BytesIO(super()._open(path, *args, **options).getvalue())


def far_away(folder: Path, files: Any, kind: str) -> Path:
    """A folder with nothing but a card, which names files of another file system."""
    for name in ("a.csv", "b.csv"):
        files.pipe(f"/far/{name}", csv(documents(0, 500)))
    card = {"config_name": "default", "data_files": [{"split": "train", "path": f"{kind}://far/*.csv"}]}
    folder.mkdir()
    (folder / "README.md").write_text(f"---\n{json.dumps({'configs': [card]})}\n---\n")
    return folder


def is_done_inside(folder: Path) -> bool:
    """Whether a job over it would be done inside the driver, unmeasured."""
    config = Config({"input": {"path": str(folder), "split": "train"}, "output": str(folder.parent / "out")})
    return is_small(config, take_survey(config, scout), make_budget("16GB"))


def test_a_file_from_afar_counts_as_large_as_it_is(tmp_path):
    folder = far_away(tmp_path / "card", fsspec.filesystem("memory"), "memory")
    shards = [Shard.at(file.location) for file in hub_files(0, Split(str(folder), "train"))]
    assert [shard.bytes for shard in shards] == [len(csv(documents(0, 500)))] * 2
    assert is_done_inside(folder)


def test_a_file_of_which_nobody_tells_the_size_makes_no_small_job(tmp_path):
    fsspec.register_implementation("untold", Untold, clobber=True)
    assert not is_done_inside(far_away(tmp_path / "card", fsspec.filesystem("untold"), "untold"))


def test_a_shard_is_a_file_whose_place_says_how_to_open_it_again(corpus, tables):
    files = hub_files(0, Split(str(corpus), "train"))
    names = [f"train-{number:05d}-of-00003.parquet" for number in range(3)]
    assert [file.path for file in files] == [f"corpus@train/web/{name}" for name in names]
    assert files[1].location == str(corpus / "web" / "train-00001-of-00003.parquet")
    files = hub_files(0, Split(str(tables), "train"))
    shard = Shard.at(files[1].location)
    assert (shard.of, shard.number, shard.count) == (Split(str(tables), "train"), 1, 2)
    assert shard.location == files[1].location
    assert SOURCE.identity(files[1].location) == shard.known


def test_a_file_that_changes_is_noticed_and_one_that_is_copied_is_not(tables, tmp_path):
    before = hub_files(0, Split(str(tables), "train"))[0]
    copied = Path(shutil.copytree(tables, tmp_path / "elsewhere" / "tables"))
    moved = hub_files(0, Split(str(copied), "train"))[0]
    assert Shard.at(moved.location).known == Shard.at(before.location).known
    (copied / "train-a.csv").write_bytes(csv(documents(9, 9)))
    assert SOURCE.identity(moved.location) != Shard.at(moved.location).known


def test_files_are_read_from_afar_as_if_they_lay_here(corpus, books):
    """The file system of the hub is one of fsspec's, and so is that of memory."""
    memory = fsspec.filesystem("memory")
    for path in (corpus / "web" / "train-00000-of-00003.parquet", *books.iterdir()):
        memory.pipe(f"/corpus/{path.name}", path.read_bytes())
        here = read(path, text_column="body")
        assert len(here.rows) >= 20
        assert read(f"memory://corpus/{path.name}", text_column="body") == here


def test_a_file_that_cannot_be_reached_is_no_damaged_file():
    with pytest.raises(InputError, match="cannot be reached") as caught:
        RemoteFile("memory://gone/a.parquet")
    assert caught.value.where == "memory://gone/a.parquet"


def test_a_split_or_configuration_that_is_not_there_is_told_with_those_that_are(corpus, tmp_path):
    with pytest.raises(InputError, match=r"Bad split: trian. Available splits: \['train', 'test'\]"):
        run(tmp_path / "a", {"path": str(corpus), "split": "trian"})
    with pytest.raises(InputError, match=r"'note' not found. Available: \['web', 'notes'\]"):
        run(tmp_path / "a", {"path": str(corpus), "split": "train", "name": "note"})
    with pytest.raises(InputError, match="no column 'text'") as caught:
        run(tmp_path / "a", {"path": str(corpus), "split": "train", "text_column": "text"})
    assert "id, body" in caught.value.next_step


def test_an_id_that_cannot_be_reached_says_where_it_was_looked_for(tmp_path):
    with pytest.raises(InputError, match="cannot be reached") as caught:
        run(tmp_path / "a", {"path": "org/name", "split": "train"})
    assert "org/name, split train (on huggingface.co: no such path here)" in caught.value.where


def test_without_the_library_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match="not installed") as caught:
        run(tmp_path / "a", {"path": "org/name", "split": "train"})
    assert "penstock[hf]" in caught.value.next_step


def test_a_shard_that_the_library_cannot_read_is_set_aside_by_name(tables, tmp_path):
    packed = tables / "train-b.csv.gz"
    packed.write_bytes(packed.read_bytes()[:-20])
    source = {"path": str(tables), "split": "train", "text_column": "body"}
    with pytest.raises(InputError, match="unreadable file"):
        run(tmp_path / "a", source)
    assert run(tmp_path / "b", source, on_bad_input="set_aside") == documents(0, 20)
    (line,) = (tmp_path / "b" / "rejected").glob("*.jsonl")
    assert json.loads(line.read_text())["file"] == "tables@train/00001-of-00002"


def test_lines_that_break_off_are_told_where_the_library_would_not(books, tmp_path):
    packed = books / "train-b.jsonl.zst"
    packed.write_bytes(packed.read_bytes()[:-20])
    source = {"path": str(books), "split": "train", "text_column": "body"}
    assert run(tmp_path / "b", source, on_bad_input="set_aside")[:20] == documents(0, 20)
    (line,) = (tmp_path / "b" / "rejected").iterdir()
    assert "books@train/train-b.jsonl.zst" in line.read_text()


def test_what_the_library_saved_is_read_as_it_loads_it(tmp_path):
    rows = datasets.Dataset.from_dict({"n": list(range(2500)), "body": documents(0, 2500)})
    kinds = {
        "plain": rows,
        "shuffled": rows.shuffle(seed=3),
        "filtered": rows.filter(lambda row: row["n"] % 3 == 0),
        "hidden": rows.with_format("numpy", columns=["n"]),
    }
    for name, dataset in kinds.items():
        dataset.save_to_disk(tmp_path / name, num_shards=3)
        loaded = datasets.load_from_disk(str(tmp_path / name)).with_format(None)
        found = run(tmp_path / f"{name}.out", {"path": str(tmp_path / name), "text_column": "body"})
        assert found == list(loaded["body"])


def test_a_split_of_what_the_library_saved_is_chosen_by_name(tmp_path):
    rows = datasets.Dataset.from_dict({"body": documents(0, 10)})
    datasets.DatasetDict({"train": rows, "test": rows.select([3])}).save_to_disk(tmp_path / "saved")
    source = {"path": str(tmp_path / "saved"), "text_column": "body"}
    assert run(tmp_path / "a", {**source, "split": "test"}) == documents(3, 1)
    with pytest.raises(InputError, match=r"there is no split 'dev'"):
        run(tmp_path / "a", {**source, "split": "dev"})


def test_one_file_more_renames_no_other(books):
    before = [file.path for file in hub_files(0, Split(str(books), "train"))]
    (books / "train-aa.jsonl").write_bytes(json_lines(documents(0, 2)))
    after = [file.path for file in hub_files(0, Split(str(books), "train"))]
    assert before == ["books@train/train-a.jsonl.gz", "books@train/train-b.jsonl.zst"]
    assert sorted(set(after) - set(before)) == ["books@train/train-aa.jsonl"]


def test_a_file_of_the_hub_is_called_as_it_is_there_and_others_by_their_number():
    commit = "hf://datasets/org/name@0123abc"
    assert _names([f"{commit}/web/a.parquet", f"{commit}/b.parquet"], "org/name") == ["web/a.parquet", "b.parquet"]
    elsewhere = ["https://example.org/a.parquet", f"{commit}/b.parquet"]
    assert _names(elsewhere, "org/name") == ["00000-of-00002", "00001-of-00002"]


RANGES = ["[:100]", "[10%:20%]", "[-100:]", "[:-5%]", "[33%:]", "[1_0:5_00]", "[:50%]", "[99%:]", "[-7%:-3]"]


@pytest.mark.parametrize("name", ["corpus", "books", "tables"])
def test_a_range_of_rows_is_what_the_library_gives(corpus, books, tables, tmp_path, name):
    folder = {"corpus": corpus, "books": books, "tables": tables}[name]
    source = {"path": str(folder), "text_column": "body"}
    for number, spelled in enumerate(RANGES[:7] if name == "corpus" else RANGES[:3]):
        split = f"train{spelled}"
        assert run(tmp_path / str(number), {**source, "split": split}) == of_library(folder, split), split


@pytest.mark.parametrize("count", [1, 3, 50, 99, 100, 101, 567, 1000])
def test_a_range_begins_and_ends_where_the_librarys_does(count):
    for start in ("", "0", "7", "-7", "0%", "1%", "33%", "-50%", "100%"):
        for stop in ("", "9", "-1", "2000", "2%", "50%", "-1%", "-100%"):
            spelled = f"train[{start}:{stop}]"
            units = {each.endswith("%") for each in (start, stop) if each}
            if len(units) == 2:
                continue
            (theirs,) = datasets.ReadInstruction.from_spec(spelled).to_absolute({"train": count})
            try:
                ours = parse_split(spelled)
            except ValueError:
                assert theirs.from_ >= theirs.to, spelled
                continue
            assert ours
            assert ours.of(count) == (theirs.from_, theirs.to), spelled
