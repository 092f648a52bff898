"""Krill: every key of its configs, the older and the newer, means something here, or is said to mean nothing."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from penstock.base.errors import ConfigError
from penstock.prepare.job.config import load_config, understood
from penstock.prepare.job.job_file import Translated

OLDER = {
    "sequence_len": 2048,
    "hub_tokenizer_id": "org/tokenizer",
    "dataset_prepared_path": "./artifacts/prepared",
    "datasets": [{"path": "org/name", "split": "train", "text_column": "body"}],
}
NEWER = {
    "datasets": [{"path": "org/name", "split": "train", "text_column": "body"}],
    "tokenizer": {"hub_id": "org/tokenizer"},
    "preprocess": {"prepared_path": "./artifacts/prepared", "sequence_len": 2048},
}
STAGES = [
    "clean",
    {"filter": "characters(text) >= 100"},
    "dedup",
    {"tokenize": {"tokenizer": "org/tokenizer", "add_bos": "template", "special_tokens": "tokens"}},
    {"filter": "length(tokens) >= 150"},
    {"pack": {"length": 2048, "method": "wrapped"}},
]
EXPORT = {"to": "hf", "path": "./artifacts/prepared", "shard_size": "200MB", "columns": ["input_ids"]}
JOB = {
    "input": [{"path": "org/name", "split": "train", "text_column": "body"}],
    "stages": STAGES,
    "output": "artifacts/prepared-penstock",
    "export": EXPORT,
}


def translated(written: dict[str, Any], **keys: Any) -> Translated:
    return understood({**written, **keys})


def refused(written: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        understood(written)
    return str(caught.value)


@pytest.mark.parametrize("written", [OLDER, NEWER], ids=["older", "newer"])
def test_both_spellings_are_one_job(written):
    assert translated(written).job == JOB


def test_a_config_that_is_ours_stays_as_it_is():
    job = {"input": "a.parquet", "output": "out", "stages": ["clean", {"pack": 8}], "export": "hf"}
    assert understood(job) == Translated(job, ())


@pytest.mark.parametrize(
    ("keys", "changed"),
    [
        ({"preprocess_memory_efficient": True}, {"strategy": "streaming"}),
        ({"preprocess_memory_efficient": False}, {}),
        ({"preprocess_memory_efficient": True, "strategy": "parallel"}, {"strategy": "parallel"}),
        ({"preprocess_chunk_size": 1000}, {}),
        ({"preprocess_save_shard_size": "50MB"}, {"export": {**EXPORT, "shard_size": "50MB"}}),
        ({"preprocess_save_shard_size": None}, {}),
        (
            {"preprocess_dedup_cache_dir": "seen"},
            {"stages": [*STAGES[:2], {"dedup": {"remember": "seen"}}, *STAGES[3:]]},
        ),
        ({"dataset_prepared_min_length": 64}, {"stages": [*STAGES[:4], {"filter": "length(tokens) >= 64"}, STAGES[5]]}),
        ({"memory": "2GB", "workers": 3}, {"memory": "2GB", "workers": 3}),
        ({"output": "out"}, {"output": "out", "export": {key: EXPORT[key] for key in EXPORT if key != "path"}}),
        ({"input": "docs.jsonl"}, {"input": "docs.jsonl"}),
    ],
)
def test_each_key_becomes_what_it_means(keys, changed):
    assert translated(OLDER, **keys).job == {**JOB, **changed}


@pytest.mark.parametrize(
    ("dataset", "source"),
    [
        ({"path": "org/name"}, {"path": "org/name", "split": "train", "text_column": "text"}),
        (
            {"path": "org/name", "name": "en"},
            {"path": "org/name", "split": "train", "name": "en", "text_column": "text"},
        ),
        ({"path": "saved/", "split": "test"}, {"path": "saved/", "split": "test", "text_column": "text"}),
        ({"path": "docs/*.parquet", "split": "train"}, {"path": "docs/*.parquet", "text_column": "text"}),
        (
            {"path": "org/name", "split": "train[:10_000]"},
            {"path": "org/name", "split": "train[:10_000]", "text_column": "text"},
        ),
        (
            {"path": "docs/*.parquet", "split": "train[:10%]"},
            {"path": "docs/*.parquet", "split": "train[:10%]", "text_column": "text"},
        ),
        ({"path": "docs.jsonl.zst", "text_column": "body"}, {"path": "docs.jsonl.zst", "text_column": "body"}),
    ],
)
def test_a_dataset_is_a_source_whatever_its_path_is(dataset, source):
    assert translated({**OLDER, "datasets": [dataset]}).job["input"] == [source]


def test_what_is_about_training_is_named_and_left_alone():
    training = {"hub_model_id": "a/b", "learning_rate": 1e-3, "train": {"arch": "llama"}, "vocab_size": 32000}
    notes = translated({**NEWER, **training, "tokenizer": {"hub_id": "x", "vocab_size": 1}}).notes
    listed = "hub_model_id, learning_rate, train, vocab_size, tokenizer.vocab_size"
    assert notes[0] == f"not about preparing data, and left alone: {listed}"
    assert not any("left alone" in note for note in translated(NEWER).notes)


def test_keys_that_only_decide_how_are_told_what_decides_it_here():
    notes = " ".join(translated(OLDER, preprocess_memory_efficient=False, preprocess_chunk_size=7).notes)
    assert "preprocess_memory_efficient: false" in notes
    assert "preprocess_chunk_size: how much is held at once follows from `memory:`" in notes


@pytest.mark.parametrize("missing", ["datasets", "sequence_len", "hub_tokenizer_id", "dataset_prepared_path"])
def test_a_config_without_what_rows_need_is_told_all_of_it(missing):
    told = refused({key: value for key, value in OLDER.items() if key != missing})
    assert f"`{missing}:`" in told
    assert "hub_tokenizer_id: org/name" in told


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"sequence_len": "long"}, "sequence_len: 'long' is not a whole number of at least 2"),
        ({"dataset_prepared_min_length": -1}, "dataset_prepared_min_length: -1"),
        ({"preprocess_chunk_size": 0}, "preprocess_chunk_size: 0"),
        ({"preprocess_memory_efficient": "often"}, "neither true nor false"),
        ({"preprocess_save_shard_size": "large"}, "preprocess_save_shard_size: "),
        ({"preprocess_dedup_cache_dir": 5}, "preprocess_dedup_cache_dir: 5 is not a path"),
        ({"preprocess_chunk_sise": 5}, "Did you mean 'preprocess_chunk_size'?"),
        ({"worker": 2}, "Did you mean 'workers'?"),
        ({"datasets": "org/name"}, "datasets: expected a list"),
        ({"datasets": ["org/name"]}, "datasets[0]: expected `path:`"),
        ({"datasets": [{"path": "a/b", "column": "text"}]}, "datasets[0].column: unknown key"),
        (
            {"datasets": [{"path": "a/b", "split": "train[10_000]"}]},
            "datasets[0].split: 'train[10_000]' is not a range",
        ),
        ({"datasets": [{"path": "a/*.csv", "split": "test[:5]"}]}, "files have no split 'test'"),
        ({"datasets": [{"path": "a/b", "split": "train+test"}]}, "make each split a separate entry"),
        ({"datasets": [{"path": "a/*.parquet", "split": "test"}]}, "files have no split 'test'"),
        ({"preprocess": {"sequence_len": 7}}, "preprocess.sequence_len: sequence_len is given too"),
        ({"preprocess": {"chunk_size": 7}}, "preprocess.chunk_size: unknown key. Keys: sequence_len,"),
        ({"preprocess": 7}, "preprocess: expected keys such as sequence_len, got 7"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_own_name(keys, told):
    assert told in refused({**OLDER, **keys})


def test_an_error_names_the_line(tmp_path):
    file = tmp_path / "krill.yaml"
    file.write_text(yaml.safe_dump({**OLDER, "sequence_len": "long"}, sort_keys=False))
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert caught.value.where == f"{file}, line 1"


def test_the_job_that_it_means_is_loaded(tmp_path):
    (tmp_path / "krill.yaml").write_text(yaml.safe_dump({**NEWER, "train": {"optimizer": "muon"}}))
    config = load_config(tmp_path / "krill.yaml")
    assert config.output_path == str(tmp_path / "artifacts/prepared-penstock")
    assert config.export_path == str(tmp_path / "artifacts/prepared")
    assert config.stage_names == ("clean", "filter", "dedup", "tokenize", "filter", "pack")
