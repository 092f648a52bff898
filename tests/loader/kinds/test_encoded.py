"""encode=function: a user's function makes the rows of windows, in the loader's threads, with the same purity."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.base.errors import PenstockError
from tests.loader.making import copied, hash_of, same

OPTIONS: dict[str, Any] = {"length": 12, "window": "random", "nulls": ["seconds"], "workers": 0}


def pages(window):
    """Two tokens per event."""
    return np.stack([window["page"] + 1, window["bought"] + 1000], axis=1).reshape(-1).astype("i4")


def pages_of_later_code(window):
    return np.stack([window["page"] + 2, window["bought"] + 1000], axis=1).reshape(-1).astype("i4")


def sums(window):
    means = window["seconds"][window["seconds_valid"]].mean() if window["seconds_valid"].any() else 0
    return {"user": window["user"], "mean": np.float32(means), "points": window["point"].sum(axis=0)}


@pytest.mark.parametrize("plain", ["", "1"])
def test_tokens_are_those_of_the_raw_windows(datasets, monkeypatch, plain):
    monkeypatch.setenv("PENSTOCK_PLAIN", plain)
    raw = penstock.load(datasets.visits, batch_size=8, encode="raw", **OPTIONS)
    encoded = penstock.load(datasets.visits, batch_size=8, encode=pages, max_tokens=30, **OPTIONS)
    for k in range(20):
        batch, windows = encoded.batch(k), raw.batch(k)
        assert {name: (array.shape, array.dtype.str) for name, array in batch.items()} == {
            "tokens": ((8, 30), "<i4"),
            "lengths": ((8,), "<i4"),
        }
        assert batch["lengths"].tolist() == (2 * windows["lengths"]).tolist()
        for row, count in enumerate(windows["lengths"].tolist()):
            expected = pages({name: windows[name][row, :count] for name in ("page", "bought")})
            np.testing.assert_array_equal(batch["tokens"][row, : 2 * count], expected)
            assert not batch["tokens"][row, 2 * count :].any()


def test_a_dict_of_arrays_comes_row_by_row(datasets):
    raw = penstock.load(datasets.visits, batch_size=8, encode="raw", **OPTIONS)
    encoded = penstock.load(datasets.visits, batch_size=8, encode=sums, **OPTIONS)
    for k in range(5):
        batch, windows = encoded.batch(k), raw.batch(k)
        assert list(batch) == ["user", "mean", "points"]
        np.testing.assert_array_equal(batch["user"], windows["user"])
        np.testing.assert_allclose(batch["points"], windows["point"].sum(axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", [pages, sums])
def test_a_run_resumes_exactly_on_other_ranks_and_workers(datasets, function):
    options = {**OPTIONS, "encode": function, "batch_size": 12, "epochs": 1}
    options |= {"max_tokens": 24} if function is pages else {}
    loader = penstock.load(datasets.visits, **options)
    whole = []
    for batch in loader:
        whole.append((copied(batch), loader.state()))
    for step, (_, state) in enumerate(whole[:-1], start=1):
        parts = []
        for rank in range(2):
            with penstock.load(datasets.visits, **{**options, "workers": 2}, rank=rank, world=2) as part:
                part.restore(state)
                parts.append(copied(next(part)))
        assert same(whole[step][0], {name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def test_a_state_of_another_function_is_refused(datasets):
    options = {**OPTIONS, "batch_size": 8, "max_tokens": 24}
    state = penstock.load(datasets.visits, encode=pages, **options).state()
    again = penstock.load(datasets.visits, encode=pages, **options)
    again.restore(state)
    with pytest.raises(PenstockError, match="encode was 'pages' and is 'pages_of_later_code'"):
        penstock.load(datasets.visits, encode=pages_of_later_code, **options).restore(state)


def test_the_code_of_a_function_counts_and_not_its_name_alone(datasets):
    def made(shift):
        return lambda window: window["page"].astype("i4") + shift

    one, two = (penstock.load(datasets.visits, batch_size=8, encode=made(shift), **OPTIONS) for shift in (1, 2))
    with pytest.raises(PenstockError, match="encoder was"):
        two.restore(one.state())


def test_a_function_that_may_see_the_order_of_a_set_is_refused(datasets):
    words = {"a", "b", "c"}
    with pytest.raises(PenstockError, match="uses words: the order of a set, and `hash`, differ between processes"):
        penstock.load(datasets.visits, batch_size=8, encode=lambda window: [len(window)] * len(list(words)), **OPTIONS)


def test_threads_give_the_same_batches(datasets):
    options = {**OPTIONS, "encode": sums, "batch_size": 16}
    alone = penstock.load(datasets.visits, **options)
    with penstock.load(datasets.visits, **{**options, "workers": 3}) as threaded:
        for k, batch in enumerate(itertools.islice(threaded, 10)):
            assert hash_of(batch) == hash_of(alone.batch(k))


def clears(window):
    window["page"][:] = 0
    return window["page"] + 1


def test_a_function_may_change_its_window(datasets):
    batch = penstock.load(datasets.visits, batch_size=8, encode=clears, **OPTIONS).batch(0)
    assert batch["tokens"].sum() == batch["lengths"].sum()


@pytest.mark.parametrize("first", [0, 1])
def test_a_window_may_have_no_tokens_at_all(datasets, first):
    """An empty list has no type of its own, and numpy would make floats of it."""
    calls = penstock.load(datasets.visits, batch_size=1, encode="raw", shuffle=False, **{**OPTIONS, "window": "last"})
    length = len(calls.batch(0)["page"][0][: calls.batch(0)["lengths"][0]])

    def some(window):
        return [] if (len(window["page"]) == length) == (first == 0) else window["page"].tolist()

    batch = penstock.load(datasets.visits, batch_size=64, encode=some, **{**OPTIONS, "window": "last"}).batch(0)
    assert 0 in batch["lengths"]
    assert batch["lengths"].any()


@pytest.mark.parametrize("wrong", [-1, 2**31, 2**40, 2**64 - 1])
@pytest.mark.parametrize("page", [None, 3])
def test_ids_that_no_model_has_are_refused_with_their_number(datasets, wrong, page):
    """In every window, or in those that have page 3."""

    def ids(window):
        pages = window["page"].astype("u8" if wrong > 2**62 else "i8")
        pages[:] = np.where((window["page"] == page) | (page is None), wrong, pages)
        return pages

    words = rf"returned {wrong} as token \d+ of a window, and [\d,]+ of its [\d,]+ ids are not from 0 to 2147483647"
    with pytest.raises(PenstockError, match=words):
        penstock.load(datasets.visits, batch_size=500, encode=ids, **OPTIONS).batch(0)


def test_the_largest_id_is_taken(datasets):
    def ids(window):
        return np.full(len(window["page"]), 2**31 - 1)

    batch = penstock.load(datasets.visits, batch_size=8, encode=ids, **OPTIONS).batch(0)
    assert set(batch["tokens"].ravel().tolist()) <= {0, 2**31 - 1}


def test_long_windows_are_encoded_some_at_a_time(datasets):
    """A thread holds at most 1 MiB of windows: here those of a part of the batch."""
    options = {**OPTIONS, "length": 20_000, "window": None, "max_tokens": 20_000, "columns": ["page"], "nulls": None}
    loader = penstock.load(datasets.visits, batch_size=64, encode=whole_pages, shuffle=False, **options)
    expected = [len(record["page"]) for record in penstock.open(datasets.visits)][:64]
    assert loader.batch(0)["lengths"].tolist() == expected
    assert next(loader)["tokens"].shape == (64, 20_000)


def whole_pages(window):
    return window["page"]


def test_rows_that_pad_the_last_batch_are_zeros(datasets):
    options = {**OPTIONS, "encode": sums, "epochs": 1, "remainder": "pad"}
    *_, last = penstock.load(datasets.visits, batch_size=32, **options)
    rows = len(penstock.open(datasets.visits)) % 32
    assert last["valid"].tolist() == [True] * rows + [False] * (32 - rows)
    assert not last["points"][rows:].any()


def draws(window):  # noqa: ARG001
    return np.random.default_rng().integers(0, 100, 8).astype("i4")


def grows(window):
    return {"x": window["page"]}


def changes_type(window):
    return window["page"].astype("i4" if window["user"] % 2 else "i8")


def is_text(window):  # noqa: ARG001
    return {"x": np.array(["a"])}


def is_square(window):  # noqa: ARG001
    return np.zeros((2, 2), "i4")


def is_real(window):
    return window["seconds"]


def fails(window):  # noqa: ARG001
    raise KeyError("no such thing")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (pages, r"encode=pages returned \d+ tokens for a window, and a row has 12"),
        (draws, "returned two results for one window"),
        (grows, r"returned 'x' as int16\[\d+\] for a window, and as int16\[\d+\] for the first"),
        (changes_type, r"returned 'tokens' as int\d\d\[\d+\] for a window, and as int\d\d\[12\] for the first"),
        (is_text, "returned ndarray of <U1, and a batch holds numbers"),
        (is_square, r"returned an array of shape \(2, 2\)"),
        (is_real, "token ids are whole numbers"),
    ],
)
def test_what_a_function_may_not_return_is_named(datasets, function, words):
    with pytest.raises(PenstockError, match=words):
        for _ in penstock.load(datasets.visits, batch_size=1, encode=function, epochs=1, **OPTIONS):
            pass


def test_an_error_of_the_function_travels_up_with_the_window(datasets):
    with pytest.raises(KeyError, match="no such thing") as raised:
        penstock.load(datasets.visits, batch_size=8, encode=fails, **OPTIONS)
    assert "in encode=fails, given a window of user ()" in raised.value.__notes__[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"encode": sums, "max_tokens": 5}, "max_tokens=5 is an option for token ids"),
        ({"encode": pages, "layout": "padded"}, "layout='padded' is an option for encode='raw'"),
        ({"encode": 3}, "encode=3"),
        ({"encode": pages, "max_tokens": 2**31 - 1, "memory": "500MB"}, "batches do not fit: 8 rows take"),
    ],
)
def test_impossible_options_are_refused_by_name(datasets, options, words):
    with pytest.raises(PenstockError, match=words):
        penstock.load(datasets.visits, batch_size=8, **OPTIONS, **options)
