"""`penstock run krill.yaml`: every config of the document that describes it, on a little text of one's own, offline."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tokenizers
import yaml

import penstock
from penstock.base.errors import OutputError
from penstock.cli import main
from tests.show.desk import document

WORDS = ["the", "water", "of", "river", "runs", "down", "to", "sea", "and", "fish", "swim", "upstream", "<end>"]
MOST_EFFICIENT = """
preprocess_memory_efficient: true
preprocess_chunk_size: 1000          # Smaller chunks for very constrained memory
preprocess_save_shard_size: 50MB     # Very small shards to minimize save spike
"""
WITH_EVERY_OPTION = """
# Enable memory-efficient preprocessing
preprocess_memory_efficient: true

# Set chunk size (default: 10000)
preprocess_chunk_size: 5000

# Control memory spike during save (default: 200MB)
preprocess_save_shard_size: 100MB

# Optional: Set persistent cache directory for deduplication
preprocess_dedup_cache_dir: ./cache/dedup

# Your existing config...
sequence_len: 2048
datasets:
  - path: your/large/dataset
    split: train
    text_column: text
"""
BASIC = """
preprocess_memory_efficient: true
preprocess_chunk_size: 1000
sequence_len: 2048
datasets:
  - path: large/dataset
    split: train
    text_column: text
# ... other config
"""
WITH_A_CACHE = """
preprocess_memory_efficient: true
preprocess_chunk_size: 5000
preprocess_dedup_cache_dir: dedup_cache
# ... other config
"""
EXISTING = {"hub_tokenizer_id": "org/words", "dataset_prepared_path": "./prepared", "dataset_prepared_min_length": 40}
OTHER = {"sequence_len": 2048, "datasets": [{"path": "large/dataset", "text_column": "text"}], **EXISTING}
NEWER = {
    "datasets": [{"path": "large/dataset", "split": "train", "text_column": "text"}],
    "tokenizer": {"hub_id": "org/words", "vocab_size": 32000},
    "preprocess": {"prepared_path": "./prepared", "sequence_len": 2048, "min_length": 40},
    "train": {"arch": "llama", "learning_rate": 1e-3},
}


def make_texts() -> list[str]:
    """Documents of 5 to 400 words, each one twice, the second time with white space around."""
    chance = random.Random(1)
    texts = [" ".join(chance.choices(WORDS, k=chance.randrange(5, 400))) for _ in range(120)]
    return [*texts, *(f"\n {text}\t" for text in texts), "", " "]


def save_dataset(place: Path, texts: list[str]) -> None:
    """As `save_to_disk` of the datasets library leaves it."""
    place.mkdir(parents=True)
    table = pa.table({"id": range(len(texts)), "text": texts})
    with pa.ipc.new_stream(str(place / "data-00000-of-00001.arrow"), table.schema) as writer:
        writer.write_table(table)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": "train"}
    (place / "state.json").write_text(json.dumps(state))
    (place / "dataset_info.json").write_text("{}")


def save_tokenizer(place: Path) -> tokenizers.Tokenizer:
    """A word is a token, and `<end>` ends a document, or a part of it where it stands in the text."""
    place.mkdir(parents=True)
    known = {word: number for number, word in enumerate([*WORDS, "<unknown>"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<end>"])
    tokenizer.save(str(place / "tokenizer.json"))
    (place / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>"}))
    return tokenizer


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Both datasets of the document, and a tokenizer, where hub ids are looked for first."""
    monkeypatch.chdir(tmp_path)
    for name in ("large/dataset", "your/large/dataset"):
        save_dataset(tmp_path / name, make_texts())
    save_tokenizer(tmp_path / "org/words")
    return tmp_path


def write(folder: Path, config: dict[str, Any]) -> str:
    (folder / "krill.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    return str(folder / "krill.yaml")


def prepared(config: dict[str, Any], *options: str) -> int:
    return main(["run", write(Path(), config), "--json", *(options or ("--workers", "0"))])


def packed_plainly(folder: Path, least: int, length: int) -> list[int]:
    """What the older program makes of the texts: trimmed, 100 characters, once, tokens and their end, and cut."""
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "org/words/tokenizer.json"))
    kept = dict.fromkeys(text.strip() for text in make_texts() if len(text.strip()) >= 100)
    documents = [[*tokenizer.encode(text).ids, tokenizer.token_to_id("<end>")] for text in kept]
    tokens = [token for document in documents if len(document) >= least for token in document]
    return tokens[: len(tokens) // length * length]


def exported(place: Path) -> pa.Table:
    """The rows as load_from_disk reads them: the files that state.json names, one after the other."""
    names = [each["filename"] for each in json.loads((place / "state.json").read_bytes())["_data_files"]]
    return pa.concat_tables([pa.ipc.open_stream(str(place / name)).read_all() for name in names])


def own_bytes(folder: Path) -> dict[str, bytes]:
    """Everything but what tells times and places."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".penstock" not in path.parts
    }


CONFIGS = {
    "the most efficient": {**yaml.safe_load(MOST_EFFICIENT), **OTHER},
    "with every option": {**yaml.safe_load(WITH_EVERY_OPTION), **EXISTING},
    "basic": {**yaml.safe_load(BASIC), **EXISTING},
    "with a cache": {**yaml.safe_load(WITH_A_CACHE), **OTHER},
    "newer": NEWER,
}


@pytest.mark.proof
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_config_of_the_document_makes_the_rows_that_it_always_made(desk, config):
    assert prepared(config) == 0
    expected = packed_plainly(desk, 40, 2048)
    assert len(expected) >= 5 * 2048
    rows = exported(desk / "prepared")
    assert rows.column_names == ["input_ids"]
    assert [token for row in rows["input_ids"].to_pylist() for token in row] == expected
    own = penstock.open("prepared-penstock")
    assert [token for number in range(len(own)) for token in own[number]["tokens"]] == expected
    assert main(["verify", "prepared-penstock"]) == 0


@pytest.mark.proof
def test_memory_efficient_or_not_the_bytes_are_the_same(desk):
    found = []
    for efficient in (True, False):
        path, cache = f"out-{efficient}", f"cache-{efficient}"
        config = {**CONFIGS["with every option"], "preprocess_memory_efficient": efficient}
        config |= {"dataset_prepared_path": path, "preprocess_dedup_cache_dir": cache}
        assert prepared(config, "--workers", "auto") == 0
        found.append((own_bytes(desk / path), own_bytes(desk / f"{path}-penstock")))
    assert found[0] == found[1]


@pytest.mark.proof
def test_the_job_that_it_means_is_printed_and_makes_the_same_bytes(desk, capsys):
    config = {**CONFIGS["with every option"], "learning_rate": 1e-3, "hub_model_id": "a/b"}
    assert prepared(config) == 0
    out, err = capsys.readouterr()
    assert document(out)["output"] == str(desk / "prepared-penstock")
    told, _, notes = err.partition("understood as this job file:\n\n")[2].partition("\n\n")
    assert yaml.safe_load(told) == {
        "input": [{"path": "your/large/dataset", "split": "train", "text_column": "text"}],
        "stages": [
            "clean",
            {"filter": "characters(text) >= 100"},
            {"dedup": {"remember": "./cache/dedup"}},
            {"tokenize": {"tokenizer": "org/words", "add_bos": "template", "special_tokens": "tokens"}},
            {"filter": "length(tokens) >= 40"},
            {"pack": {"length": 2048, "method": "wrapped"}},
        ],
        "output": "prepared-penstock",
        "strategy": "streaming",
        "workers": 0,
        "export": {"to": "hf", "path": "./prepared", "shard_size": "100MB", "columns": ["input_ids"]},
    }
    for word in ("left alone: learning_rate, hub_model_id", "preprocess_memory_efficient: true", "_chunk_size: how"):
        assert word in notes
    before = own_bytes(desk / "prepared-penstock")
    (desk / "job.yaml").write_text(told)
    assert (
        main(["run", "job.yaml", "--output", "again", "--set", "export.path=again-hf", "--set", "stages.2=dedup"]) == 0
    )
    shards = [name for name in before if name.startswith("train/")]
    assert shards
    assert all(own_bytes(desk / "again")[name] == before[name] for name in shards)
    assert exported(desk / "again-hf").equals(exported(desk / "prepared"))


@pytest.mark.proof
def test_options_of_the_command_line_are_laid_over_it(desk):
    assert prepared(NEWER, "--set", "preprocess.sequence_len=512", "--memory", "2GB", "--workers", "0") == 0
    assert {len(row) for row in exported(desk / "prepared")["input_ids"].to_pylist()} == {512}
    assert prepared(NEWER, "--output", "elsewhere") == 0
    assert exported(desk / "elsewhere-hf").num_rows == len(penstock.open("elsewhere"))


@pytest.mark.proof
def test_a_second_corpus_leaves_out_what_the_cache_remembers(desk):
    config = {**CONFIGS["with every option"], "sequence_len": 8}
    assert prepared(config) == 0
    assert prepared({**config, "dataset_prepared_path": str(desk / "more")}) == 0
    assert (len(penstock.open("prepared-penstock")) > 0, len(penstock.open("more-penstock"))) == (True, 0)


def test_a_cache_of_md5_files_is_refused_and_left_as_it_is(desk, capsys):
    marker = desk / "cache/dedup/a1/a1b2c3d4e5f60718293a4b5c6d7e8f90"
    marker.parent.mkdir(parents=True)
    marker.touch()
    assert prepared(CONFIGS["with every option"]) != 0
    assert "MD5" in capsys.readouterr().out
    assert marker.exists()


def test_what_the_older_program_left_in_that_place_is_refused_before_any_work(desk, capsys):
    save_dataset(desk / "prepared", ["rows of another program"])
    before = own_bytes(desk / "prepared")
    assert prepared(CONFIGS["basic"]) != 0
    told = document(capsys.readouterr().out)
    assert told["where"] == str(desk / "prepared")
    assert "--output" not in told["next_step"]
    assert own_bytes(desk / "prepared") == before
    assert not (desk / "prepared-penstock").exists()


# `export:` of any job.


def run_with_export(folder: Path, text: str, **export: Any) -> None:
    """A job of one short text; what it reads decides the dataset."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in/a.txt").write_text(text)
    job = {"input": {"path": str(folder / "in"), "format": "text"}, "output": str(folder / "out"), "workers": 0}
    penstock.run({**job, "export": {"to": "hf", **export}}, redo=True)


def test_an_export_is_made_again_only_when_something_changed(tmp_path):
    run_with_export(tmp_path, "one")
    first = (tmp_path / "out-hf/state.json").stat().st_ino
    run_with_export(tmp_path, "one")
    assert (tmp_path / "out-hf/state.json").stat().st_ino == first
    run_with_export(tmp_path, "two")
    assert exported(tmp_path / "out-hf")["text"].to_pylist() == ["two"]
    second = (tmp_path / "out-hf/state.json").stat().st_ino
    run_with_export(tmp_path, "two", shard_size="1MB")
    assert (tmp_path / "out-hf/state.json").stat().st_ino != second


@pytest.mark.parametrize("left", ["nothing", "the mark", "a half"])
def test_an_export_that_was_stopped_is_made_by_the_next_run(tmp_path, left):
    run_with_export(tmp_path, "one")
    whole = own_bytes(tmp_path / "out-hf")
    (tmp_path / "out/.penstock/export.json").unlink()
    if left == "nothing":
        (tmp_path / "out-hf").rename(tmp_path / "gone")
    elif left == "a half":
        (tmp_path / "out-hf").rename(tmp_path / "out-hf.penstock-part")
    run_with_export(tmp_path, "one")
    assert own_bytes(tmp_path / "out-hf") == whole
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "gone") == ["in", "out", "out-hf"]


@pytest.mark.parametrize("path", ["out/inside", "."])
def test_an_export_in_the_dataset_or_around_it_is_refused_before_any_work(tmp_path, path):
    with pytest.raises(OutputError, match="the export must not be inside the dataset"):
        run_with_export(tmp_path, "one", path=str(tmp_path / path))
    assert not (tmp_path / "out").exists()
