"""augment=: whether a segment's events are reordered, some without their time and with their fields in any order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import ConfigError
from penstock.loader.tokens.vocabulary import PINGS
from tests.loader.making import Datasets, prepare, prepare_pings, same

OWN = {"at": "time", "number": {"int": 4}, "delay": "float11"}
PINGS_COLUMNS = {"src_addr": "ip", "event_time": "time", "rtt": "float11"}
OPTIONS: dict[str, Any] = {"batch_size": 32, "length": 256}


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events of 20 keys, a second apart and numbered as they follow each other."""
    count = 4000
    table = pa.table(
        {
            "who": pa.array([f"key {number % 20}" for number in range(count)]),
            "at": pa.array(range(count), pa.timestamp("s")),
            "number": pa.array(range(count), pa.int32()),
            "delay": pa.array(np.full(count, 1.5, "f4")),
        }
    )
    return prepare(tmp_path_factory.mktemp("steps"), table, [{"group": {"by": "who", "order": "at"}}])


def segments(path: Path | str, batches: int = 4, **options: Any) -> list[list[dict[str, Any]]]:
    """The measurements of each segment, decoded."""
    found: list[list[dict[str, Any]]] = []
    with penstock.load(path, **{**OPTIONS, **options}, workers=0) as loader:
        for k in range(batches):
            batch = loader.batch(k)
            for row in penstock.decode(batch["inputs"], loader.vocabulary, batch["inputs_segmentation"]):
                whole = [each for each in row if not each.get("cut")]
                numbers = dict.fromkeys(each["segment"] for each in whole)
                found += [[each for each in whole if each["segment"] == number] for number in numbers]
    return found


def first_markers(path: Path | str, **options: Any) -> set[int]:
    """Which markers come right behind a start."""
    with penstock.load(path, **{**OPTIONS, **options}, workers=0) as loader:
        inputs, segmentation = (loader.batch(0)[name] for name in ("inputs", "inputs_segmentation"))
    starts = (inputs[:, :-1] == 0) & (segmentation[:, :-1] != 0) & (segmentation[:, 1:] == segmentation[:, :-1])
    return set(inputs[:, 1:][starts].tolist())


def in_order(segment: list[dict[str, Any]], column: str) -> bool:
    values = [each[column] for each in segment]
    return values == sorted(values)


@pytest.mark.proof
@pytest.mark.parametrize("fill", ["packed", "one_key"])
@pytest.mark.parametrize("plain", ["0", "1"])
def test_fields_of_ones_own_come_in_the_stored_order_with_every_time(steps, monkeypatch, fill, plain):
    monkeypatch.setenv("PENSTOCK_PLAIN", plain)
    found = segments(steps, batches=1 if plain == "1" else 4, fields=OWN, fill=fill)
    assert max(map(len, found)) > 5
    assert all(in_order(segment, "number") for segment in found)
    assert all(each["at"] is not None for segment in found for each in segment)
    assert all(each["at"].astype(int) == each["number"] for segment in found for each in segment)
    assert first_markers(steps, fields=OWN, fill=fill) <= {1, 2, 3}, "time comes first, in one of its three forms"


def test_events_without_a_time_come_in_the_stored_order_too(steps):
    found = segments(steps, fields={"number": {"int": 4}, "delay": "float11"})
    assert all(in_order(segment, "number") for segment in found)


def test_augment_reorders_events_leaves_times_out_and_mixes_fields(steps):
    found = segments(steps, fields=OWN, augment=True)
    reordered = sum(not in_order(segment, "number") for segment in found)
    assert 0.3 < reordered / len(found) < 0.7
    times = [each.get("at") is not None for segment in found for each in segment]
    assert 0.2 < np.mean(times) < 0.8
    assert first_markers(steps, fields=OWN, augment=True) > {1, 4, 6}


def test_pings_are_augmented_unless_it_is_declined(datasets: Datasets):
    usual = [penstock.load(datasets.pings, **OPTIONS, workers=0, **given) for given in ({}, {"augment": True})]
    assert same(usual[0].batch(3), usual[1].batch(3))
    again = penstock.load(datasets.pings, **OPTIONS, workers=0, fields=PINGS)
    assert same(again.batch(3), usual[0].batch(3)), "the vocabulary of pings is that of pings, also when it is given"
    declined = segments(datasets.pings, augment=False)
    assert all(each["time"] is not None for segment in declined for each in segment)
    assert all(in_order(segment, "time") for segment in declined)
    assert first_markers(datasets.pings, augment=False) <= {1, 2}, "the source comes first"
    assert first_markers(datasets.pings) > {1, 2, 3, 8}


def test_columns_of_pings_that_are_named_as_fields_are_fields_of_ones_own(datasets: Datasets):
    found = segments(datasets.pings, fields=PINGS_COLUMNS)
    assert all(each["event_time"] is not None for segment in found for each in segment)


def test_arrayrecord_files_are_augmented_alike(tmp_path):
    files = prepare_pings(tmp_path, count=600, keys=20, format="arrayrecord")
    found = segments(files, batches=1, augment=False)
    assert all(each["time"] is not None for segment in found for each in segment)
    lost = [each for segment in segments(files, batches=1) for each in segment if each.get("time") is None]
    assert lost


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("kind", ["rows", "arrays"])
def test_it_is_refused_by_name_where_there_are_no_events(datasets: Datasets, kind, given):
    with pytest.raises(ConfigError, match=f"augment={given} is an option for events") as refused:
        penstock.load(getattr(datasets, kind), batch_size=4, augment=given)
    assert "leave augment= out" in str(refused.value.next_step)


@pytest.mark.parametrize("given", ["yes", 1, 0, "False"])
def test_it_is_true_or_false(datasets: Datasets, given):
    with pytest.raises(ConfigError, match="cannot take augment="):
        penstock.load(datasets.pings, **OPTIONS, augment=given)


def test_it_is_part_of_the_recipe(datasets: Datasets):
    with (
        penstock.load(datasets.pings, **OPTIONS) as usual,
        penstock.load(datasets.pings, **OPTIONS, augment=False) as no,
    ):
        state = json.loads(json.dumps(usual.state()))
        assert state["recipe"]["augment"] is True
        with pytest.raises(ConfigError, match="augment was True and is False"):
            no.restore(state)
