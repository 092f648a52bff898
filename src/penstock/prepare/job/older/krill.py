"""Krill: a config of the pretraining program of that name -> a job file for its rows. Called by config.py.

Its keys stand at the top, or, in newer configs, in `preprocess:` and `tokenizer:`. What its program did without a key
is spelled out: texts are trimmed, those under 100 characters and those seen before are left out, every document ends
with the tokenizer's end token, and what of all tokens does not fill a last row is the tail.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.sizes import parse_size
from penstock.prepare.job.job_file import Translated, left_alone, refuse_unknown
from penstock.prepare.sources.registry import COMPRESSIONS, known_endings
from penstock.prepare.sources.row_range import RowRange, parse_split

_BLOCKS = {  # block -> its keys, each with the name that it has at the top
    "preprocess": {
        "sequence_len": "sequence_len",
        "prepared_path": "dataset_prepared_path",
        "min_length": "dataset_prepared_min_length",
    },
    "tokenizer": {"hub_id": "hub_tokenizer_id"},
}
_OWN = (
    "datasets",
    *(top for keys in _BLOCKS.values() for top in keys.values()),
    "preprocess_memory_efficient",
    "preprocess_chunk_size",
    "preprocess_save_shard_size",
    "preprocess_dedup_cache_dir",
)
_DATASET = ("path", "split", "text_column", "name")
_LEAST_CHARACTERS, _LEAST_TOKENS = 100, 150
_SHARD_SIZE = "200MB"
_FILE = re.compile(
    rf".*({'|'.join(map(re.escape, known_endings()))})({'|'.join(map(re.escape, COMPRESSIONS))})?|.*[*?\[].*"
)


def is_krill(written: Mapping[str, Any]) -> bool:
    return "preprocess" in written or any(key in written for key in _OWN)


def translate(written: Mapping[str, Any], job_keys: tuple[str, ...]) -> Translated:
    known = (*_OWN, *_BLOCKS, *job_keys)
    ignored = [key for key in written if key not in known]
    ignored += [f"tokenizer.{key}" for key in _block(written, "tokenizer") if key not in _BLOCKS["tokenizer"]]
    notes = left_alone(ignored, known)
    settings = _settings(written)
    _refuse_wrong(settings)
    ours = {key: value for key, value in written.items() if key in job_keys}
    prepared = "" if "output" in ours else str(_needed(settings, "dataset_prepared_path"))
    job = {
        "input": ours.get("input") or _sources(_needed(settings, "datasets")),
        "stages": ours.get("stages") or _stages(settings),
        "output": ours.get("output") or f"{os.path.normpath(prepared)}-penstock",
        **({"strategy": "streaming"} if settings.get("preprocess_memory_efficient") else {}),
        "export": {
            "to": "hf",
            **({"path": prepared} if prepared else {}),
            "shard_size": settings.get("preprocess_save_shard_size") or _SHARD_SIZE,
            "columns": ["input_ids"],
        },
        **ours,
    }
    return Translated(job, (*notes, *_notes(settings)))


def _settings(written: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under the names that the keys have at the top; null says nothing."""
    settings = {key: written[key] for key in _OWN if written.get(key) is not None}
    for block, keys in _BLOCKS.items():
        for key, value in _block(written, block).items():
            if key not in keys:
                continue  # of `tokenizer:`, where it was left alone
            if keys[key] in settings:
                raise ConfigError(f"{block}.{key}: {keys[key]} is given too, and means the same; keep one")
            settings |= {} if value is None else {keys[key]: value}
    return settings


def _block(written: Mapping[str, Any], name: str) -> dict[str, Any]:
    block, keys = written.get(name), _BLOCKS[name]
    if block is None:
        return {}
    if not isinstance(block, dict):
        raise ConfigError(f"{name}: expected keys such as {next(iter(keys))}, got {block!r}")
    if name == "preprocess":
        refuse_unknown(block, list(keys), f"{name}.")
    return block


def _refuse_wrong(settings: Mapping[str, Any]) -> None:
    """Refuse wrong values here, because later errors would use names that are not in this file."""
    least = {"sequence_len": 2, "dataset_prepared_min_length": 0, "preprocess_chunk_size": 1}
    for key, value in settings.items():
        if key in least and (isinstance(value, bool) or not isinstance(value, int) or value < least[key]):
            raise ConfigError(f"{key}: {value!r} is not a whole number of at least {least[key]}")
        if key == "preprocess_memory_efficient" and not isinstance(value, bool):
            raise ConfigError(f"{key}: {value!r} is neither true nor false")
        if key.endswith(("_path", "_dir", "_tokenizer_id")) and not (isinstance(value, str) and value):
            raise ConfigError(f"{key}: {value!r} is not a path")
        if key == "preprocess_save_shard_size":
            try:
                parse_size(value)
            except ValueError as error:
                raise ConfigError(f"{key}: {error}") from error


def _needed(settings: Mapping[str, Any], key: str) -> Any:
    if settings.get(key):
        return settings[key]
    other = next((f" ({block}.{name})" for block, keys in _BLOCKS.items() for name in keys if keys[name] == key), "")
    raise ConfigError(
        f"`{key}:`{other} is missing, and rows cannot be made without it",
        next_step="add `datasets: [{path: org/name, split: train, text_column: text}]`, `sequence_len: 2048`, "
        "`hub_tokenizer_id: org/name` and `dataset_prepared_path: prepared`",
    )


def _sources(datasets: Any) -> list[dict[str, Any]]:
    if not isinstance(datasets, list):
        raise ConfigError(f"datasets: expected a list of {{path, split, text_column}}, got {datasets!r}")
    return [_source(f"datasets[{number}]", each) for number, each in enumerate(datasets)]


def _source(place: str, dataset: Any) -> dict[str, Any]:
    if not isinstance(dataset, dict) or not isinstance(dataset.get("path"), str):
        raise ConfigError(f"{place}: expected `path:`, `split:` and `text_column:`, got {dataset!r}")
    refuse_unknown(dataset, _DATASET, f"{place}.")
    path, split = dataset["path"], str(dataset.get("split") or "train")
    rows = _row_range(place, split)
    if is_file := bool(_FILE.fullmatch(path.lower())):
        _refuse_split_of_files(place, rows.split if rows else split)
    return {
        "path": path,
        **({} if is_file and not rows else {"split": split}),
        **({"name": dataset["name"]} if dataset.get("name") else {}),
        "text_column": dataset.get("text_column") or "text",
    }


def _row_range(place: str, split: str) -> RowRange | None:
    if "+" in split:
        raise ConfigError(
            f"{place}.split: {split!r} names several splits, but an entry reads one",
            next_step="make each split a separate entry",
        )
    try:
        return parse_split(split)
    except ValueError as error:
        raise ConfigError(f"{place}.split: {error}") from error


def _refuse_split_of_files(place: str, split: str) -> None:
    if split != "train":
        raise ConfigError(
            f"{place}.split: files have no split {split!r}; they are read whole, as `split: train`",
            next_step="name the files of that split, or a folder, in which the `datasets` library finds splits",
        )


def _stages(settings: Mapping[str, Any]) -> list[Any]:
    remember = settings.get("preprocess_dedup_cache_dir")
    least = settings.get("dataset_prepared_min_length", _LEAST_TOKENS)
    tokenizer = _needed(settings, "hub_tokenizer_id")
    tokenize = {"tokenizer": tokenizer, "add_bos": "template", "special_tokens": "tokens"}
    return [
        "clean",
        {"filter": f"characters(text) >= {_LEAST_CHARACTERS}"},
        {"dedup": {"remember": remember}} if remember else "dedup",
        {"tokenize": tokenize},
        {"filter": f"length(tokens) >= {least}"},
        {"pack": {"length": _needed(settings, "sequence_len"), "method": "wrapped"}},
    ]


def _notes(settings: Mapping[str, Any]) -> list[str]:
    notes = []
    if "preprocess_memory_efficient" in settings:
        efficient = settings["preprocess_memory_efficient"]
        held = "as little as is good is held" if efficient else "as much as helps and `memory:` allows is held"
        notes.append(f"preprocess_memory_efficient: {str(efficient).lower()}: {held}; the rows are the same either way")
    if "preprocess_chunk_size" in settings:
        notes.append("preprocess_chunk_size: how much is held at once follows from `memory:`; no row ends at a chunk")
    return notes
