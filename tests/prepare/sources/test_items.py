"""Items: samples that a function makes of a range, a list or an array, without files."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.base.errors import ConfigError, InputError, OutputError
from penstock.prepare.sources.items import SOURCE
from penstock.prepare.sources.slices import Segment
from tests.promises import workshop


def simulate(item: int) -> dict[str, Any]:
    return {"x": np.full(2, item, "f4"), "group": f"g{item % 5}"}


def twice(item: Any) -> Any:
    for number in range(2):
        yield {"x": float(len(str(item)) + number)}


def grows(item: int) -> dict[str, Any]:
    return {"x": np.zeros(100 * (item + 1), "f8")}


def several(item: int) -> Any:
    """A number of samples, the last of which is not a number for item 5; the function raises for item 7."""
    values: list[Any] = [float(item + number) for number in range(item % 4 + 1)]
    yield from ({"x": value} for value in values)
    if item == 5:
        yield {"x": "five"}
    if item == 7:
        raise ValueError("no such world")


def several_at_once(item: int) -> Any:
    values: list[Any] = [float(item + number) for number in range(item % 4 + 1)]
    yield penstock.Batch({"x": np.array(values)})
    if item == 5:
        yield penstock.Batch({"x": ["five"]})
    if item == 7:
        raise ValueError("no such world")


def fails_at_17(item: int) -> dict[str, Any]:
    if item == 17:
        raise ValueError("no such world")
    return {"x": float(item)}


def _job(tmp_path: Path, items: Any, function: Any, **keys: Any) -> dict[str, Any]:
    return {"input": {"items": items, "function": function}, "output": str(tmp_path / "out"), "workers": 0, **keys}


def _run(tmp_path: Path, items: Any, function: Any, **keys: Any) -> dict[str, Any]:
    penstock.run(_job(tmp_path, items, function, **keys), progress=False)
    return json.loads((tmp_path / "out" / "manifest.json").read_text())


def test_every_item_of_a_range_becomes_a_sample(tmp_path):
    manifest = _run(tmp_path, range(5, 205, 2), simulate, stages=[{"split": {"by": "group", "test": 0.4}}])
    made = np.concatenate([np.load(tmp_path / "out" / f"x_{split}.npy") for split in ("train", "test")])
    assert sorted(made[:, 0].tolist()) == list(range(5, 205, 2))
    assert manifest["input"]["items"] == 100
    assert [(step["unit"], step["taken"], step["given"]) for step in manifest["account"][:2]] == [
        ("items", 100, 100),
        ("samples", 100, 100),
    ]


@pytest.mark.proof
@pytest.mark.parametrize(
    "items", [7, ["a", "bb"], ("a", None, 1.5), [{"seed": 1}, [2, 3]], np.arange(4.0), np.array(["x", "yz"])]
)
def test_items_may_be_a_number_a_list_or_an_array(tmp_path, items):
    manifest = _run(tmp_path, items, twice)
    count = items if isinstance(items, int) else len(items)
    assert manifest["account"][0]["taken"] == count
    assert manifest["account"][0]["made"] == {"samples": 2 * count}


def test_anything_with_a_length_and_items_by_number_will_do(tmp_path):
    class Worlds:
        def __len__(self):
            return 3

        def __getitem__(self, number):
            return number * 10

    assert _run(tmp_path, Worlds(), simulate)["account"][0]["given"] == 3
    assert np.load(tmp_path / "out" / "x_train.npy")[:, 0].tolist() == [0, 10, 20]


@pytest.mark.proof
def test_a_job_file_may_name_a_number_of_items(tmp_path):
    (tmp_path / "worlds.py").write_text("def simulate(item):\n    return {'x': float(item)}\n")
    (tmp_path / "job.yaml").write_text("input: {items: 20, function: 'worlds:simulate'}\noutput: out\nworkers: 0\n")
    penstock.run(tmp_path / "job.yaml", progress=False)
    assert np.load(tmp_path / "out" / "x_train.npy").tolist() == list(range(20))


def test_an_item_that_fails_is_set_aside_by_its_number(tmp_path):
    manifest = _run(tmp_path, range(40), fails_at_17)
    assert manifest["account"][0]["set_aside"] == {"function raised": 1}
    (rejected,) = (tmp_path / "out" / "rejected").iterdir()
    line = json.loads(rejected.read_text())
    assert (line["file"], line["detail"]) == ("item 17", "ValueError: no such world")


def test_a_sample_that_does_not_fit_stops_the_job_and_names_the_item(tmp_path):
    def odd(item):
        return {"x": np.zeros(2 + (item == 17))}

    job = _job(tmp_path, range(40), odd)
    job["input"]["schema"] = {"x": "float64[2]"}
    with pytest.raises(InputError, match="wrong shape") as caught:
        penstock.run(job, progress=False)
    assert "item 17, sample 0, key 'x'" in str(caught.value.where)


@pytest.mark.proof
def test_other_items_are_another_job_and_the_same_items_are_not(tmp_path):
    _run(tmp_path, [1, 2, 3], simulate)
    _run(tmp_path, (1, 2, 3), simulate)
    with pytest.raises(OutputError, match="items: changed"):
        _run(tmp_path, [1, 2, 4], simulate)


@pytest.mark.parametrize(
    ("items", "what"),
    [
        ((number for number in range(3)), "items: a generator cannot be read by position"),
        ([], "items: the list is empty"),
        (0, "items: the list is empty"),
        ("text", "items: a str cannot be read by position"),
        ({"a": 1}, "items: a dict cannot be read by position"),
        (np.zeros((2, 2)), "items: an array of 2 dimensions"),
        ([1, object()], "items: item 1 has a object, which has no identity"),
        ([[object()]], "items: item 0 has a object, which has no identity"),
    ],
)
def test_items_that_cannot_be_counted_or_compared_are_refused_in_a_sentence(tmp_path, items, what):
    with pytest.raises(ConfigError) as caught:
        penstock.plan(_job(tmp_path, items, simulate))
    assert what in caught.value.what
    assert caught.value.next_step


def test_items_without_a_function_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="items: needs `function: module:name`"):
        penstock.plan({"input": {"items": 3}, "output": str(tmp_path / "out")})


@pytest.mark.proof
def test_a_hundred_million_items_are_planned_without_a_list_of_them(tmp_path):
    job = _job(tmp_path, range(100_000_000), simulate)
    penstock.plan(_job(tmp_path, 10, simulate))  # what is imported once
    tracemalloc.start()
    try:
        plan = penstock.plan(job)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert plan.survey.items == 100_000_000


@pytest.mark.proof
@pytest.mark.parametrize("batch_bytes", [1, 1 << 20])
def test_batches_decide_no_byte_even_where_an_item_fails_after_many_samples(tmp_path, batch_bytes):
    def late(item):
        for number in range(50):
            if (item, number) == (17, 40):
                raise ValueError("late")
            yield {"x": np.zeros(3 if (item, number) == (16, 5) else 2, "f4")}

    written = []
    for name, size in (("a", batch_bytes), ("b", 1 << 16)):
        job = _job(tmp_path / name, range(40), late, on_bad_input="set_aside")
        job["input"]["schema"] = {"x": "float32[2]"}
        penstock.run(workshop.with_batches(penstock.plan(job), size), progress=False)
        written.append(workshop.bytes_of(tmp_path / name / "out"))
    assert written[0] == written[1]


def doubled_in_place(row: Any) -> dict[str, Any]:
    row *= 2
    return {"x": row}


@pytest.mark.proof
@pytest.mark.parametrize("batch_bytes", [1, 30, 1 << 20])
def test_an_item_may_make_batches(tmp_path, batch_bytes):
    written = {}
    for name, function in {"singly": several, "at once": several_at_once}.items():
        job = _job(tmp_path / name, 40, function, on_bad_input="set_aside", slice_size="20kB")
        penstock.run(workshop.with_batches(penstock.plan(job), batch_bytes if function is several_at_once else 1 << 20))
        out = tmp_path / name / "out"
        lines = [json.loads(line) for path in sorted(out.glob("rejected/*.jsonl")) for line in path.open()]
        written[name] = np.load(out / "x_train.npy").tolist(), [(each["file"], each["position"]) for each in lines]
        written[name] += (json.loads((out / "manifest.json").read_text())["account"],)
    assert written["at once"] == written["singly"]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_function_may_change_an_item_in_place(tmp_path, workers):
    items = list(np.arange(12.0).reshape(6, 2))
    _run(tmp_path, items, doubled_in_place, workers=workers)
    made = np.load(tmp_path / "out" / "x_train.npy")
    assert made.tolist() == (2 * np.arange(12.0).reshape(6, 2)).tolist()
    assert items[1].tolist() == [2.0, 3.0]


@pytest.mark.proof
def test_items_that_are_changed_between_plan_and_run_are_refused(tmp_path):
    items = [1, 2, 3]
    plan = penstock.plan(_job(tmp_path, items, twice))
    items[0] = 100
    with pytest.raises(ConfigError, match="items: they were changed since the job was planned"):
        penstock.run(plan, progress=False)


@pytest.mark.proof
def test_large_samples_of_any_length_are_given_on_by_their_bytes_not_their_number(tmp_path):
    reading = penstock.plan(_job(tmp_path, range(12), grows)).survey.reading(rows_at_once=1000, bytes_at_once=20_000)
    segment = Segment(0, "items", "input[0].items", "", first=0, last=12, ordinal=0, rows=-1, bytes=1)
    batches = list(SOURCE.read(segment, reading))
    assert sum(len(rows) for rows in batches) == 12
    assert max(rows.batch.nbytes for rows in batches) < 20_000 + 8 * 1200
