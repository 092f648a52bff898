"""Datasets are mixed only if their values mean the same: tokens of one tokenizer, columns of one type."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import ConfigError
from penstock.prepare.job.presets import PRESETS
from tests.loader.making import make_events, make_pings, make_token_rows, prepare
from tests.promises.text_making import write_tokenizer


def prepare_text(folder: Path, tokenizer: Path | None, seed: int) -> Path:
    """Packed rows of 17 tokens; without a tokenizer, rows of the same columns that keep none."""
    if tokenizer is None:
        return prepare(folder, make_token_rows(80, 17, seed), [])
    texts = pa.table({"text": [f"water flows through pipe {seed} {number} " * 9 for number in range(40)]})
    stages = [{"tokenize": {"tokenizer": str(tokenizer), "engine": "hf"}}, {"pack": {"length": 17}}]
    return prepare(folder, texts, stages)


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("texts")
    one = write_tokenizer(folder / "one")
    other = write_tokenizer(folder / "other", truncation=None, padding=None)
    table = json.loads((other / "tokenizer.json").read_text())
    names = list(table["model"]["vocab"])
    table["model"]["vocab"] |= {names[300]: 301, names[301]: 300}  # two words change places
    (other / "tokenizer.json").write_text(json.dumps(table))
    return {
        "first": prepare_text(folder / "a", one, 1),
        "second": prepare_text(folder / "b", one, 2),
        "other": prepare_text(folder / "c", other, 3),
        "plain": prepare_text(folder / "d", None, 4),
    }


def mixed(*paths: Path, **options: Any) -> tuple[list[str], dict[str, np.ndarray]]:
    """What was warned of, and the first batch."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with penstock.load(list(paths), batch_size=4, workers=0, **options) as loader:
            batch = next(loader)
    return [str(each.message) for each in told], batch


@pytest.mark.proof
def test_datasets_of_one_tokenizer_are_mixed_without_a_word(texts):
    assert mixed(texts["first"], texts["second"])[0] == []


@pytest.mark.proof
def test_datasets_of_different_tokenizers_are_refused_by_name(texts):
    with pytest.raises(ConfigError, match="made by different tokenizers") as refused:
        mixed(texts["first"], texts["other"])
    assert str(texts["other"]) in refused.value.what
    for name in ("first", "other"):
        assert str(texts[name] / "artifacts" / "tokenizer.json") in str(refused.value.where)


def test_any_two_of_several_datasets_are_compared(texts):
    with pytest.raises(ConfigError, match="made by different tokenizers"):
        mixed(texts["plain"], texts["first"], texts["other"])


def test_a_dataset_that_keeps_no_tokenizer_is_mixed_with_a_warning(texts):
    told, _ = mixed(texts["plain"], texts["first"])
    assert len(told) == 1
    assert "keeps no tokenizer" in told[0]


def test_arrays_normalized_with_different_statistics_are_mixed_with_a_warning(tmp_path):
    def numbers(seed: int) -> pa.Table:
        return pa.table({"x": np.random.default_rng(seed).normal(seed, 2, 90), "y": np.arange(90.0)})

    first, second, same = (
        prepare(tmp_path / f"{number}", numbers(seed), [{"normalize": ["x", "y"]}])
        for number, seed in enumerate((1, 2, 1))
    )
    told, _ = mixed(first, second)
    assert len(told) == 1
    assert "normalized with different statistics: equal values of x mean different things" in told[0]
    assert mixed(first, same)[0] == []


@pytest.mark.parametrize(
    "other",
    [
        make_token_rows(60, 18, 1),
        make_token_rows(60, 17, 1, documents=False),
        make_token_rows(60, 17, 1).set_column(
            0, "tokens", make_token_rows(60, 17, 1)["tokens"].cast(pa.list_(pa.int32(), 17))
        ),
    ],
    ids=["another length", "no documents", "another type"],
)
def test_rows_of_another_shape_or_type_are_refused_with_both(texts, tmp_path, other):
    path = prepare(tmp_path, other, [])
    with pytest.raises(ConfigError, match="their columns differ") as refused:
        mixed(texts["plain"], path)
    assert " against " in str(refused.value.where)


def test_old_records_of_other_columns_are_refused_with_both(tmp_path):
    pings = prepare(
        tmp_path / "pings", make_pings(300, 20, 4), PRESETS["pings"].stages({"test": 0}), format="arrayrecord"
    )
    table = make_pings(300, 20, 5)
    wider = table.append_column("hops", pa.array(range(len(table))))
    stages = PRESETS["events"].stages({"by": "src_addr", "order": "event_time", "test": 0})
    other = prepare(tmp_path / "other", wider, stages, format="arrayrecord")
    columns = [penstock.open(each)[:1].schema.names for each in (pings, other)]
    assert columns[0] != columns[1]
    with pytest.raises(ConfigError, match="their columns differ") as refused:
        mixed(pings, other, length=100)
    assert "hops" in str(refused.value.where)


def test_weights_that_are_too_far_apart_are_refused_before_anything_is_made(texts):
    with pytest.raises(ConfigError, match="too far apart"):
        mixed(texts["first"], texts["second"], weights=[1e-320, 1])


def test_weights_may_be_an_array(texts):
    one = mixed(texts["first"], texts["second"], weights=np.array([1, 3], "f4"))[1]
    other = mixed(texts["first"], texts["second"], weights=[1, 3])[1]
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_events_of_other_columns_are_refused(tmp_path):
    stages = PRESETS["events"].stages({"by": "peer", "order": "at", "test": 0})
    first = prepare(tmp_path / "first", make_events(300, 10, 6), stages)
    second = prepare(tmp_path / "second", make_events(300, 10, 6).drop_columns(["flags"]), stages)
    with pytest.raises(ConfigError, match="their columns differ"):
        mixed(first, second, length=80, fields={"number": "int"})
