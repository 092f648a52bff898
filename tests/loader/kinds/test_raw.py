"""encode="raw": windows of records are what penstock.open gives, cut and padded: every window, layout and kernel."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import IntegrityError, PenstockError
from penstock.loader.kinds.sequences.windows import below, first_draw
from penstock.loader.order import counter
from tests.loader.making import copied, hash_of, prepare, prepare_pings, same
from tests.promises.flipping import flip

RAW: dict[str, Any] = {"encode": "raw", "nulls": ["seconds"], "workers": 0}
LISTS = {"at": ("i8", ()), "seconds": ("f4", ()), "page": ("i2", ()), "bought": ("?", ()), "point": ("f4", (3,))}
LENGTH = 20


def records_of(path: Path) -> list[dict[str, np.ndarray]]:
    """Records as plain arrays: nulls are zeros, with a mask beside them."""
    records = []
    for record in penstock.open(path):
        plain = {"user": record["user"]}
        for name, (dtype, shape) in LISTS.items():
            values = record[name]
            plain[name] = np.ma.filled(values, 0).astype(dtype).reshape(-1, *shape)
            if name == "at":
                plain[name] = values.astype("datetime64[ms]").astype("i8")
            if name == "seconds":
                plain["seconds_valid"] = ~np.ma.getmaskarray(values)
        records.append(plain)
    return records


def cut(record: dict[str, np.ndarray], start: int, stop: int) -> dict[str, np.ndarray]:
    return {name: values[start:stop] if np.ndim(values) else values for name, values in record.items()}


def windows_of(record: dict[str, np.ndarray], window: Any, length: int) -> list[dict[str, np.ndarray]]:
    """Naively, one record at a time."""
    events = len(record["page"])
    if window == "last":
        return [cut(record, max(0, events - length), events)]
    found, start = [], 0
    while not found or start - window["sliding"] + length < events:
        found.append(cut(record, start, start + length))
        start += window["sliding"]
    return found


def padded(rows: list[dict[str, np.ndarray]], length: int) -> dict[str, np.ndarray]:
    """The batch of these windows."""
    batch = {}
    for name, first in rows[0].items():
        shape = (length, *np.shape(first)[1:]) if np.ndim(first) else ()
        batch[name] = np.zeros((len(rows), *shape), np.asarray(first).dtype)
        for number, row in enumerate(rows):
            if np.ndim(first):
                batch[name][number, : len(row[name])] = row[name]
            else:
                batch[name][number] = row[name]
    return {**batch, "lengths": np.array([len(row["page"]) for row in rows], "i4")}


@pytest.mark.parametrize("plain", ["", "1"])
@pytest.mark.parametrize("window", ["last", {"sliding": 7}, {"sliding": LENGTH}])
@pytest.mark.parametrize("cache", [None, "disk", "memory"])
def test_an_epoch_in_stored_order_has_the_windows_of_all_records(datasets, monkeypatch, plain, window, cache):
    monkeypatch.setenv("PENSTOCK_PLAIN", plain)
    expected = [row for record in records_of(datasets.visits) for row in windows_of(record, window, LENGTH)]
    options = {**RAW, "length": LENGTH, "window": window, "cache": cache, "shuffle": False, "epochs": 1}
    found = [copied(batch) for batch in penstock.load(datasets.visits, batch_size=8, **options)]
    assert len(found) == len(expected) // 8
    for k, batch in enumerate(found):
        assert same(batch, padded(expected[8 * k : 8 * k + 8], LENGTH))


def test_a_shuffled_epoch_has_every_window_once(datasets):
    options = {**RAW, "length": LENGTH, "window": {"sliding": 9}, "epochs": 1}
    found = [
        (int(user), int(at))
        for batch in penstock.load(datasets.visits, batch_size=1, seed=5, **options)
        for user, at in zip(batch["user"], batch["at"][:, 0], strict=True)
    ]
    rows = [row for record in records_of(datasets.visits) for row in windows_of(record, {"sliding": 9}, LENGTH)]
    expected = [(int(row["user"]), int(row["at"][0])) for row in rows]
    assert found != expected
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("plain", ["", "1"])
def test_random_windows_lie_anywhere_in_a_record_and_elsewhere_in_the_next_epoch(datasets, monkeypatch, plain):
    monkeypatch.setenv("PENSTOCK_PLAIN", plain)
    records = {int(record["user"]): record for record in records_of(datasets.visits)}
    loader = penstock.load(datasets.visits, batch_size=10, length=LENGTH, window="random", **RAW)
    starts: dict[int, list[int]] = {}
    for k in range(4 * len(records) // 10):
        batch = loader.batch(k)
        for row, user in enumerate(batch["user"].tolist()):
            at, count = records[user]["at"], int(batch["lengths"][row])
            start = int(np.flatnonzero(at == batch["at"][row, 0])[0])
            assert count == min(LENGTH, len(at))
            assert same(
                {name: batch[name][row : row + 1] for name in batch},
                padded([cut(records[user], start, start + count)], LENGTH),
            )
            starts.setdefault(user, []).append(start)
    longest = max(records.values(), key=lambda record: len(record["at"]))
    assert len(set(starts[int(longest["user"])])) > 1


def test_the_position_of_a_random_window_is_that_of_the_plain_counter():
    keys = np.random.default_rng(2).integers(0, 2**64, 200, "u8", endpoint=False)
    sizes = np.random.default_rng(3).integers(1, 2**32, 200, "u8", endpoint=True)
    expected = [counter.below(counter.draw(int(key), 0), int(n)) for key, n in zip(keys, sizes, strict=True)]
    assert below(first_draw(keys), sizes).tolist() == expected


@pytest.mark.parametrize("plain", ["", "1"])
@pytest.mark.parametrize("window", ["last", "random", {"sliding": 6}])
def test_values_with_offsets_are_the_padded_ones_without_padding(datasets, monkeypatch, plain, window):
    monkeypatch.setenv("PENSTOCK_PLAIN", plain)
    options = {**RAW, "length": LENGTH, "window": window, "seed": 3}
    boxes = penstock.load(datasets.visits, batch_size=8, **options)
    flats = penstock.load(datasets.visits, batch_size=8, layout="offsets", **options)
    for k in range(12):
        box, flat = copied(boxes.batch(k)), flats.batch(k)
        offsets, used = flat["offsets"], int(box["lengths"].sum())
        assert (offsets.dtype, offsets.shape) == (np.dtype("i4"), (9,))
        assert np.diff(offsets).tolist() == box["lengths"].tolist()
        shown = np.arange(LENGTH) < box["lengths"][:, None]
        for name in [*LISTS, "seconds_valid"]:
            assert flat[name].shape == (8 * LENGTH, *box[name].shape[2:])
            np.testing.assert_array_equal(flat[name][:used], box[name][shown])
            assert not flat[name][used:].any()
        np.testing.assert_array_equal(flat["user"], box["user"])


def test_batches_with_offsets_that_are_kept_are_not_written_over(datasets):
    options = {**RAW, "length": LENGTH, "window": "random", "layout": "offsets", "batch_size": 8}
    loader = penstock.load(datasets.visits, **options)
    pages = [loader.batch(k)["page"] for k in range(12)]  # of each batch one array alone
    again = penstock.load(datasets.visits, **options)
    for k, page in enumerate(pages):
        np.testing.assert_array_equal(page, again.batch(k)["page"])


def test_records_with_fewer_events_are_left_out_and_counted(datasets):
    records = records_of(datasets.visits)
    kept = [record for record in records if len(record["page"]) >= 15]
    loader = penstock.load(
        datasets.visits, batch_size=1, length=LENGTH, window="last", min_length=15, shuffle=False, epochs=1, **RAW
    )
    assert [int(batch["user"][0]) for batch in loader] == [int(record["user"]) for record in kept]
    assert 0 < loader.stats().datasets[0].left_out == len(records) - len(kept)


def test_events_that_no_row_has_are_counted(datasets):
    records = records_of(datasets.visits)
    events = sum(len(record["page"]) for record in records)
    for window, cuts in (("last", True), ("random", True), ({"sliding": 10}, False)):
        loader = penstock.load(datasets.visits, batch_size=1, length=LENGTH, window=window, epochs=1, **RAW)
        for _ in loader:
            pass
        counts = loader.stats().counts
        assert counts["events_cut"] == (events - counts["events"] if cuts else 0)


def test_only_the_columns_that_are_named_come(datasets):
    batch = penstock.load(
        datasets.visits, batch_size=3, columns=["page", "user"], length=4, window="last", encode="raw", workers=0
    ).batch(0)
    assert {name: (array.shape, array.dtype.str) for name, array in batch.items()} == {
        "page": ((3, 4), "<i2"),
        "user": ((3,), "<i8"),
        "lengths": ((3,), "<i4"),
    }


@pytest.mark.parametrize("layout", ["padded", "offsets"])
@pytest.mark.parametrize("plain", ["", "1"])
def test_the_last_batch_is_padded_with_rows_of_no_events(datasets, monkeypatch, plain, layout):
    monkeypatch.setenv("PENSTOCK_PLAIN", plain)
    options = {**RAW, "length": LENGTH, "window": "last", "epochs": 1, "remainder": "pad", "layout": layout}
    *_, last = penstock.load(datasets.visits, batch_size=32, **options)
    rows = len(penstock.open(datasets.visits)) % 32
    lengths = np.diff(last["offsets"]) if layout == "offsets" else last["lengths"]
    assert last["valid"].tolist() == [True] * rows + [False] * (32 - rows)
    assert not lengths[rows:].any()
    assert not last["user"][rows:].any()


def test_the_ranks_together_have_the_rows_of_the_batch(datasets):
    options = {**RAW, "length": LENGTH, "window": "random", "seed": 7, "batch_size": 12}
    whole = penstock.load(datasets.visits, **options)
    ranks = [penstock.load(datasets.visits, **options, rank=rank, world=3) for rank in range(3)]
    for k in (0, 1, 30):
        parts = [copied(rank.batch(k)) for rank in ranks]
        assert same(whole.batch(k), {name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


@pytest.mark.parametrize("layout", ["padded", "offsets"])
def test_a_run_resumes_exactly_at_every_step_with_other_workers(datasets, layout):
    options = {**RAW, "length": LENGTH, "window": "random", "batch_size": 16, "epochs": 2, "layout": layout}
    first = penstock.load(datasets.visits, **options)
    states, hashes = [], []
    for batch in first:
        hashes.append(hash_of(batch))
        states.append(first.state())
    for step, state in enumerate(states[:-1], start=1):
        with penstock.load(datasets.visits, **{**options, "workers": step % 3}) as resumed:
            resumed.restore(state)
            assert hash_of(next(resumed)) == hashes[step]


def test_a_state_of_another_window_is_refused(datasets):
    options = {**RAW, "length": LENGTH, "batch_size": 8}
    state = penstock.load(datasets.visits, window={"sliding": 5}, **options).state()
    with pytest.raises(PenstockError, match="window was 'sliding 5' and is 'last'"):
        penstock.load(datasets.visits, window="last", **options).restore(state)


def test_datasets_are_mixed_by_their_windows(datasets):
    paths = [datasets.visits, datasets.more_visits]
    options = {**RAW, "length": LENGTH, "window": {"sliding": 10}, "min_length": 5, "weights": [3, 1]}
    loader = penstock.load(paths, batch_size=8, **options)
    plain = [copied(loader.batch(k)) for k in range(20)]
    shown = {int(at) for batch in plain for at in batch["at"][:, 0]}
    assert len(shown) > 100
    assert all((batch["lengths"] > 0).all() for batch in plain)
    assert len(loader.stats().datasets) == 2


def test_a_split_without_nulls_has_the_same_arrays(tmp_path):
    table = pa.table({"x": pa.array([[1.0, 2.0], [3.0]], pa.list_(pa.float32()))})
    path = prepare(tmp_path, table, [])
    batch = penstock.load(path, batch_size=2, length=2, encode="raw", nulls=["x"], shuffle=False, workers=0).batch(0)
    assert batch["x_valid"].tolist() == [[True, True], [True, False]]


def test_samples_of_arrays_of_any_length_come_in_batches(tmp_path, monkeypatch):
    (tmp_path / "ragged.py").write_text(
        "import numpy as np\n\n\ndef samples(path):\n"
        "    for n in range(1, 30):\n"
        "        frames = np.full((n, 4), n, 'f4')\n"
        "        yield {'moves': np.arange(n, dtype='i4'), 'frames': frames, 'labels': {'move': n}}\n"
    )
    (tmp_path / "a.game").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    schema = {"moves": "int32[*]", "frames": "float32[*, 4]", "labels": {"move": "int16"}}
    source = {"files": str(tmp_path / "*.game"), "function": "ragged:samples", "schema": schema}
    penstock.run({"input": source, "output": str(tmp_path / "out"), "workers": 0, "memory": "1GB"})
    with pytest.raises(PenstockError, match="encode='raw'"):
        penstock.load(tmp_path / "out", batch_size=4)
    batch = penstock.load(
        tmp_path / "out", batch_size=29, length=29, encode="raw", shuffle=False, workers=0, epochs=1
    ).batch(0)
    assert batch["lengths"].tolist() == list(range(1, 30))
    assert batch["frames"].shape == (29, 29, 4)
    assert batch["frames"].sum() == sum(4 * n * n for n in range(1, 30))
    assert batch["labels_move"].tolist() == list(range(1, 30))


@pytest.mark.parametrize("column", ["page/values", "seconds/values/valid", "point/values", "user", "at/offsets"])
@pytest.mark.parametrize("plain", ["", "1"])
def test_a_flipped_byte_is_named(datasets, tmp_path, monkeypatch, plain, column):
    monkeypatch.setenv("PENSTOCK_PLAIN", plain)
    path = tmp_path / "copy"
    shutil.copytree(datasets.visits, path)
    shard = sorted((path / "train").glob("*.safetensors"))[-1]
    data = shard.read_bytes()
    size = int.from_bytes(data[:8], "little")
    start = json.loads(data[8 : 8 + size])[column]["data_offsets"][0]
    flip(shard, 8 + size + start, 0x04)
    with pytest.raises(IntegrityError, match=column):
        for _ in penstock.load(path, batch_size=1, length=LENGTH, window={"sliding": 10}, epochs=1, **RAW):
            pass


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"needs length=.*The longest record has \d+"),
        ({"length": 5}, r"\d+ records have more than length=5 events, up to \d+"),
        ({"length": 5, "window": "first"}, "window='first'"),
        ({"length": 5, "window": {"sliding": 0}}, "sliding"),
        ({"length": 5, "window": {"sliding": 8}}, "a stride of 8 with windows of 5 events would skip 3 events"),
        ({"length": 5, "window": "last", "min_length": 10**6}, r"all \d+ records have fewer than min_length=1,000,000"),
        ({"length": 5, "window": "last", "min_length": -1}, "min_length=-1"),
        ({"length": 5, "window": "last", "layout": "jagged"}, "layout='jagged'"),
        ({"length": 5, "window": "last", "nulls": []}, "column 'seconds' has nulls"),
        ({"length": 5, "window": "last", "nulls": ["second"]}, "no column 'second'. Did you mean 'seconds'"),
        ({"length": 5, "window": "last", "columns": ["pages"], "nulls": None}, "no column 'pages'"),
        ({"length": 5, "window": "last", "columns": ["user"], "nulls": None}, "none of the columns user is a list"),
        ({"length": 5, "window": "last", "fields": {"page": "int"}}, "fields="),
        ({"length": 5, "window": "last", "documents": "varlen"}, "documents='varlen' is an option for packed rows"),
        ({"length": 5, "window": "last", "max_tokens": 8}, "max_tokens=8"),
        ({"length": 5, "encode": "tokens"}, "encode='tokens'"),
        ({"length": 2**30, "window": "last"}, r"needs 8,589,934,592 events \(8 rows of 1,073,741,824\)"),
        ({"length": 10**7, "window": "last", "memory": "500MB"}, "batches do not fit: 8 rows take"),
        ({"encode": None, "window": "last"}, "window='last'"),
        ({"encode": None, "min_length": 3}, "min_length=3"),
        ({"encode": None, "columns": ["user"]}, "no column 'seconds'"),
    ],
)
def test_impossible_options_are_refused_by_name(datasets, options, words):
    with pytest.raises(PenstockError, match=words):
        penstock.load(datasets.visits, batch_size=8, **{**RAW, **options})


def test_text_and_lists_of_other_lengths_are_refused_with_the_next_step(tmp_path):
    table = pa.table(
        {
            "words": pa.array([["a", "b"], ["c"]]),
            "x": pa.array([[1, 2], [3]], pa.list_(pa.int32())),
            "y": pa.array([[1, 2], [3, 4, 5]], pa.list_(pa.int32())),
            "lengths": pa.array([1, 2], pa.int32()),
        }
    )
    path = prepare(tmp_path, table, [])
    options: dict[str, Any] = {"batch_size": 2, "length": 5, "encode": "raw", "workers": 0}
    with pytest.raises(PenstockError, match=r"not words (?s:.*)columns=\['x', 'y', 'lengths'\]"):
        penstock.load(path, columns=["x", "words"], **options)
    with pytest.raises(PenstockError, match="record 1 has 1 values of 'x' and 3 of 'y'"):
        penstock.load(path, columns=["x", "y"], **options)
    with pytest.raises(PenstockError, match="two arrays of a batch would be called 'lengths'"):
        penstock.load(path, columns=["x", "lengths"], **options)
    assert penstock.load(path, columns=["y"], **options).batch(0)["lengths"].sum() == 5


def test_decimals_and_columns_with_nulls_are_refused_with_what_makes_them_load(tmp_path):
    costs = pa.array([Decimal("1.50"), None], pa.decimal128(9, 2))
    table = pa.table({"user": ["a", "a"], "cost": costs, "age": [7, None], "weight": [None, 2.5]})
    path = prepare(tmp_path, table, [{"group": {"by": "user"}}])
    options: dict[str, Any] = {"batch_size": 1, "length": 2, "encode": "raw", "workers": 0}
    with pytest.raises(PenstockError, match=r"columns 'age', 'weight' have nulls(?s:.*)nulls=\['age', 'weight'\]"):
        penstock.load(path, **options)
    for asked in ({"columns": ["cost"]}, {"nulls": ["age", "cost"]}):
        with pytest.raises(PenstockError, match=r"not cost \((?s:.*)`cast: \{cost: float64\}`"):
            penstock.load(path, **asked, **options)
    batch = penstock.load(path, nulls=["age", "weight"], **options).batch(0)
    assert (batch["age"].tolist(), batch["weight_valid"].tolist()) == ([[7, 0]], [[False, True]])


def test_a_record_without_events_is_a_row_of_zeros(tmp_path):
    path = prepare(tmp_path, pa.table({"x": pa.array([[1, 2], []], pa.list_(pa.int32()))}), [])
    batch = penstock.load(path, batch_size=2, length=2, encode="raw", shuffle=False, workers=0).batch(0)
    assert batch["lengths"].tolist() == [2, 0]
    assert batch["x"].tolist() == [[1, 2], [0, 0]]


def test_arrayrecord_files_have_no_columns(tmp_path):
    path = prepare_pings(tmp_path, 300, 20, format="arrayrecord")
    with pytest.raises(PenstockError, match="encode= is an option for columns"):
        penstock.load(path, batch_size=2, length=2, encode="raw", window="last", workers=0)


def test_grouped_events_come_in_the_order_of_the_group_stage(datasets):
    records = {int(record["user"]): record["page"] for record in penstock.open(datasets.grouped_visits)}
    loader = penstock.load(datasets.grouped_visits, batch_size=6, length=9, window="last", epochs=1, **RAW)
    for batch in loader:
        for user, page, count in zip(batch["user"], batch["page"], batch["lengths"], strict=True):
            assert page[:count].tolist() == records[int(user)][-9:].tolist()
        assert (np.diff(batch["at"], axis=1)[:, : batch["lengths"].min() - 1] > 0).all()
