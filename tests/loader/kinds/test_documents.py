"""documents="varlen": the same rows, with their documents as sequences of the flattened batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import ConfigError
from penstock.loader.engine import PLAIN
from tests.loader.making import FIELDS, Datasets, copied, make_token_rows, prepare, same

KINDS: list[Any] = [
    ("rows", {}),
    ("rows", {"length": 20, "overflow": "truncate"}),
    ("plain_rows", {}),
    ("ragged_rows", {"length": 60}),
    ("kept_rows", {}),
    ("kept_ragged_rows", {"length": 40}),
    ("pings", {"length": 100}),
    ("pings", {"length": 100, "fill": "one_key"}),
    ("events", {"length": 200, "fields": FIELDS}),
]
OPTIONS: dict[str, Any] = {"batch_size": 6, "seed": 3, "workers": 0}
REPLACED = {"inputs_position", "targets_position"}
ADDED = ["position_ids", "seq_idx", "cu_seqlens"]


def sequences(batch: dict[str, np.ndarray]) -> list[tuple[int, int]]:
    """Start and end of each sequence in the flattened batch, found token by token."""
    segments, found = batch["inputs_segmentation"], []
    rows, length = segments.shape
    for row in range(rows):
        begins = [i for i in range(length) if i == 0 or segments[row, i] != segments[row, i - 1]]
        ends = [*begins[1:], length]
        found += [(row * length + begin, row * length + end) for begin, end in zip(begins, ends, strict=True)]
    return found


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize(("name", "options"), KINDS)
def test_the_rows_stay_and_every_sequence_is_where_its_segment_is(
    datasets: Datasets, monkeypatch, name, options, plain
):
    monkeypatch.setenv(PLAIN, "1" if plain else "0")
    path = getattr(datasets, name)
    loader = penstock.load(path, **OPTIONS, **options, documents="varlen")
    before = penstock.load(path, **OPTIONS, **options)
    for k in range(3):
        batch, expected = loader.batch(k), before.batch(k)
        assert set(batch) == {*expected, *ADDED} - REPLACED
        assert all(np.array_equal(batch[each], expected[each]) for each in set(expected) - REPLACED)
        filled = expected["inputs_segmentation"] > 0
        assert np.array_equal(batch["position_ids"][filled], expected["inputs_position"][filled])
        found, edges = sequences(batch), batch["cu_seqlens"]
        assert edges[: len(found) + 1].tolist() == [*(start for start, _ in found), batch["inputs"].size]
        assert set(edges[len(found) :].tolist()) == {batch["inputs"].size}
        for number, (start, end) in enumerate(found):
            assert set(batch["seq_idx"].reshape(-1)[start:end].tolist()) == {number}
            assert batch["position_ids"].reshape(-1)[start:end].tolist() == list(range(end - start))


@pytest.mark.parametrize(("name", "options"), KINDS)
def test_kernels_and_plain_numpy_give_the_same_bytes(datasets: Datasets, monkeypatch, name, options):
    made = []
    for plain in ("0", "1"):
        monkeypatch.setenv(PLAIN, plain)
        with penstock.load(getattr(datasets, name), **OPTIONS, **options, documents="varlen") as loader:
            made.append([copied(loader.batch(k)) for k in range(4)])
    assert all(same(one, other) for one, other in zip(*made, strict=True))


def test_the_shape_of_cu_seqlens_and_max_seqlen_never_change(datasets: Datasets):
    with penstock.load(datasets.rows, batch_size=8, epochs=1, documents="varlen", remainder="pad") as loader:
        shapes = {
            name: {batch[name].shape for batch in [loader.batch(k) for k in range(len(loader))]} for name in ADDED
        }
        longest = loader.max_seqlen
    assert shapes == {"position_ids": {(8, 64)}, "seq_idx": {(8, 64)}, "cu_seqlens": {(8 * 5 + 1,)}}
    assert (type(longest), longest) == (int, 64)
    assert penstock.load(datasets.rows, batch_size=8).max_seqlen is None


def test_a_padded_row_is_one_sequence_of_padding(datasets: Datasets):
    options: dict[str, Any] = {"batch_size": 512, "epochs": 1, "remainder": "pad", "documents": "varlen"}
    with penstock.load(datasets.plain_rows, **options) as loader:
        batch = loader.batch(0)
    assert batch["cu_seqlens"].tolist() == [*range(0, 512 * 32, 32), *[512 * 32] * 513]
    assert not batch["inputs_segmentation"][200:].any()


def test_too_few_documents_are_refused_with_the_numbers_and_enough_are_taken(tmp_path):
    starts = [[0, 3], [4], [2, 2, 1, 5, 7, 40], []]  # documents in 8 inputs: 2, 2, 4, 1
    table = make_token_rows(4, 9, 1, documents=False).append_column("documents", pa.array(starts, pa.list_(pa.int32())))
    path = prepare(tmp_path, table, [])
    refusal = r"max_documents=1, and 3 rows have more documents, up to 4(.|\n)*try: max_documents=4, or leave it out"
    with pytest.raises(ConfigError, match=refusal):
        penstock.load(path, batch_size=1, documents="varlen", max_documents=1)
    with pytest.raises(ConfigError, match=r"max_documents=3, and 1 rows have more documents, up to 4"):
        penstock.load(path, batch_size=1, documents="varlen", max_documents=3)
    for most, room in ((4, 5), (None, 8), (100, 101)):
        loader = penstock.load(path, batch_size=4, documents="varlen", max_documents=most, shuffle=False)
        assert loader.batch(0)["cu_seqlens"].tolist() == [0, 3, 8, 12, 16, 18, 21, 23, 24, *[32] * (4 * room - 8)]


def test_fewer_documents_than_a_row_of_events_may_have_are_refused(datasets: Datasets):
    with pytest.raises(ConfigError, match=r"max_documents=1, and a row of these events may have \d+ segments"):
        penstock.load(datasets.pings, batch_size=2, length=300, documents="varlen", max_documents=1)


def test_options_that_mean_nothing_are_refused(datasets: Datasets):
    with pytest.raises(ConfigError, match="give None or 'varlen'"):
        penstock.load(datasets.rows, batch_size=2, documents="packed")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"documents='varlen' too"):
        penstock.load(datasets.rows, batch_size=2, max_documents=4)
    with pytest.raises(ConfigError, match="max_documents=0"):
        penstock.load(datasets.rows, batch_size=2, documents="varlen", max_documents=0)
    with pytest.raises(
        ConfigError, match="documents='varlen' is an option for tokens, but this dataset is loaded as columns"
    ):
        penstock.load(datasets.arrays, batch_size=2, documents="varlen")
    with pytest.raises(ConfigError, match="more than int32 counts"):
        penstock.load(datasets.rows, batch_size=2**26, documents="varlen", memory=2**50)
    later = [{"from": 0}, {"from": 5, "batch_size": 2**26}]
    with pytest.raises(ConfigError, match="more than int32 counts"):
        penstock.load(datasets.rows, batch_size=2, phases=later, documents="varlen", memory=2**50)


def test_a_state_goes_on_on_other_ranks_and_is_refused_with_other_documents(datasets: Datasets):
    def load(**options: Any) -> Any:
        return penstock.load(datasets.rows, batch_size=8, seed=3, **{"documents": "varlen", **options})

    with load() as loader:
        for _ in range(5):
            next(loader)
        state, expected = loader.state(), copied(next(loader))
    assert state["recipe"]["documents"] == "varlen"
    for rank in (0, 1):
        with load(rank=rank, world=2, workers=2) as half:
            half.restore(state)
            batch = next(half)
            assert np.array_equal(batch["inputs"], expected["inputs"][4 * rank : 4 * rank + 4])
            assert (batch["cu_seqlens"][0], batch["cu_seqlens"][-1]) == (0, 4 * 64)
    with pytest.raises(ConfigError, match="max_documents was 4 and is 9"), load(max_documents=9) as other:
        other.restore(state)
    with pytest.raises(ConfigError, match="documents was 'varlen' and is None"), load(documents=None) as other:
        other.restore(state)


def add_mask(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**batch, "mask": batch["targets_segmentation"] != 0}


@pytest.mark.parametrize("processes", [0, 1])
def test_a_function_of_map_gets_the_arrays_and_gives_its_own(datasets: Datasets, processes):
    with penstock.load(datasets.rows, **OPTIONS, documents="varlen") as plain:
        expected = [add_mask(copied(plain.batch(k))) for k in range(2)]
    with penstock.load(datasets.rows, **OPTIONS, documents="varlen").map(add_mask, processes=processes) as loader:
        assert all(same(next(loader), batch) for batch in expected)


def test_maxtext_says_to_leave_documents_out(datasets: Datasets):
    with pytest.raises(ConfigError, match=r"lack inputs_position, targets_position(.|\n)*leave documents='varlen' out"):
        penstock.load(datasets.rows, batch_size=8, documents="varlen").to_maxtext()
